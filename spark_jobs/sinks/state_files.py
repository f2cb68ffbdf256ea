"""States beside the rows: a file per batch, for a sink that is not transactional."""

from __future__ import annotations

from typing import Final

from schemas.overriding import override
from spark_jobs.sinks.contract import StateStore
from spark_jobs.store.files import FileStore

KEPT_BATCHES: Final = 20


class StateFiles(StateStore):
    """The states of the last batches as files of one folder."""

    def __init__(self, files: FileStore, folder: str) -> None:
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
