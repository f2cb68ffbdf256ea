"""Columns of a Delta table: an `Evolution` enters, one commit leaves, after one that enables what a new type needs.

The change is idempotent: after a crash the columns are found as they should be and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.contract import Columns, Evolution
from spark_jobs.sinks.delta import table_schema
from spark_jobs.sinks.delta.commit_log import table_exists
from spark_jobs.sinks.table_rows import evolved_rows, lossless_columns

FEATURE_OF_DATETIME: Final = "delta.feature.timestampNtz"
"""The only sink type that a table of Delta's first protocol may not have; Delta adds it by itself to new tables only."""


def table_columns(spark: SparkSession, path: str) -> tuple[tuple[str, T.DataType], ...] | None:
    """Return the columns of a Delta table, ours included; None when there is no table."""
    if not table_exists(Path(path)):
        return None
    found = table_schema.table_columns(path)
    if found is None:
        found = tuple((item.name, item.dataType) for item in spark.read.format("delta").load(path).schema.fields)
    return found


def apply(spark: SparkSession, path: str, change: Evolution) -> None:
    """Give a table its new columns in one commit, after one that enables what their types need.

    Columns whose rows stay NULL cost a commit of metadata. A constant default for the rows that are there, or
    another type, rewrites the table from itself: new schema and rows appear together or not at all. So does a column
    that goes: dropped by metadata alone it would need column mapping, which delta-rs does not read.
    """
    _enable(spark, path, [kind for _, kind, _ in change.added] + [kind for _, kind in change.retyped])
    if not change.touches_rows:
        if change.added:
            listed = ", ".join(f"{quoted(name)} {kind.simpleString()}" for name, kind, _ in change.added)
            spark.sql(f"ALTER TABLE delta.{quoted(path)} ADD COLUMNS ({listed})")
        return
    rows = evolved_rows(spark.read.format("delta").load(path), change)
    found = spark.sql(f"DESCRIBE DETAIL delta.{quoted(path)}").select("partitionColumns").collect()[0][0]
    divided = [name for name in found if name not in change.dropped]
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    (writer.partitionBy(*divided) if divided else writer).save(path)


def without_loss(spark: SparkSession, path: str, columns: Columns) -> Columns:
    """Return those of the types that have every value of the table's column, and give back the very same."""
    return lossless_columns(spark.read.format("delta").load(path), columns)


def _enable(spark: SparkSession, path: str, kinds: Iterable[T.DataType]) -> None:
    """Enable the table feature that a new type needs, in a table that does not have it (an older version made it)."""
    if not any(isinstance(kind, T.TimestampNTZType) for kind in kinds):
        return
    detail = spark.sql(f"DESCRIBE DETAIL delta.{quoted(path)}").select("tableFeatures").collect()[0]
    if FEATURE_OF_DATETIME.rpartition(".")[2] not in (detail["tableFeatures"] or ()):
        spark.sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ('{FEATURE_OF_DATETIME}' = 'supported')")
