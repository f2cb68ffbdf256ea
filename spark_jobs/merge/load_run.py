"""The work of a load in a Python worker: the rows of a chunk are read from the source, decoded, and put as they come."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import (
    DecodeError,
    LoadImpossibleError,
    RegistryError,
    SinkError,
    UnsupportedTypeError,
    result_or_error,
)
from spark_jobs.arrow.arrow_decoder import REASONS
from spark_jobs.arrow.newest import compared, not_overtaken
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.loads.source_of_chunks import ChunkSource
from spark_jobs.merge.worker_run import decoder_of, tombstones_of
from spark_jobs.merge.worker_task import LoadDone, LoadFailure, LoadTask
from spark_jobs.sinks.arrival import require_all

_LASTING: Final = (UnsupportedTypeError, RegistryError, DecodeError, SinkError)
_NO_PARTITION: Final = 0


class ReadingError(Exception):
    """The source did not give all rows. With `retry` another attempt may succeed."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}".partition("\n")[0])
        self.retry = not isinstance(cause, LoadImpossibleError)


def outcome(task: LoadTask, source: ChunkSource) -> LoadDone | LoadFailure:
    """Carry out a load, and return what was done, or why it was not."""
    done = result_or_error(lambda: _done(task, source))
    if isinstance(done, Exception):
        has_written = result_or_error(task.put.has_written)
        return _failure(done, may_have_written=isinstance(has_written, Exception) or has_written)  # what is not known may be
    return done


def replaced(task: LoadTask) -> LoadFailure | None:
    """Replace the older rows of a load that was carried out; return why that failed, None if it did not."""
    error = result_or_error(lambda: require_all(f"rows to {task.kept}", task.older, task.put.replace_older(task.kept)))
    return None if error is None else _failure(error, may_have_written=True)


def _failure(error: Exception, *, may_have_written: bool) -> LoadFailure:
    if isinstance(error, ReadingError):
        return LoadFailure(str(error), error.retry, may_have_written)
    reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    return LoadFailure(reason, not isinstance(error, _LASTING), may_have_written)


def _done(task: LoadTask, source: ChunkSource) -> LoadDone:
    chunk = _Chunk(task)
    done = task.put.run(chunk.blocks(source), task.load.low.text, task.kept)
    return LoadDone(chunk.rows, done.rows, done.key_range, done.is_known, done.older, done.has_added)


class _Chunk:
    """The rows of a load. `rows` counts those that were read so far."""

    def __init__(self, task: LoadTask) -> None:
        self._task = task
        self._decoder = decoder_of(task.decoder)
        self._low = task.load.low.text
        kinds = pa.schema([*(self._decoder.schema.field(name) for name in task.keys), pa.field(POSITION, pa.string())])
        self._tombstones = self._newer(tombstones_of(task.tombstones, kinds))
        self._names = [name for name in self._decoder.schema.names if name not in (POSITION, DELETED)]
        self.rows = 0

    def blocks(self, source: ChunkSource) -> Iterator[pa.Table]:
        """Yield the rows that no tombstone has overtaken, block by block."""
        for keys, values in _read(source, self._task):
            if len(values):
                rows = self._rows(keys, values)
                self.rows += rows.num_rows
                yield rows if self._tombstones is None else not_overtaken(rows, self._tombstones, self._task.keys)

    def _rows(self, keys: pa.Array, values: pa.Array) -> pa.Table:
        decoder = self._decoder
        judged = decoder.judge(keys, values, is_snapshot=True, partitions=_NO_PARTITION)
        if not judged.good.all():
            code = int(judged.reasons[~judged.good][0])
            raise DecodeError(f"a row of the chunk cannot be merged: {REASONS.get(code, 'it is none')}")
        if judged.deleted.any() or compared(judged, self._low).any():
            raise DecodeError(f"a row of the chunk has another version than {self._low}")
        columns = decoder.columns(judged, np.arange(len(values)), self._names)
        return columns.append_column(POSITION, pa.repeat(pa.scalar(self._low, pa.string()), len(values)))

    def _newer(self, tombstones: pa.Table | None) -> pa.Table | None:
        """Return the tombstones that may stop a row of this version."""
        if tombstones is None:
            return None
        found = tombstones.filter(pc.greater(tombstones[POSITION], self._low))
        return found if found.num_rows else None


def _read(source: ChunkSource, task: LoadTask) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield what the source gives; whatever it raises is a `ReadingError`, and nothing else is."""
    blocks = result_or_error(lambda: source.read(*task.names, task.load))
    while True:
        block = blocks if isinstance(blocks, Exception) else result_or_error(partial(next, blocks, None))
        if isinstance(block, Exception):
            raise ReadingError(block) from block
        if block is None:
            return
        yield block
