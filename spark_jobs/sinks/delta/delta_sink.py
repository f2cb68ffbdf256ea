"""The Delta sink: a folder of Delta tables, with state, quarantine and lock in its service folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from schemas.identity import SourceTable, Target
from schemas.overriding import override
from spark_jobs.sinks.contract import OldFilesSink
from spark_jobs.sinks.delta import writes
from spark_jobs.sinks.delta.commit_log import is_of_query, table_exists
from spark_jobs.sinks.delta.old_files import remove_old_files
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.delta.target import DeltaTarget, KnownTable
from spark_jobs.sinks.delta.writer_choice import WriterRules
from spark_jobs.sinks.folder_sink import FolderSink
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.sinks.worker_writes import WorkerSink
from spark_jobs.store.sink_layout import SinkLayout


class DeltaSink(FolderSink, WorkerSink, OldFilesSink):
    """Delta tables below a folder.

    By `rules` one of two writers puts rows; what delta-rs cannot write exactly is the JVM's in any case.
    """

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], rules: WriterRules | None = None) -> None:
        super().__init__(layout, query_id, DeltaQuarantine(layout.quarantine))
        self._rules = rules or WriterRules()

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> DeltaTarget:
        known = self._known_of(name, KnownTable)
        return DeltaTarget(spark, self._path(name), name, tables, self._query_id(), known, self._rules, shape)

    @override
    def remove_old_files(self, spark: SparkSession, name: Target) -> bool:
        path = self._path(name)
        if not table_exists(path) or not is_of_query(path, self._query_id()):
            return False
        remove_old_files(spark, str(path))
        return True

    @override
    def passing(self, error: Exception) -> str | None:
        if writes.is_conflict(error):
            return "conflict"
        return super().passing(error)
