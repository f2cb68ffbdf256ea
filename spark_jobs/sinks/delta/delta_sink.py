"""The Delta sink: a folder of Delta tables, with state, quarantine and lock in its service folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

from pyspark.sql import SparkSession

from schemas.identity import SourceTable, TableName, Target
from schemas.overriding import override
from spark_jobs.sinks.contract import Capabilities, Quarantine, Sink, SinkTarget, StateStore
from spark_jobs.sinks.delta import writes
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.delta.target import DeltaTarget, KnownTable
from spark_jobs.sinks.delta.writer_choice import WriterRules
from spark_jobs.sinks.state_files import StateFiles
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.spark_errors import is_lost_executor
from spark_jobs.store.sink_layout import LOCK, STATE, SinkLayout

CAN: Final = Capabilities(
    modes=frozenset({"mirror"}),
    shapes=frozenset({"soft_delete", "partition_by", "options"}),
    worker_put=True,
    schema_changes=frozenset({"add.column", "alter.column.type", "drop.column"}),
    keeps_rows=True,
)


class DeltaSink(Sink):
    """Delta tables below a folder. `query_id` returns the id of the streaming query; it has one from its first batch on.

    By `rules` one of two writers puts rows; what delta-rs cannot write exactly is the JVM's in any case.
    """

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], rules: WriterRules | None = None) -> None:
        self._rules = rules or WriterRules()
        self._layout = layout
        self._query_id = query_id
        self._quarantine = DeltaQuarantine(layout.quarantine)
        self._known: dict[Target, KnownTable] = {}
        self._lock = Lock()

    @property
    @override
    def can(self) -> Capabilities:
        return CAN

    @override
    def exclusive(self, spark: SparkSession, wait_s: int) -> AbstractContextManager[None]:
        return self._layout.files.lock(spark, LOCK, wait_s)

    @override
    def states(self) -> StateStore:
        return StateFiles(self._layout.files, STATE)

    @override
    def quarantine(self) -> Quarantine:
        return self._quarantine

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        with self._lock:
            known = self._known.setdefault(name, KnownTable())
        return DeltaTarget(spark, self._path(name), name, tables, self._query_id(), known, self._rules, shape)

    @override
    def remove(self, name: Target) -> None:
        self.forget(name)
        path = self._path(name)
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def _path(self, name: Target) -> Path:
        named = TableName.parse(name.name)
        return self._layout.table(named.database, named.table)

    @override
    def forget(self, name: Target) -> None:
        with self._lock:
            self._known.pop(name, None)

    @override
    def passing(self, error: Exception) -> str | None:
        if writes.is_conflict(error):
            return "conflict"
        return "an executor was lost" if is_lost_executor(error) else None
