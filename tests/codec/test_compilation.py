"""When and where kernels are compiled."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tidemark import cli
from tidemark.process.kernel_cache_copy import WITHOUT_KERNELS

ROOT = Path(__file__).parent.parent.parent
FIRST_ROW = """
import numpy as np
from numba.core import event
from producer.codec import *
from schemas.columns import *
table = TableSchema("d", "t", (Column("id", ColumnType.INT, False), Column("j", ColumnType.JSON, True)), ("id",))
codecs = [
    TableCodec(table, BinlogLayout((3, 245), (0, 4)), WireSchemas(fmt, 1, 2), SourceConstants("v", "mysql", "s"))
    for fmt in ("avro", "json")
]
with event.install_recorder("numba:compile") as recorder:
    for codec in codecs:
        for op, images in (("c", 1), ("u", 2), ("d", 1)):
            rows = np.frombuffer(bytearray((b"\\2" + bytes(4)) * images), np.uint8)
            context = EventContext(op, "0001.0000000003.000000000154", 1, 1, 1, None, "b.1", 4, None, None, 1)
            assert codec.encode_rows(rows, 0, rows.size, context).count
print(len(recorder.buffer))
"""


def python(code: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    return run.stdout.strip()


def test_nothing_compiles_at_the_first_row() -> None:
    assert python(FIRST_ROW) == "0"


def test_the_cache_is_in_the_first_folder_that_can_be_written(tmp_path: Path) -> None:
    where = "from producer.codec.jit import CACHE_FOLDER; print(CACHE_FOLDER)"
    chosen, general, home = tmp_path / "chosen", tmp_path / "general", tmp_path / "home"
    impossible = "/dev/null/cache"
    folder = Path(python(where, NUMBA_CACHE_DIR=str(chosen), TIDEMARK_CACHE=str(general), HOME=str(home)))
    assert folder.parent == chosen
    assert python(where, NUMBA_CACHE_DIR=impossible, TIDEMARK_CACHE=str(general), HOME=str(home)) == str(
        general / "numba" / folder.name
    )
    assert python(where, NUMBA_CACHE_DIR="", TIDEMARK_CACHE="", HOME=str(home)) == str(
        home / ".cache" / "tidemark" / "numba" / folder.name
    )
    nowhere = python(where, NUMBA_CACHE_DIR="", TIDEMARK_CACHE=impossible, HOME=impossible)
    assert "tidemark-numba-" in nowhere
    assert not Path(nowhere).exists()


READ_ONLY = """
import os
access = os.access
given = os.environ["NUMBA_CACHE_DIR"]
os.access = lambda path, mode: access(path, mode) and not (mode & os.W_OK and str(path).startswith(given))
"""
START = """
from tidemark.process.kernel_cache_copy import provide_writable_kernels
provide_writable_kernels("run")
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    import producer.app
    from producer.codec.jit import CACHE_FOLDER, compile_kernels
    compile_kernels()
print(len(recorder.buffer), CACHE_FOLDER)
"""
COPY = """
from tidemark.process.kernel_cache_copy import provide_writable_kernels
provide_writable_kernels("{verb}")
print(os.environ["NUMBA_CACHE_DIR"])
"""


@cache
def imported(module: Path) -> frozenset[str]:
    """What a module imports, in its functions too, but for what is for types only."""
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(module.read_text("utf-8"))]
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, *(f"{node.module}.{name.name}" for name in node.names)))
    return frozenset(found)


def file_of(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split("."))
    return next((one for one in (path / "__init__.py", path.with_suffix(".py")) if one.exists()), None)


@pytest.mark.slow
def test_the_kernels_of_an_image_are_used_where_its_root_file_system_is_read_only(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compiled, folder = python(START, NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert (int(compiled) > 0, Path(folder).parent) == (True, tmp_path)
    again, copy = python(READ_ONLY + START, NUMBA_CACHE_DIR=str(tmp_path), TMPDIR=str(tmp_path_factory.mktemp("copies"))).split()
    assert again == "0"
    assert Path(copy).parent.name.startswith("tidemark-kernels-")


def test_one_copy_of_an_image_s_kernels_serves_all_processes_of_a_user(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copies = tmp_path_factory.mktemp("copies")
    (tmp_path / "version").mkdir()
    (tmp_path / "version" / "kernel.nbi").write_text("compiled", "utf-8")
    tmp_path.joinpath("version").chmod(0o555)

    def provide(verb: str) -> Path:
        return Path(python(READ_ONLY + COPY.format(verb=verb), NUMBA_CACHE_DIR=str(tmp_path), TMPDIR=str(copies)))

    assert provide("status") == tmp_path
    assert list(copies.iterdir()) == []
    first = provide("run")
    (first / "version" / "more").write_text("compiled here", "utf-8")
    assert (first / "version" / "kernel.nbi").read_text("utf-8") == "compiled"
    assert (provide("verify"), list(copies.iterdir())) == (first, [first])
    (tmp_path / "version" / "kernel.nbi").write_text("another version", "utf-8")
    second = provide("run")
    assert (second / "version" / "kernel.nbi").read_text("utf-8") == "another version"
    second.chmod(0o777)  # as of somebody else: what he puts there would be executed
    assert provide("run") not in (first, second)
    assert set(copies.iterdir()) == {first, second}


@pytest.mark.parametrize("verb", sorted(WITHOUT_KERNELS))
def test_a_verb_that_gets_no_copy_imports_no_kernels(verb: str) -> None:
    names = [{**cli.VERBS, **cli.GROUPS}[verb].__name__]
    for name in names:
        assert name.partition(".")[0] != "numba", verb
        parts = name.split(".")
        found = {one for end in range(1, len(parts) + 1) if (path := file_of(".".join(parts[:end]))) for one in imported(path)}
        names += sorted(found - set(names))


def test_a_folder_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    code = "import os\nfrom tidemark.process.kernel_cache_copy import provide_writable_kernels as p; p('run'); print(os.environ['NUMBA_CACHE_DIR'])"
    assert python(code, NUMBA_CACHE_DIR=str(tmp_path)) == str(tmp_path)
    assert python(code, NUMBA_CACHE_DIR=str(tmp_path / "missing")) == str(tmp_path / "missing")


def test_a_cache_is_used_only_by_the_sources_it_was_made_from() -> None:
    code = (
        "import shutil, sys, tempfile, pathlib; from producer.codec.jit import _source_hash as h;"
        "f = pathlib.Path('producer/codec'); t = pathlib.Path(tempfile.mkdtemp()) / 'c'; shutil.copytree(f, t);"
        "same = h(f) == h(t); (t / 'times.py').write_text('# changed'); print(same, h(f) == h(t)); shutil.rmtree(t.parent)"
    )
    assert python(code) == "True False"
