"""One batch of one table into its Delta table: the newest record per key, one guarded MERGE.

`winners` is steps 1 to 3 of the rule on columns (guard, floor, highest version per key, tombstones);
`append` and `merge` are step 4, `delete_below` and `sweep` are step 5. Every write can be repeated: Delta skips a commit it has
seen (`txnAppId`, `txnVersion`). `append` and `merge` have one name: a batch that made the table finds it there when it is repeated,
and would merge what a later step of it has deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from schemas.merge_rule import NOTHING, DueSweep, TableState
from spark_jobs.decode.avro_records import DELETED, ORIGIN, PARTITION, POSITION, REASON, SNAPSHOT, WRITER
from spark_jobs.sinks.delta.alter import FEATURE_OF_DATETIME, quoted

_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_MATERIALIZE: Final = "spark.databricks.delta.merge.materializeSource"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"
_SWEEPS: Final = "tidemark_sweeps"
_ROWS: Final = "merge"
_NUMBER: Final = "_tm_number "  # as the names of `decode`
_CONFLICTS: Final = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "io.delta.exceptions")
_TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 7 days",
    FEATURE_OF_DATETIME: "supported",  # a table without a DATETIME may get one
}


@dataclass(frozen=True, slots=True)
class Commit:
    """Who writes: the query and batch, and the progress that goes into the table's own commit.

    `redrive` names a write between two batches, of records that were in quarantine.
    """

    query_id: str
    batch_id: int
    table: str
    progress: Mapping[str, Any]
    redrive: str = ""

    @property
    def metadata(self) -> str:
        """The commit's userMetadata."""
        head: dict[str, Any] = {"tidemark": 1, "query_id": self.query_id, "batch_id": self.batch_id, "table": self.table}
        if self.redrive:
            head["redrive"] = self.redrive
        return json.dumps(head | dict(self.progress), separators=(",", ":"))


@contextmanager
def stamped(spark: SparkSession, commit: Commit) -> Iterator[None]:
    """Stamp the commits of this session, which no other thread may use, with the batch and its progress."""
    spark.conf.set(_USER_METADATA, commit.metadata)
    try:
        yield
    finally:
        spark.conf.unset(_USER_METADATA)


@contextmanager
def committing(spark: SparkSession, commit: Commit, step: str) -> Iterator[None]:
    """Stamp the one commit made inside, and have Delta skip it when the batch made it before.

    `step` keeps the writes of one batch apart: Delta skips what has a version it has seen of the same name.
    """
    settings = {
        _TXN_APP: f"tidemark/{commit.query_id}/{commit.table}/{step}{commit.redrive and '/'}{commit.redrive}",
        _TXN_VERSION: str(commit.batch_id),
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        with stamped(spark, commit):
            yield
    finally:
        for key in settings:
            spark.conf.unset(key)


@contextmanager
def held(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows computed once and kept on the executors while several writes need them.

    A local checkpoint, not a cache: MERGE refuses a cached source, and would materialise any other again.
    """
    spark = rows.sparkSession
    kept = rows.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    spark.conf.set(_MATERIALIZE, "none")
    try:
        yield kept
    finally:
        spark.conf.unset(_MATERIALIZE)
        _release(kept)


def _release(kept: DataFrame) -> None:
    """Free a local checkpoint now; the garbage collector would, later."""
    kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001


def admitted(records: DataFrame, before: TableState, after: TableState) -> DataFrame:
    """Good records that the guard of earlier batches and the floor let through."""
    condition = F.col(REASON).isNull()
    guard = [(partition, horizon) for partition, horizon in before.guard.items() if horizon > NOTHING]
    if guard:
        horizon = F.lit(NOTHING)
        for partition, limit in guard:
            horizon = F.when(F.col(PARTITION) == F.lit(partition), F.lit(limit)).otherwise(horizon)
        condition &= ~F.col(SNAPSHOT) | (F.col(POSITION) >= horizon)
    if after.floor > NOTHING:
        condition &= F.col(POSITION) >= F.lit(after.floor)
    return records.where(condition)


def winners(records: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The newest record of each key; a create wins over a delete at one and the same position."""
    key = [F.col(quoted(name)) for name in keys]
    newest = Window.partitionBy(*key).orderBy(F.col(POSITION).desc(), F.col(DELETED).asc())
    numbered = records.withColumn(_NUMBER, F.row_number().over(newest))
    kept = numbered.where(F.col(_NUMBER) == F.lit(1))
    return kept.drop(_NUMBER, *ORIGIN, REASON, WRITER)


def not_overtaken(records: DataFrame, tombstones: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Winners that no tombstone of an earlier batch has overtaken; at a tie the create stands."""
    older = F.col(f"r.{POSITION}") < F.col(f"t.{POSITION}")
    return records.alias("r").join(tombstones.alias("t"), _same_key("r", "t", keys) & older, "left_anti")


def append(rows: DataFrame, path: str, commit: Commit) -> None:
    """Rows whose keys are not in the table; the first ones create it."""
    columns = [quoted(name) for name in rows.columns if name not in (DELETED, POSITION)]
    live = rows.where(~F.col(DELETED)).select(*columns, POSITION)
    writer = live.write.format("delta").mode("append").options(**_TABLE_PROPERTIES)
    with committing(rows.sparkSession, commit, _ROWS):
        writer.save(path)


def merge(
    rows: DataFrame, path: str, keys: Sequence[str], columns: Sequence[str], commit: Commit, pruning: str
) -> None:
    """One MERGE, guarded: a row changes only for a newer one.

    `pruning` is a further condition on the target `t` that every matching row meets, to skip files by.
    """
    spark = rows.sparkSession
    view = "tidemark_batch"
    rows.createOrReplaceTempView(view)
    match = " AND ".join(
        [f"t.{quoted(name)} = s.{quoted(name)}" for name in keys] + ([pruning] if pruning else [])
    )
    names = [quoted(name) for name in (*columns, POSITION)]
    newer, deleted = f"s.{POSITION} > t.{POSITION}", f"s.{quoted(DELETED)}"
    statement = f"""
        MERGE INTO delta.{quoted(path)} t USING {view} s ON {match}
        WHEN MATCHED AND {deleted} AND {newer} THEN DELETE
        WHEN MATCHED AND {newer} THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in names)}
        WHEN NOT MATCHED AND NOT {deleted} THEN
            INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})
    """  # noqa: S608 - quoted names only
    with committing(spark, commit, _ROWS):
        spark.sql(statement)


def delete_below(spark: SparkSession, path: str, floor: str, commit: Commit) -> None:
    """Delete the rows that are older than a floor."""
    with committing(spark, commit, "floor"):
        spark.sql(f"DELETE FROM delta.{quoted(path)} WHERE {POSITION} < '{floor}'")  # noqa: S608 - a position


def sweep(
    spark: SparkSession, path: str, due: Sequence[DueSweep], types: Mapping[str, T.DataType], commit: Commit
) -> None:
    """Delete the rows that sweeps take. `types` are those of the table's columns, by lower-case name.

    Sweeps of the same columns are one MERGE, which deletes a row once however many sweeps take it.
    """
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for one in due:
        columns = tuple(name.lower() for name in one.sweep.columns)
        groups.setdefault(columns, []).extend((*value, one.below) for value in one.sweep.values)
    for columns, values in groups.items():
        names = [f"v{number}" for number in range(len(columns))]
        texts = spark.createDataFrame(values, T.StructType([T.StructField(n, T.StringType()) for n in (*names, "below")]))
        typed = [_of_text(F.col(n), types[column]).alias(n) for n, column in zip(names, columns, strict=True)]
        texts.select(*typed, "below").groupBy(*names).agg(F.max("below").alias("below")).createOrReplaceTempView(_SWEEPS)
        match = " AND ".join(f"t.{quoted(c)} = s.{n}" for n, c in zip(names, columns, strict=True))
        statement = f"""
            MERGE INTO delta.{quoted(path)} t USING {_SWEEPS} s ON {match} AND t.{POSITION} < s.below
            WHEN MATCHED THEN DELETE
        """
        with committing(spark, commit, "/".join(("sweep", *columns))):
            spark.sql(statement)


def _of_text(text: Column, kind: T.DataType) -> Column:
    """A value of a sweep as the column has it; NULL, which takes no row, for one that the column can't have."""
    return F.unhex(text) if isinstance(kind, T.BinaryType) else text.try_cast(kind)


def compact(spark: SparkSession, path: str, commit: Commit) -> None:
    """Make the small files that batches leave into large ones; the rows stay what they are."""
    with stamped(spark, commit):
        spark.sql(f"OPTIMIZE delta.{quoted(path)}")


def is_conflict(error: Exception) -> bool:
    """Whether somebody else (OPTIMIZE, a person) changed the table at the same time: trying again helps."""
    return any(name in str(error) for name in _CONFLICTS)


def is_lost_executor(error: Exception) -> bool:
    """Whether rows that were `held` went with the executor that had them: computing them again helps."""
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(error) or "Checkpoint block rdd_" in str(error)


def _same_key(left: str, right: str, keys: Sequence[str]) -> Column:
    condition = F.lit(True)
    for name in keys:
        condition &= F.col(f"{left}.{quoted(name)}") == F.col(f"{right}.{quoted(name)}")
    return condition
