"""Rows whose fate is not known yet: kept as they stand in the log until their group's end, or their XA COMMIT, says it.

Events are kept as raw bytes, because what they become (position, GTID, time) is known only with the commit. They
stay in memory up to a limit shared by all held groups; beyond it a group moves to a temporary file without a
name, gone with the process. A file and not a second look into the log: that would need a second replication
connection with a server id of its own, and a place beyond 4 GiB cannot be named without GTIDs.
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

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.stream.offset import ResumePoint

MEMORY_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 4 << 20
_SIZE_AT: Final = 9
_OFFSET_AT: Final = 13


class Holding:
    """The memory that all held groups of one log reader share, in bytes."""

    def __init__(self, limit_bytes: int = MEMORY_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.memory_bytes = 0

    def take(self, size: int) -> bool:
        """Reserve memory; False when there is none left."""
        if self.memory_bytes + size > self._limit_bytes:
            return False
        self.memory_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Release reserved memory."""
        self.memory_bytes -= size


class HeldRows:
    """TABLE_MAP and rows events of one group, in log order. Ends with `close`, which frees memory or file."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._size = 0
        self._savepoints: list[tuple[str, int]] = []

    def add(self, batch: EventBatch, index: int, offset: int) -> None:
        """Keep one event. `offset` is where it stands in its file (48 bits are kept)."""
        start, end = int(batch.starts[index]), int(batch.ends[index])
        event = bytearray(batch.memory[start:end])
        event[_SIZE_AT : _SIZE_AT + 4] = (end - start).to_bytes(4, "little")  # the checksum is gone
        event[_OFFSET_AT : _OFFSET_AT + 6] = offset.to_bytes(6, "little")  # in place of log_pos and flags
        if self._file is None and not self._holding.take(len(event)):
            self._spill()
        if self._file is None:
            self._pieces.append(bytes(event))
        else:
            with _room():
                self._file.write(event)
        self._size += len(event)

    def _spill(self) -> None:
        with _room():
            self._file = tempfile.TemporaryFile(prefix="tidemark-held-")  # noqa: SIM115 - `close` closes it
            self._file.writelines(self._pieces)
        self._pieces.clear()
        self._holding.give_back(self._size)

    def savepoint(self, name: str) -> None:
        """Remember this place; a name used before is forgotten, as the servers do."""
        self._savepoints = [(known, size) for known, size in self._savepoints if known != name]
        self._savepoints.append((name, self._size))

    def roll_back_to(self, name: str) -> None:
        """Forget every event after the savepoint. Raises `DecodeError` for a savepoint that was not set."""
        known = [at for at, (savepoint, _) in enumerate(self._savepoints) if savepoint == name]
        if not known:
            reason = f"a ROLLBACK TO the savepoint {name!r}, which its transaction did not set"
            raise DecodeError(reason)
        self._truncate(self._savepoints[known[0]][1])
        del self._savepoints[known[0] + 1 :]

    def roll_back(self) -> None:
        """Forget every event."""
        self._truncate(0)
        self._savepoints.clear()

    def _truncate(self, size: int) -> None:
        if self._file is not None:
            with _room():
                self._file.seek(size)
                self._file.truncate()
            self._size = size
            return
        while self._size > size:
            dropped = len(self._pieces.pop())
            self._size -= dropped
            self._holding.give_back(dropped)

    def batches(self) -> Iterator[EventBatch]:
        """The events, `offsets` filled in; a batch is valid until the next. Memory: one block or one event."""
        for block in self._blocks():
            batch, consumed = frame_events(block, 0, block.size)
            if consumed != block.size:
                reason = "rows held for their commit cannot be read back whole"
                raise DecodeError(reason)
            batch.offsets = batch.log_pos | batch.flags << 32
            yield batch

    def _blocks(self) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
        """Whole events, together about `_BLOCK_BYTES`."""
        block = bytearray()
        for event in self._pieces if self._file is None else _events(self._file):
            block += event
            if len(block) >= _BLOCK_BYTES:
                yield np.frombuffer(block, np.uint8)
                block = bytearray()
        if block:
            yield np.frombuffer(block, np.uint8)

    def close(self) -> None:
        """Forget everything."""
        if self._file is None:
            self._holding.give_back(self._size)
        else:
            with suppress(OSError):  # what is not written yet is wanted no more
                self._file.close()
            self._file = None
        self._pieces.clear()
        self._size = 0


@contextmanager
def _room() -> Iterator[None]:
    """A folder without room is told in words, and may have some when it is tried again."""
    try:
        yield
    except OSError as error:
        message = (
            "rows that wait for their commit are more than memory is kept for, and the folder of temporary files (TMPDIR) cannot "
            f"take them: {error}"
        )
        raise RetriableSourceError(message) from error


def _events(file: IO[bytes]) -> Iterator[bytes]:
    with _room():
        file.seek(0)
    while head := file.read(_OFFSET_AT):
        yield head + file.read(int.from_bytes(head[_SIZE_AT:], "little") - _OFFSET_AT)


class DroppedRows(HeldRows):
    """Holds nothing: rows that were published before, met again while the log is read back to an XA PREPARE."""

    def add(self, batch: EventBatch, index: int, offset: int) -> None:
        """Drop one event."""

    def savepoint(self, name: str) -> None:
        """Nothing to remember."""

    def roll_back_to(self, name: str) -> None:
        """Nothing to forget."""


@dataclass(frozen=True, slots=True)
class PreparedGroup:
    """The rows of an XA transaction that is prepared and not finished; its PREPARE group begins at `start`."""

    rows: HeldRows
    start: ResumePoint


class PreparedGroups:
    """The XA transactions that are prepared and not finished, by xid, in the order of their PREPARE."""

    def __init__(self) -> None:
        self._groups: dict[str, PreparedGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, xid: str, group: PreparedGroup) -> None:
        """A PREPARE. An xid that is here already was lost by the server in a crash and is used again."""
        self.drop(xid)
        self._groups[xid] = group

    def take(self, xid: str) -> HeldRows | None:
        """The rows of an XA COMMIT; None when its PREPARE was not read."""
        group = self._groups.pop(xid, None)
        return None if group is None else group.rows

    def drop(self, xid: str) -> None:
        """An XA ROLLBACK."""
        rows = self.take(xid)
        if rows is not None:
            rows.close()

    def close(self) -> None:
        """Forget all of them."""
        for xid in list(self._groups):
            self.drop(xid)

    def resume(self) -> ResumePoint | None:
        """Where reading must begin again to meet every open PREPARE; None without open ones."""
        return next((group.start for group in self._groups.values()), None)
