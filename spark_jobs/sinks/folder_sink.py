"""What sinks have in common that keep state, quarantine and lock in a folder of a file system: their service folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from schemas.identity import TableName, Target
from schemas.overriding import override
from spark_jobs.sinks.contract import Quarantine, Sink, StateStore
from spark_jobs.spark_errors import is_lost_executor
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import LOCK, STATE, SinkLayout

KEPT_BATCHES: Final = 20
_Known = TypeVar("_Known")


class StateFiles(StateStore):
    """The states of the last batches as files of one folder."""

    def __init__(self, files: LocalFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    @override
    def newest(self) -> int:
        names = (name.removesuffix(".json") for name in self._files.names(self._folder) if name.endswith(".json"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    @override
    def load(self, batch_id: int) -> str:
        return self._files.read(self._path(batch_id))

    @override
    def save(self, batch_id: int, text: str) -> None:
        self._files.write(self._path(batch_id), text)
        self._files.remove(self._path(batch_id - KEPT_BATCHES))

    @override
    def location(self, batch_id: int) -> str:
        return self._files.location(self._path(batch_id))

    def _path(self, batch_id: int) -> str:
        return f"{self._folder}/{batch_id}.json"


class FolderSink(Sink):
    """A sink with a layout and a quarantine. `query_id` returns the id of the streaming query; it has one from its first batch on.

    `remove` removes the folder of a target, which is for sinks whose targets are folders.
    """

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], quarantine: Quarantine) -> None:
        self._layout = layout
        self._query_id = query_id
        self._quarantine = quarantine
        self._known: dict[Target, Any] = {}
        self._lock = Lock()

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
    def forget(self, name: Target) -> None:
        with self._lock:
            self._known.pop(name, None)

    @override
    def passing(self, error: Exception) -> str | None:
        return "an executor was lost" if is_lost_executor(error) else None

    def _known_of(self, name: Target, nothing: Callable[[], _Known]) -> _Known:
        """Return what is known of a target until a step of it fails."""
        with self._lock:
            known: _Known = self._known.setdefault(name, nothing())
            return known

    def _path(self, name: Target) -> Path:
        """Return the folder of a target."""
        named = TableName.parse(name.name)
        return self._layout.table(named.database, named.table)
