"""What sinks have in common that keep state, quarantine and lock in a folder of a file system: their service folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from schemas.identity import TableName, Target
from schemas.overriding import override
from spark_jobs.sinks.contract import Quarantine, Sink, StateStore
from spark_jobs.sinks.state_files import StateFiles
from spark_jobs.spark_errors import is_lost_executor
from spark_jobs.store.sink_layout import LOCK, STATE, SinkLayout


class FolderSink(Sink):
    """A sink with a layout and a quarantine. `query_id` returns the id of the streaming query; it has one from its first batch on.

    `remove` removes the folder of a target, which is for sinks whose targets are folders.
    """

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], quarantine: Quarantine) -> None:
        self._layout = layout
        self._query_id = query_id
        self._quarantine = quarantine

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
    def remove(self, name: Target) -> None:
        self.forget(name)
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path(name))

    @override
    def passing(self, error: Exception) -> str | None:
        return "an executor was lost" if is_lost_executor(error) else None

    def _path(self, name: Target) -> Path:
        """Return the folder of a target."""
        named = TableName.parse(name.name)
        return self._layout.table(named.database, named.table)
