"""The writes of the Delta sink: rows enter, one stamped commit leaves for each write.

Every write can be repeated: Delta skips a commit that it has seen (`txnAppId`, `txnVersion`). `append` and `merge` have one
transaction name: a batch that made the table finds it when it is repeated, and would merge what a later step of it has deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.decode.record_columns import POSITION
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.delta.alter import FEATURE_OF_DATETIME
from spark_jobs.sinks.delta.arrow_put import UnsupportedTableError
from spark_jobs.sinks.delta.commit_identity import FLOOR, ROWS, transaction_name
from spark_jobs.sinks.delta.table_schema import PROPERTIES
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.table_rows import configured, guarded_merge, is_of, live_rows
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape

_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
_MATERIALIZE: Final = "spark.databricks.delta.merge.materializeSource"
_CONFLICTS: Final = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "io.delta.exceptions",
    "CommitFailedError",  # delta-rs
    "UnsupportedTableError",  # the table changed since delta-rs was chosen
)
_TABLE_PROPERTIES: Final[Mapping[str, str]] = {**PROPERTIES, FEATURE_OF_DATETIME: "supported"}  # a DATETIME may come later


def stamped(spark: SparkSession, stamp: Stamp) -> AbstractContextManager[None]:
    """Stamp the commits of this session, which no other thread may use, with the batch and its progress.

    Timestamps are written as numbers of 64 bits: in Spark's default format, INT96, delta-rs misreads those of before 1678.
    """
    return configured(spark, {_USER_METADATA: stamp.metadata, _TIMESTAMPS: "TIMESTAMP_MICROS"})


@contextmanager
def committing(spark: SparkSession, stamp: Stamp, step: str) -> Iterator[None]:
    """Stamp the one commit made inside, and have Delta skip it when the batch made it before.

    `step` keeps the writes of one batch apart: Delta skips what has a version it has seen of the same name.
    """
    transaction = {
        _TXN_APP: transaction_name(stamp.query_id, stamp.table, step, stamp.redrive),
        _TXN_VERSION: str(stamp.batch_id),
    }
    with configured(spark, transaction), stamped(spark, stamp):
        yield


def append(rows: DataFrame, path: str, stamp: Stamp, shape: TargetShape = PLAIN_SHAPE) -> None:
    """Append rows whose keys are not in the table; the first ones create it, with its shape."""
    writer = live_rows(rows).write.format("delta").mode("append").options(**{**_TABLE_PROPERTIES, **shape.options})
    if shape.partition_by:
        writer = writer.partitionBy(*shape.partition_by)
    with committing(rows.sparkSession, stamp, ROWS):
        writer.save(path)


def merge(
    rows: DataFrame, path: str, keys: Sequence[str], columns: Sequence[str], stamp: Stamp, pruned: str
) -> None:
    """Merge rows by one guarded MERGE: a row changes only for a newer one.

    `pruned` is a further condition on the target `t` that every matching row meets, to skip files by.
    """
    spark = rows.sparkSession
    view = "tidemark_batch"
    rows.createOrReplaceTempView(view)
    statement = guarded_merge(f"delta.{quoted(path)}", view, keys, columns, pruned)
    # MERGE reads its source as it is; it would compute it again to be safe from rows that change
    with configured(spark, {_MATERIALIZE: "none"}), committing(spark, stamp, ROWS):
        spark.sql(statement)


def rows_between(first: str, below: str, source: str | None) -> str:
    """Return the condition for the rows from a first position on (empty: all) that are older than a floor.

    They are those of one of several source tables if it is named. Spark and delta-rs read it alike if it has no backslash.
    """
    parts = [f"{POSITION} < '{below}'"]
    if first:
        parts.insert(0, f"{POSITION} >= '{first}'")
    if source is not None:
        parts.insert(0, is_of(source))
    return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"


def delete_where(spark: SparkSession, path: str, condition: str, stamp: Stamp, mark: str | None = None) -> None:
    """Delete the rows that are below a floor; with `mark` set that column of theirs."""
    statement = f"DELETE FROM delta.{quoted(path)} WHERE {condition}"  # noqa: S608 - positions and names of tables
    if mark is not None:
        column = quoted(mark)
        statement = f"UPDATE delta.{quoted(path)} SET {column} = true WHERE NOT {column} AND ({condition})"  # noqa: S608 - as above
    with committing(spark, stamp, FLOOR):
        spark.sql(statement)


def compact(spark: SparkSession, path: str, stamp: Stamp) -> None:
    """Make the small files that batches leave into large ones; the rows stay what they are."""
    with stamped(spark, stamp):
        spark.sql(f"OPTIMIZE delta.{quoted(path)}")


def enable_vectors(spark: SparkSession, path: str, stamp: Stamp) -> bool:
    """Let Delta mark rows of a table as deleted; return whether that took a commit."""
    name = "delta.enableDeletionVectors"
    found = spark.sql(f"SHOW TBLPROPERTIES delta.{quoted(path)} ('{name}')").collect()
    if found[0]["value"] == "true":
        return False
    with stamped(spark, stamp):
        spark.sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ('{name}' = 'true')")
    return True


def is_conflict(error: Exception) -> bool:
    """Return whether somebody else (OPTIMIZE, a person) changed the table at the same time: a retry helps."""
    return isinstance(error, (CommitFailedError, UnsupportedTableError)) or any(name in str(error) for name in _CONFLICTS)
