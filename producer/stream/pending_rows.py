"""Pending rows: rows whose transaction may still be rolled back, kept until its end, or its XA COMMIT.

Events are kept as raw bytes, because what they become (position, GTID, time) is known only with the commit. They
stay in memory up to a limit shared by all groups of pending rows. Beyond it a group moves to a temporary file without
a name, which ends with the process. The log is not read a second time instead: that would need a second replication
connection with a server id of its own, and without GTIDs a server cannot find an offset beyond 4 GiB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

import numpy as np

from producer.binlog.framing import frame_events
from schemas.errors import DecodeError, RetriableSourceError
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.stream.offset import ResumePoint

MEMORY_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 4 << 20
_SIZE_AT: Final = 9
_OFFSET_AT: Final = 13


class PendingMemory:
    """The memory that all pending rows of one log reader share, in bytes."""

    def __init__(self, limit_bytes: int = MEMORY_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def reserve(self, size: int) -> bool:
        """Reserve memory; return False when there is none left."""
        if self.used_bytes + size > self._limit_bytes:
            return False
        self.used_bytes += size
        return True

    def free(self, size: int) -> None:
        """Release reserved memory."""
        self.used_bytes -= size


class PendingRows:
    """TABLE_MAP and rows events of one group, in log order. `close` ends it and frees memory or file."""

    def __init__(self, memory: PendingMemory) -> None:
        self._memory = memory
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._size = 0
        self._savepoints: list[tuple[str, int]] = []

    def add(self, batch: EventBatch, index: int, offset: int) -> None:
        """Keep one event. `offset` is its offset in the log file (48 bits are kept)."""
        start, end = int(batch.starts[index]), int(batch.ends[index])
        event = bytearray(batch.memory[start:end])
        event[_SIZE_AT : _SIZE_AT + 4] = (end - start).to_bytes(4, "little")  # the checksum is gone
        event[_OFFSET_AT : _OFFSET_AT + 6] = offset.to_bytes(6, "little")  # in place of log_pos and flags
        if self._file is None and not self._memory.reserve(len(event)):
            self._spill()
        if self._file is None:
            self._pieces.append(bytes(event))
        else:
            with _disk_space():
                self._file.write(event)
        self._size += len(event)

    def _spill(self) -> None:
        with _disk_space():
            self._file = tempfile.TemporaryFile(prefix="tidemark-pending-")  # noqa: SIM115 - `close` closes it
            self._file.writelines(self._pieces)
        self._pieces.clear()
        self._memory.free(self._size)

    def savepoint(self, name: str) -> None:
        """Set a savepoint here; one of the same name is replaced, as on the servers."""
        self._savepoints = [(known, size) for known, size in self._savepoints if known != name]
        self._savepoints.append((name, self._size))

    def roll_back_to(self, name: str) -> None:
        """Drop every event after the savepoint. Raises `DecodeError` for a savepoint that was not set."""
        known = [at for at, (savepoint, _) in enumerate(self._savepoints) if savepoint == name]
        if not known:
            reason = f"a ROLLBACK TO the savepoint {name!r}, which its transaction did not set"
            raise DecodeError(reason)
        self._truncate(self._savepoints[known[0]][1])
        del self._savepoints[known[0] + 1 :]

    def roll_back(self) -> None:
        """Drop every event."""
        self._truncate(0)
        self._savepoints.clear()

    def _truncate(self, size: int) -> None:
        if self._file is not None:
            with _disk_space():
                self._file.seek(size)
                self._file.truncate()
            self._size = size
            return
        while self._size > size:
            dropped = len(self._pieces.pop())
            self._size -= dropped
            self._memory.free(dropped)

    def batches(self) -> Iterator[EventBatch]:
        """Yield the events, with `offsets`; a batch is valid until the next. Memory: one block or one event."""
        for block in self._blocks():
            batch, consumed = frame_events(block, 0, block.size)
            if consumed != block.size:
                reason = "pending rows cannot be read back whole"
                raise DecodeError(reason)
            batch.offsets = batch.log_pos | batch.flags << 32
            yield batch

    def _blocks(self) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
        """Yield whole events, together about `_BLOCK_BYTES`."""
        block = bytearray()
        for event in self._pieces if self._file is None else _events(self._file):
            block += event
            if len(block) >= _BLOCK_BYTES:
                yield np.frombuffer(block, np.uint8)
                block = bytearray()
        if block:
            yield np.frombuffer(block, np.uint8)

    def close(self) -> None:
        """Drop everything, and free memory and file."""
        if self._file is None:
            self._memory.free(self._size)
        else:
            with suppress(OSError):  # what is not written yet is not needed any more
                self._file.close()
            self._file = None
        self._pieces.clear()
        self._size = 0


@contextmanager
def _disk_space() -> Iterator[None]:
    """Turn errors of a full folder into `RetriableSourceError`: a later attempt may find space."""
    try:
        yield
    except OSError as error:
        message = (
            "rows that wait for their commit need more than the memory reserved for them, and the folder of temporary files "
            f"(TMPDIR) cannot store them: {error}"
        )
        raise RetriableSourceError(message) from error


def _events(file: IO[bytes]) -> Iterator[bytes]:
    with _disk_space():
        file.seek(0)
    while head := file.read(_OFFSET_AT):
        yield head + file.read(int.from_bytes(head[_SIZE_AT:], "little") - _OFFSET_AT)


class DroppedRows(PendingRows):
    """Pending rows that keep nothing: rows that were published before, and that are read again only to reach an open XA PREPARE."""

    @override
    def add(self, batch: EventBatch, index: int, offset: int) -> None:
        pass

    @override
    def savepoint(self, name: str) -> None:
        pass

    @override
    def roll_back_to(self, name: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """The rows of an XA transaction that is prepared and not finished; its PREPARE group begins at `start`."""

    rows: PendingRows
    start: ResumePoint


class PreparedGroups:
    """The XA transactions that are prepared and not finished, by xid, in the order of their PREPARE."""

    def __init__(self) -> None:
        self._groups: dict[str, PreparedGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, xid: str, group: PreparedGroup) -> None:
        """Add the group of a PREPARE. The server lost an earlier one of the same xid in a crash; it is dropped."""
        self.drop(xid)
        self._groups[xid] = group

    def pop(self, xid: str) -> PendingRows | None:
        """Remove and return the rows of an XA COMMIT; None when its PREPARE was not read."""
        group = self._groups.pop(xid, None)
        return None if group is None else group.rows

    def drop(self, xid: str) -> None:
        """Drop the rows of an XA ROLLBACK."""
        rows = self.pop(xid)
        if rows is not None:
            rows.close()

    def close(self) -> None:
        """Drop all groups."""
        for xid in list(self._groups):
            self.drop(xid)

    def resume(self) -> ResumePoint | None:
        """Return where reading must resume to see every open PREPARE again; None without open ones."""
        return next((group.start for group in self._groups.values()), None)
