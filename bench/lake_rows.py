"""Rows of the benchmark's table in Delta: written as they are before any change, and summed up afterwards. No JVM."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

from bench.lake_source import FIRST_CHANGE, Sums
from bench.scene import BenchError
from schemas.position import Position

POSITION = "_tm_position"
COMPUTED = "computed_"
"""Begins the name of a column that a transform computes: rows that were there before have NULL in it."""
SUMMED = ("id", "a", "b", "c")
"""The columns whose sums are compared with the source."""

_COMPUTED: Mapping[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    "computed_a": lambda rows: pc.multiply(rows["a"], 2),
    "computed_b": lambda rows: pc.utf8_upper(rows["b"]),
    "computed_d": lambda rows: pc.year(rows["d"]),
    "computed_mask": lambda rows: pc.binary_join_element_wise(pc.utf8_slice_codeunits(rows["b"], 0, 1), "**", ""),
}
_PIECE = 1_000_000
_DATE = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
PLAIN = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.decimal128(12, 2)),
        ("d", pa.timestamp("us", "UTC")),
        ("e", pa.string()),
        ("f", pa.float64()),
        ("g", pa.int32()),
        ("h", pa.string()),
        ("i", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of a table that a user's own job fills."""


def append_base(path: Path, first: int, last: int) -> None:
    """Append rows `first` to `last` to a table, which is made if there is none, in files of up to a million rows.

    In a table of ours each row gets a position below that of every row that is there.
    """
    schema, before = _schema_of(path) if (path / "_delta_log").is_dir() else (PLAIN, "")
    for at in range(first, last, _PIECE):
        ids = np.arange(at, min(last, at + _PIECE), dtype=np.int64)
        write_deltalake(str(path), _rows(ids, schema, before), mode="append")


def _schema_of(path: Path) -> tuple[pa.Schema, str]:
    """Return the columns of a table, and the lowest position of its rows; "" where they have none."""
    dataset = DeltaTable(str(path)).to_pyarrow_dataset()
    if POSITION not in dataset.schema.names:
        return dataset.schema, ""
    return dataset.schema, str(pc.min(dataset.to_table([POSITION])[POSITION]).as_py())


def _rows(ids: np.ndarray[Any, Any], schema: pa.Schema, before: str) -> pa.Table:
    text, thousandth, count = pa.array(ids).cast(pa.string()), ids % 1000, len(ids)
    values: dict[str, Any] = {
        "id": pa.array(ids),
        "a": pa.array(thousandth),
        "b": pc.binary_join_element_wise("name ", text, ""),
        "c": pa.array(thousandth / 4),
        "d": pa.scalar(_DATE.replace(microsecond=123_456)),
        "e": pa.scalar("x" * 80),
        "f": pa.array(thousandth * 0.1),
        "g": pa.array(ids % 2),
        "h": pa.scalar(None, pa.string()),
        "i": pa.scalar(_DATE),
    }
    if before:
        found = Position.parse(before)
        prefix = Position(found.epoch, found.file, 4).prefix
        values[POSITION] = pc.binary_join_element_wise(prefix, pc.utf8_lpad(text, 10, "0"), ".")
    values |= {name: pa.scalar(None) for name in schema.names if name.startswith(COMPUTED)}
    if missing := [name for name in schema.names if name not in values]:
        message = f"the table of the lake has columns that the benchmark does not know: {', '.join(missing)}"
        raise BenchError(message)
    return pa.table([_as(values[field.name], field.type, count) for field in schema], schema=schema)


def _as(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    if not isinstance(value, pa.Scalar):
        return value.cast(kind)
    if not value.is_valid:
        return pa.nulls(count, kind)
    if pa.types.is_timestamp(kind):
        moment = value.as_py() if kind.tz else value.as_py().replace(tzinfo=None)
        return pa.repeat(pa.scalar(moment, kind), count)
    return pa.repeat(value.cast(kind), count)


def linked_copy(path: Path, target: Path) -> None:
    """Copy a table: its files are never changed, so the copy is made of links."""

    def link(source: str, destination: str) -> str:
        if Path(source).name.startswith("_last_checkpoint"):
            return shutil.copy2(source, destination)
        os.link(source, destination)
        return destination

    shutil.copytree(path, target, copy_function=link)


def changed_rows(path: Path, first: int) -> pa.Table:
    """Return the rows of a table whose last change is `first` or a later one."""
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table(filter=pc.field("a") >= FIRST_CHANGE + first)


def rows_in_log(path: Path) -> int:
    """Return the number of rows by the statistics in the table's log; 0 while there is no table."""
    if not any((path / "_delta_log").glob("*.json")):
        return 0
    actions = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))
    return int(pc.sum(actions["num_records"]).as_py() or 0) if actions.num_rows else 0


def require_whole(path: Path, rows: int, ids: int) -> None:
    """Raise `BenchError` unless a table has so many rows, each key once, with this sum of all keys."""
    found = DeltaTable(str(path)).to_pyarrow_dataset().to_table(["id"])["id"].combine_chunks().to_numpy()
    distinct = len(np.unique(found))
    seen = {"rows": len(found), "keys": distinct, "sum of keys": int(found.sum())}
    _require(path, {"rows": rows, "keys": rows, "sum of keys": ids}, seen)


def require_sums(path: Path, truth: Sums, where: ds.Expression | None = None) -> None:
    """Raise `BenchError` unless the rows of a table (those of the expression) have the sums of the source."""
    rows = DeltaTable(str(path)).to_pyarrow_dataset().to_table(list(SUMMED), filter=where)
    _require(path, asdict(truth), asdict(sums_of(rows)))


def sums_of(rows: pa.Table) -> Sums:
    """Return the sums of rows with the columns `SUMMED`, as `lake_source.sums_of` has them of the source."""
    texts = pc.binary_join_element_wise(*(rows[name].cast(pa.string()) for name in SUMMED), "|")
    checksum = sum(zlib.crc32(text.encode()) for text in texts.to_pylist())
    ids, a = (int(pc.sum(rows[name]).as_py() or 0) for name in ("id", "a"))
    return Sums(rows.num_rows, ids, a, checksum)


def require_computed(path: Path, first: int) -> None:
    """Raise `BenchError` unless columns that a transform computes are right in the rows whose last change is `first` or later."""
    rows = changed_rows(path, first)
    for name in (name for name in rows.schema.names if name.startswith(COMPUTED)):
        right = pc.sum(pc.fill_null(pc.equal(rows[name], _COMPUTED[name](rows)), fill_value=False)).as_py() or 0
        _require(path, {name: rows.num_rows}, {name: right})


def changed_since(first: int) -> ds.Expression:
    """Return the condition for rows whose last change is `first` or a later one."""
    return pc.field("a") >= FIRST_CHANGE + first


def _require(path: Path, wanted: Mapping[str, int], seen: Mapping[str, int]) -> None:
    if wanted != seen:
        message = f"the table {path} is not as the source: {seen} instead of {wanted}"
        raise BenchError(message)
