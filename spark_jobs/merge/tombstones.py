"""Tombstones: deletes that an older row, which is read later, must not undo. They are Parquet files beside the sink's tables.

A batch writes its deletes of a table into one folder of its own, so that writing it again replaces it. The job's state names the
folders that count. A folder is forgotten when no record that it could stop can come any more: its highest position is below the
horizon or the floor. Its files are removed one batch later, when no replay asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from schemas.errors import SinkError
from schemas.merge_rule import TableState
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.decode.spark_types import converted, quoted
from spark_jobs.sinks.arrival import NOT_SHARED
from spark_jobs.sinks.contract import REMEDY

MANY_FOLDERS: Final = 24


@dataclass(frozen=True, slots=True)
class TombstoneFolder:
    """The tombstones of one batch: where, up to which position, how many, and the key columns' types."""

    path: str
    highest: str
    count: int
    keys: Mapping[str, str]


def needed(folders: Iterable[TombstoneFolder], state: TableState) -> tuple[TombstoneFolder, ...]:
    """Return the folders that may still stop a row."""
    return tuple(
        item for item in folders if item.highest > state.safe_horizon and item.highest >= state.floor
    )


def pending(rows: DataFrame, state: TableState) -> DataFrame:
    """Return the deletes among a batch's winners that a later batch may need."""
    return rows.where(F.col(DELETED) & is_late(state))


def is_late(state: TableState) -> Column:
    """Return the condition for rows that may be newer than one which is read later."""
    return (F.col(POSITION) > F.lit(state.safe_horizon)) & (F.col(POSITION) >= F.lit(state.floor))


def read(
    spark: SparkSession,
    root: Path,
    folders: Sequence[TombstoneFolder],
    keys: Sequence[tuple[str, T.DataType]],
) -> DataFrame:
    """Return the tombstones of these folders: key columns as they are typed now, and the position.

    A key that today's type does not have (NULL then) is of rows below the floor: it stops nothing. `SinkError` if some are gone.
    """
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for item in folders:
        require_whole(root, item)
        groups.setdefault(tuple(item.keys.items()), []).append(str(root / item.path))
    parts = [
        spark.read.schema(_schema(dict(signature))).parquet(*paths).select(*_widened(dict(signature), keys), POSITION)
        for signature, paths in groups.items()
        if {name for name, _ in signature} == {name for name, _ in keys}
    ]
    if not parts:
        return spark.createDataFrame(
            [], T.StructType([*_fields(keys), T.StructField(POSITION, T.StringType())])
        )
    return reduce(DataFrame.unionByName, parts)


def write(
    deletes: DataFrame, root: Path, label: str, keys: Sequence[tuple[str, T.DataType]]
) -> TombstoneFolder:
    """Write the deletes of a batch below the root, over those of an earlier attempt with the same label."""
    rows = deletes.select(*[F.col(quoted(name)) for name, _ in keys], POSITION)
    counted = Observation()
    measured = rows.coalesce(1).observe(counted, F.max(POSITION).alias("highest"), F.count(F.lit(1)).alias("count"))
    measured.write.mode("overwrite").parquet(str(root / label))
    found = counted.get
    types = {name: kind.simpleString() for name, kind in keys}
    written = TombstoneFolder(label, found.get("highest") or "", found.get("count", 0), types)
    require_whole(root, written)
    return written


def require_whole(root: Path, item: TombstoneFolder) -> None:
    """Raise `SinkError` for a folder that has not what was written to it: an older row would undo a delete."""
    found = sum(pq.read_metadata(path).num_rows for path in (root / item.path).glob("*.parquet"))
    if found < item.count:
        written = f"{item.count} tombstones were written to {root / item.path}, and {found} are there"
        message = f"{written}: they were removed ({REMEDY}), or {NOT_SHARED}"
        raise SinkError(message)


def _widened(signature: Mapping[str, str], keys: Sequence[tuple[str, T.DataType]]) -> list[Column]:
    types = {name: T.DataType.fromDDL(kind) for name, kind in signature.items()}
    return [converted(F.col(quoted(name)), types[name], kind).alias(name) for name, kind in keys]


def _schema(signature: Mapping[str, str]) -> T.StructType:
    fields = [T.StructField(name, T.DataType.fromDDL(kind)) for name, kind in signature.items()]
    return T.StructType([*fields, T.StructField(POSITION, T.StringType())])


def _fields(keys: Sequence[tuple[str, T.DataType]]) -> list[T.StructField]:
    return [T.StructField(name, kind) for name, kind in keys]
