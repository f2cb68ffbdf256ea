"""When and where kernels are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
provide_writable_kernels()
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    import producer.app
    from producer.codec.jit import CACHE_FOLDER, compile_kernels
    compile_kernels()
print(len(recorder.buffer), CACHE_FOLDER)
"""


@pytest.mark.slow
def test_the_kernels_of_an_image_are_used_where_its_root_file_system_is_read_only(tmp_path: Path) -> None:
    compiled, folder = python(START, NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert (int(compiled) > 0, Path(folder).parent) == (True, tmp_path)
    again, copy = python(READ_ONLY + START, NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert again == "0"
    assert Path(copy).parent.name.startswith("tidemark-kernels-")
    assert not Path(copy).exists()


def test_a_folder_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    code = "import os\nfrom tidemark.process.kernel_cache_copy import provide_writable_kernels as p; p(); print(os.environ['NUMBA_CACHE_DIR'])"
    assert python(code, NUMBA_CACHE_DIR=str(tmp_path)) == str(tmp_path)
    assert python(code, NUMBA_CACHE_DIR=str(tmp_path / "missing")) == str(tmp_path / "missing")


def test_a_cache_is_used_only_by_the_sources_it_was_made_from() -> None:
    code = (
        "import shutil, sys, tempfile, pathlib; from producer.codec.jit import _source_hash as h;"
        "f = pathlib.Path('producer/codec'); t = pathlib.Path(tempfile.mkdtemp()) / 'c'; shutil.copytree(f, t);"
        "same = h(f) == h(t); (t / 'times.py').write_text('# changed'); print(same, h(f) == h(t)); shutil.rmtree(t.parent)"
    )
    assert python(code) == "True False"
