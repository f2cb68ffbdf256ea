"""The images' layers before the sources: the few files that are copied there are enough for what runs on them."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

EXTRAS: Final = "spark load"
"""Without `load` the merge job reads no tables: each large one would wait two minutes for it, and then go through Kafka."""
ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = ROOT / "docker/Dockerfile"


def copied(stage: str) -> list[tuple[list[str], str]]:
    """Return what a stage copies out of the sources: files or folders, and where to."""
    lines = DOCKERFILE.read_text().split(f" AS {stage}\n")[1].split("\nFROM ")[0].splitlines()
    found = [line.split()[1:] for line in lines if line.startswith("COPY ") and "--from" not in line]
    return [(words[:-1], words[-1]) for words in found]


def test_the_jars_are_fetched_with_nothing_but_the_files_of_their_layer(tmp_path: Path) -> None:
    for sources, target in copied("spark"):
        for source in sources:
            into = tmp_path / target / (Path(source).name if target.endswith("/") else "")
            into.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / source, into)
    assert (tmp_path / "tidemark/runtime/jars.py").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import tidemark.runtime.jars as jars; print(jars.__file__)"],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "tidemark/runtime/jars.py")


def test_the_merge_image_can_load_tables() -> None:
    assert f"RUN python requirements.py {EXTRAS} > spark.txt" in DOCKERFILE.read_text()


def test_the_merge_image_compiles_every_kernel_of_the_workers(tmp_path: Path) -> None:
    """Those of the row codec and of result sets, too: a first load reads rows of the source. The log is not read there."""
    merge = DOCKERFILE.read_text().split(" AS merge\n")[1].split("\nFROM ")[0]
    (code,) = (line.removeprefix("RUN python -c ").strip("'") for line in merge.splitlines() if line.startswith("RUN python -c "))
    code = code.replace("from tidemark.", "from ")
    note = "import kernels.object_files as f; f._compiled = lambda home: print(home) or b''\n"
    note += "import kernels.loader as l; l.Library = lambda where, code: where\n"
    done = subprocess.run(
        [sys.executable, "-c", note + code],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=300,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TIDEMARK_CACHE": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folders = ("mysqlio", "rowcodec", "spark_jobs/arrow")
    groups = {path for folder in folders for path in (ROOT / folder).glob("*.py") if "KernelGroup(" in path.read_text("utf-8")}
    assert len(groups) == 3
    assert set(done.stdout.split()) == {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in groups}


def test_every_module_with_kernels_is_in_its_group() -> None:
    """A kernel whose module the group does not name would be missing in the object file, and found only when it is called."""
    for home in ("mysqlio.packet_kernels", "producer.binlog.log_kernels", "rowcodec.codec_kernels", "spark_jobs.arrow.worker_kernels"):
        group = importlib.import_module(home).GROUP
        users = {
            ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for part in ("mysqlio", "producer", "rowcodec", "spark_jobs")
            for path in (ROOT / part).rglob("*.py")
            if "\n@entry\n" in (text := path.read_text("utf-8")) and f"from {home} import" in text
        }
        assert users == set(group.modules)


def test_the_build_context_has_each_package_of_the_wheel_that_production_needs() -> None:
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    wheel = (ROOT / "tools" / "wheel_layout.py").read_text("utf-8")
    moved = set(re.findall(r'"(\w+)"', re.search(r"^MOVED: Final = \((.*)\)$", wheel, re.MULTILINE)[1]))
    assert moved - {"devservers"} <= kept
