"""Where compiled kernels are kept, when they are compiled, and what is said where they cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.object_files import source_hash

ROOT = Path(__file__).parent.parent.parent
CALL = "from tests.kernels import sample_kernels as s; print(s.nothing())"
READ_ONLY = """
import os
access = os.access
given = os.environ["NUMBA_CACHE_DIR"]
os.access = lambda path, mode: access(path, mode) and not (mode & os.W_OK and str(path).startswith(given))
"""
NO_COMPILER = """
import subprocess
def refuse(*arguments, **more):
    raise AssertionError("it is compiled again")
subprocess.run = refuse
"""
NOWHERE_ELSE = {"HOME": "/dev/null", "TIDEMARK_CACHE": ""}


@pytest.fixture(scope="module", autouse=True)
def other_folder_for_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


def python(code: str, *, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, **NOWHERE_ELSE, **environment}, capture_output=True, text=True, timeout=200, check=check,
    )  # fmt: skip


def objects(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.o"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample's object file, made by a process that called one kernel."""
    folder = tmp_path_factory.mktemp("compiled")
    assert python(CALL, NUMBA_CACHE_DIR=str(folder)).stdout == "7\n"
    return folder


def test_kernels_are_compiled_once_and_loaded_without_numba(compiled: Path) -> None:
    (file,) = objects(compiled)
    before = file.stat()
    again = python(NO_COMPILER + CALL + "; import sys; print('numba' in sys.modules)", NUMBA_CACHE_DIR=str(compiled))
    assert again.stdout == "7\nFalse\n"
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert {path.suffix for path in compiled.iterdir()} == {".o", ".lock"}


def test_the_file_is_in_the_first_folder_that_has_it_or_can_be_written(compiled: Path, tmp_path: Path) -> None:
    (file,) = objects(compiled)
    chosen, general, home, others = (tmp_path / name for name in ("chosen", "general", "home", "temporary"))
    others.mkdir()
    impossible = "/dev/null/cache"
    where = "from tests.kernels.sample_kernels import GROUP; print(GROUP._files.find())"

    def found(code: str = "", **environment: str) -> Path:
        settings = {"TMPDIR": str(others), "HOME": impossible, "NUMBA_CACHE_DIR": "", "TIDEMARK_CACHE": "", **environment}
        return Path(python(code + where, **settings).stdout.strip())

    home_folder = home / ".cache" / "tidemark" / "kernels"
    home_folder.mkdir(parents=True)
    shutil.copy(file, home_folder)
    assert found(NO_COMPILER, NUMBA_CACHE_DIR=str(chosen), HOME=str(home)) == home_folder / file.name
    assert found(NUMBA_CACHE_DIR=impossible, TIDEMARK_CACHE=str(general)) == general / "kernels" / file.name
    shared = others / f"tidemark-kernels-{os.geteuid()}"
    assert found() == shared / file.name
    assert found(NO_COMPILER) == shared / file.name
    shared.chmod(0o777)  # as of somebody else: what he puts there would be executed
    nowhere = found()
    assert nowhere.parent.parent == others
    assert not nowhere.parent.exists()


def test_kernels_in_a_folder_that_can_only_be_read_are_used(compiled: Path) -> None:
    assert python(READ_ONLY + NO_COMPILER + CALL, NUMBA_CACHE_DIR=str(compiled)).stdout == "7\n"


def test_kernels_of_other_sources_python_or_features_are_not_used(compiled: Path, tmp_path: Path) -> None:
    (file,) = objects(compiled)
    source = tmp_path / "kernels.py"
    source.write_text("one", "utf-8")
    first = source_hash([source])
    assert source_hash([tmp_path]) == first
    source.write_text("another", "utf-8")
    assert source_hash([source]) != first
    name = "from tests.kernels.sample_kernels import GROUP; print(GROUP._files._name())"
    assert python(name).stdout.strip() == file.name
    other = python(name, NUMBA_CPU_FEATURES="+sse2").stdout.strip()
    assert other != file.name
    assert other.rpartition("-")[0] == file.name.rpartition("-")[0]


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    count = (
        "import subprocess; run = subprocess.run\n"
        "def counted(*a, **k):\n    print('compiles'); return run(*a, **k)\n"
        "subprocess.run = counted\n"
    )
    command = [sys.executable, "-c", count + CALL]
    environment = {**os.environ, **NOWHERE_ELSE, "NUMBA_CACHE_DIR": str(tmp_path)}
    together = [subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [one.communicate(timeout=200)[0] for one in together]
    assert sorted(said) == ["7\n", "7\n", "compiles\n7\n"]
    assert len(objects(tmp_path)) == 1


def test_a_failed_compilation_is_said_with_its_reason(tmp_path: Path) -> None:
    failed = python(
        "import os\n" + CALL.replace("print", "os.environ.update(SAMPLE_FAILS='1'); print"), check=False, NUMBA_CACHE_DIR=str(tmp_path)
    )
    said = failed.stderr.strip()
    assert f"KernelError: the kernels of tests.kernels.sample_kernels could not be compiled into {tmp_path} (exit code 1):" in said
    assert said.endswith("RuntimeError: this sample fails")
    assert objects(tmp_path) == []


def test_a_damaged_file_is_named(compiled: Path, tmp_path: Path) -> None:
    (file,) = objects(compiled)
    (tmp_path / file.name).write_bytes(file.read_bytes()[:100])
    failed = python(CALL, check=False, NUMBA_CACHE_DIR=str(tmp_path))
    assert "KernelError: compiled kernels cannot be used" in failed.stderr
    assert f"Remove {tmp_path / file.name}, and they are compiled again" in failed.stderr
