"""The writes of the Iceberg sink: rows enter, one stamped snapshot leaves for each write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.contract import Columns
from spark_jobs.sinks.iceberg.snapshot_log import QUERY_PROPERTY, STAMP, STEP
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.table_rows import configured, guarded_merge, live_rows, rows_taken
from spark_jobs.sinks.target_shape import TargetShape

PROPERTIES: Final[Mapping[str, str]] = {
    "format-version": "3",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.target-file-size-bytes": str(128 * 1024 * 1024),
    # A floor removes whole files by their highest position, which must not be cut off.
    f"write.metadata.metrics.column.{POSITION}": "full",
    # A batch is a snapshot or more: what is not removed is read and written again with each.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": str(3600 * 1000),
    "history.expire.min-snapshots-to-keep": "20",
}
"""The properties of every table that we make. Those of `history.expire` are read by each compaction, and may be changed."""
FIXED: Final = frozenset({"format-version", "write.merge.mode", "write.update.mode", "write.delete.mode", QUERY_PROPERTY})
"""The properties that the options of a target cannot have: initial defaults and the trust in a table rest on them."""

ROWS: Final = "merge"
"""The step that puts rows, by whatever statement: a batch that made the table finds its snapshot when it is repeated."""
FLOOR: Final = "floor"
FILL: Final = "fill"
"""The step that fills columns in the rows of one of several source tables."""
COLUMNS: Final = "columns"

_SUMMARY: Final = "spark.sql.iceberg.snapshot-property."
_BATCH: Final = "tidemark_batch"
_FLOORS: Final = "tidemark_floors"
_CONFLICTS: Final = (
    "CommitFailedException",
    "CommitStateUnknownException",
    # of a ValidationException, which also says that a statement is wrong
    "Found conflicting",
    "Found new conflicting",
    "Found concurrently added DV",
    "Cannot commit, missing data files",
    "Cannot commit, found new",
)


def summary_of(stamp: Stamp, step: str) -> dict[str, str]:
    """Return what the summary of a snapshot has of us."""
    return {STAMP: stamp.metadata, STEP: step}


def stamped(spark: SparkSession, summary: Mapping[str, str]) -> AbstractContextManager[None]:
    """Have the snapshot made inside carry this summary. No other thread may use the session."""
    return configured(spark, {f"{_SUMMARY}{key}": value for key, value in summary.items()})


def create(rows: DataFrame, table: str, stamp: Stamp, shape: TargetShape) -> None:
    """Make a table of the winners that are no deletes, in one commit."""
    writer = _partitioned(live_rows(rows).writeTo(table).using("iceberg"), shape.partition_by)
    for key, value in {**PROPERTIES, **shape.options, QUERY_PROPERTY: stamp.query_id}.items():
        writer = writer.tableProperty(key, value)
    with stamped(rows.sparkSession, summary_of(stamp, ROWS)):
        writer.create()


def append(rows: DataFrame, table: str, stamp: Stamp) -> None:
    """Append the winners, whose keys are not in the table."""
    with stamped(rows.sparkSession, summary_of(stamp, ROWS)):
        live_rows(rows).writeTo(table).append()


def merge(rows: DataFrame, table: str, keys: Sequence[str], columns: Columns, stamp: Stamp, pruned: str) -> None:
    """Merge rows by one guarded MERGE. `pruned` is a further condition on the target `t`, to skip files by."""
    rows.createOrReplaceTempView(_BATCH)
    statement = guarded_merge(table, _BATCH, keys, [name for name, _ in columns], pruned)
    with stamped(rows.sparkSession, summary_of(stamp, ROWS)):
        rows.sparkSession.sql(statement)


def _partitioned(writer: DataFrameWriterV2, names: Sequence[str]) -> DataFrameWriterV2:
    return writer.partitionedBy(*(F.col(quoted(name)) for name in names)) if names else writer


def replace(rows: DataFrame, table: str, summary: Mapping[str, str], partition_by: Sequence[str]) -> None:
    """Replace rows and columns of a table in one commit; `rows` may be read from it. It keeps its identity and its properties."""
    with stamped(rows.sparkSession, summary):
        _partitioned(rows.writeTo(table).using("iceberg"), partition_by).replace()


def delete_between(
    spark: SparkSession, table: str, spans: Mapping[str | None, tuple[str, str]], summary: Mapping[str, str], mark: str | None
) -> None:
    """Delete the rows of spans of positions, by source table; None is that of all rows. With `mark` set that column of theirs."""
    kinds = T.StructType([T.StructField(name, T.StringType()) for name in ("source", "first", "below")])
    spark.createDataFrame([(source, *span) for source, span in spans.items()], kinds).createOrReplaceTempView(_FLOORS)
    of_source = "" if None in spans else f"t.{SOURCE} = s.source AND "
    match = f"{of_source}t.{POSITION} >= s.first AND t.{POSITION} < s.below"
    with stamped(spark, summary):
        spark.sql(f"MERGE INTO {table} t USING {_FLOORS} s ON {match} {rows_taken(mark)}")


def is_conflict(error: Exception) -> bool:
    """Return whether somebody else (a compaction, a person) changed the table at the same time: a retry helps."""
    if not isinstance(error, (PySparkException, Py4JError)):
        return False
    whole = f"{error}\n{getattr(error, '_stackTrace', '')}"
    return any(name in whole for name in _CONFLICTS)
