"""The quarantine of a Delta sink: one table for the records of all tables."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from pyspark.sql import DataFrame, SparkSession

from schemas.errors import SinkError
from schemas.overriding import override
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.contract import Quarantine, QuarantineStep
from spark_jobs.sinks.delta.commit_identity import transaction_name
from spark_jobs.sinks.delta.commit_log import (
    newest_version,
    require_files,
    require_transaction,
    table_exists,
    was_written_by,
)
from spark_jobs.sinks.delta.writes import committing
from spark_jobs.sinks.stamp import Stamp


class DeltaQuarantine(Quarantine):
    """A Delta table of records. One thread appends at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    @override
    def append(self, rows: DataFrame, stamp: Stamp, step: QuarantineStep) -> None:
        with self._lock:
            with committing(rows.sparkSession, stamp, step):
                rows.write.format("delta").mode("append").option("mergeSchema", "true").save(str(self._path))
            transaction = transaction_name(stamp.query_id, stamp.table, step, stamp.redrive)
            require_transaction(self._path, transaction, stamp.batch_id)

    @override
    def records(self, spark: SparkSession) -> DataFrame | None:
        return spark.read.format("delta").load(str(self._path)) if table_exists(self._path) else None

    @override
    def remove(self, coordinates: DataFrame) -> int:
        before = newest_version(self._path, 0)
        coordinates.createOrReplaceTempView("tidemark_settled")
        (done,) = coordinates.sparkSession.sql(
            f"MERGE INTO delta.{quoted(str(self._path))} q USING tidemark_settled s "
            "ON q.topic = s.topic AND q.partition = s.partition AND q.offset = s.offset "
            "WHEN MATCHED THEN DELETE"
        ).collect()
        require_files(self._path, range(before + 1, newest_version(self._path, before) + 1))
        return int(done["num_deleted_rows"])

    @override
    def has_commit(self, query_id: str, batch_id: int) -> bool:
        try:
            return was_written_by(self._path, query_id, batch_id)
        except SinkError:  # somebody replaced it: none of its commits is ours
            return False
