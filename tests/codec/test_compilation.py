"""When kernels of the product are compiled, and which commands load them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tidemark import cli

ROOT = Path(__file__).parent.parent.parent
FIRST_ROW = """
import subprocess, sys
import numpy as np
import producer.app
from spark_jobs.arrow import worker_kernels
from rowcodec import *
from schemas.columns import *
producer.app.warm_up()
worker_kernels.GROUP.load()
def refuse(*arguments, **more):
    raise AssertionError("something is compiled")
subprocess.Popen = refuse
table = TableSchema("d", "t", (Column("id", ColumnType.INT, False), Column("j", ColumnType.JSON, True)), ("id",))
for fmt in ("avro", "json"):
    codec = TableCodec(table, BinlogLayout((3, 245), (0, 4)), WireSchemas(fmt, 1, 2), SourceConstants("v", "mysql", "s"))
    for op, images in (("c", 1), ("u", 2), ("d", 1)):
        rows = np.frombuffer(bytearray((b"\\2" + bytes(4)) * images), np.uint8)
        context = EventContext(op, "0001.0000000003.000000000154", 1, 1, 1, None, "b.1", 4, None, None, 1)
        assert codec.encode_rows(rows, 0, rows.size, context).count
print("numba" in sys.modules)
"""
WITHOUT_KERNELS = frozenset(
    (
        "completion", "config", "import-debezium", "import-flink-cdc", "lag", "offsets", "reload", "schema", "signal",
        "snapshot", "status", "tail", "version",
    )
)  # fmt: skip
"""The verbs that need no kernels: they are to start at once."""


def test_nothing_compiles_at_the_first_row_and_numba_is_not_imported() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FIRST_ROW], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=400, check=True
    )
    assert run.stdout == "False\n"


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


@pytest.mark.parametrize("verb", sorted(WITHOUT_KERNELS))
def test_a_verb_without_rows_imports_no_kernels(verb: str) -> None:
    names = [cli.module_of(verb).__name__]
    for name in names:
        assert name.partition(".")[0] not in ("numba", "kernels"), verb
        if name.startswith("tidemark.api.task_reader"):  # with --task alone, and it is not of the source
            continue
        parts = name.split(".")
        found = {one for end in range(1, len(parts) + 1) if (path := file_of(".".join(parts[:end]))) for one in imported(path)}
        names += sorted(found - set(names))
