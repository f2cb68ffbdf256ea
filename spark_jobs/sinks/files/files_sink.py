"""The sink of changelogs in files: a folder per target, with state, quarantine and lock in its service folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from schemas.identity import SourceTable, TableName, Target
from schemas.overriding import override
from spark_jobs.sinks.changelog_only import CHANGELOG_ONLY
from spark_jobs.sinks.contract import Capabilities, Quarantine, Sink, SinkTarget, StateStore
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.files.files_target import FilesTarget
from spark_jobs.sinks.state_files import StateFiles
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.spark_errors import is_lost_executor
from spark_jobs.store.sink_layout import LOCK, STATE, SinkLayout


class FilesSink(Sink):
    """Changelogs below a folder, in one format. `query_id` returns the id of the streaming query, from its first batch on."""

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], form: str) -> None:
        self._layout = layout
        self._query_id = query_id
        self._form = form
        self._quarantine = DeltaQuarantine(layout.quarantine)

    @property
    @override
    def can(self) -> Capabilities:
        return CHANGELOG_ONLY

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
        return FilesTarget(spark, self._path(name), name, tables, self._query_id(), self._form)

    @override
    def remove(self, name: Target) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path(name))

    @override
    def forget(self, name: Target) -> None:
        """Do nothing: manifests are read again each time."""

    @override
    def passing(self, error: Exception) -> str | None:
        return "an executor was lost" if is_lost_executor(error) else None

    def _path(self, name: Target) -> Path:
        named = TableName.parse(name.name)
        return self._layout.table(named.database, named.table)
