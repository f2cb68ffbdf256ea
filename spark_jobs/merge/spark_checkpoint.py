"""Spark's checkpoint of the query, read as files: the id of the query, the batches that began and ended, their offsets."""

from __future__ import annotations

import json
from typing import Any

from kafkaio.slices import Offsets
from schemas.errors import SinkError
from spark_jobs.sinks.contract import REMEDY, StateStore
from spark_jobs.store.files import LocalFiles


class SparkCheckpoint:
    """The checkpoint in one folder of a store."""

    def __init__(self, files: LocalFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    @property
    def query_id(self) -> str | None:
        """The id that Spark gave the query; None when there is no checkpoint yet."""
        try:
            return str(json.loads(self._files.read(f"{self._folder}/metadata"))["id"])
        except FileNotFoundError:
            return None

    @property
    def newest_begun(self) -> int:
        """The newest batch whose offsets Spark wrote down; -1 for none."""
        return self._newest("offsets")

    @property
    def newest_done(self) -> int:
        """The newest batch that ended; -1 for none."""
        return self._newest("commits")

    def offsets(self, batch_id: int) -> Offsets:
        """Return the end offsets of a batch, as Spark wrote them down before running it; none before the first batch.

        `SinkError` if the file is missing or damaged.
        """
        if batch_id < 0:
            return {}
        path = f"{self._folder}/offsets/{batch_id}"
        try:
            source = json.loads(self._files.read(path).splitlines()[2])
            return {topic: {int(p): int(o) for p, o in parts.items()} for topic, parts in source.items()}
        except (OSError, ValueError, IndexError, AttributeError) as error:
            where = self._files.location(path)
            message = f"cannot read the offsets of batch {batch_id} in {where}: {error}; the checkpoint is damaged"
            raise SinkError(message) from error

    def forget_offsets(self, batch_id: int) -> None:
        """Have Spark choose the offsets of a batch again. Only for a batch of which no attempt has written anything."""
        for name in (f".{batch_id}.crc", str(batch_id)):
            self._files.remove(f"{self._folder}/offsets/{name}")

    def remove_unfinished(self) -> None:
        """Remove what a job left that died while Spark wrote down the offsets of its first batch. Nobody may write meanwhile.

        Spark 4.1 starts no query whose first batch finds any file there, not even a temporary one (`should be empty on batch 0`).
        """
        if max(self.newest_begun, self.newest_done) >= 0:
            return
        for name in self._files.names(f"{self._folder}/offsets"):
            if name.startswith("."):
                self._files.remove(f"{self._folder}/offsets/{name}")

    def begin_empty_batch(self) -> None:
        """Have Spark run a batch without new records when the query starts. Nothing is done where a batch waits to be run again.

        Spark begins a batch only for new records. One whose offsets it finds written down, and that has not ended, it runs.
        """
        newest = self.newest_done
        if newest >= 0 and self.newest_begun == newest:
            self._files.write(f"{self._folder}/offsets/{newest + 1}", self._files.read(f"{self._folder}/offsets/{newest}"))

    def require_own_sink(self, progress: str, states: StateStore) -> None:
        """Refuse a sink that another checkpoint has written, or one newer than its checkpoint (`SinkError`).

        `progress` is the path of the progress file in the store. It may have been removed: the newest state is a second witness.
        """
        newest, query_id, where = states.newest(), self.query_id, self._files.location(self._folder)
        try:
            known: dict[str, Any] = json.loads(self._files.read(progress))
            if query_id != known.get("query_id"):
                message = f"the checkpoint {where} is not the one this sink was written with; {REMEDY}"
                raise SinkError(message)
            newest = max(newest, int(known.get("batch_id", -1)))
        except FileNotFoundError:
            pass
        except ValueError as error:
            message = f"{self._files.location(progress)} is damaged: {error}; {REMEDY}"
            raise SinkError(message) from error
        if self.newest_begun < newest:
            message = f"the sink has batch {newest}, its checkpoint {where} ends at {self.newest_begun}; {REMEDY}"
            raise SinkError(message)

    def _newest(self, kind: str) -> int:
        return max((int(name) for name in self._files.names(f"{self._folder}/{kind}") if name.isdigit()), default=-1)
