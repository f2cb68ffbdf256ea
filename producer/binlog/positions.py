"""Where each event starts in its binlog file, in 64 bits.

Header positions (`log_pos`, the event's end) are 32 bits wide and wrap at 4 GiB, and MariaDB from 11.4 on
writes 0 in them inside a transaction. So offsets are reckoned by summing event sizes, and every header
position that is there is compared with the sum.

A sum holds only where the server sends every event of the file. It does not when the stream was started by
GTID: events whose GTIDs are known are left out. Then positions jump, always forward and only between event
groups:

* MySQL reports the position behind what it left out in a heartbeat, before the next event it sends;
* MariaDB sends nothing; the next event that opens a group, or is outside of groups, carries its own end.

So in a stream started by GTID a heartbeat, and the header of an event outside of groups, move the offset
forward; anything else that disagrees is a `DecodeError`. The first event with a position behind a real format
description may always jump: MariaDB keeps the START_ENCRYPTION event of an encrypted file to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from producer.binlog.event_types import (
    FORMAT_DESCRIPTION_EVENT,
    GTID_EVENTS,
    HEARTBEAT_EVENT,
    HEARTBEAT_EVENTS,
    MARIADB_BINLOG_CHECKPOINT_EVENT,
    MARIADB_GTID_EVENT,
    MARIADB_GTID_LIST_EVENT,
    PREVIOUS_GTIDS_EVENT,
    ROTATE_EVENT,
    STOP_EVENT,
)
from producer.binlog.events import parse_format_description, parse_heartbeat, parse_rotate
from producer.binlog.log_kernels import Bytes, Int, Ints, entry
from schemas.errors import DecodeError

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.binlog.framing import EventBatch

_WRAP: Final = 1 << 32
_FIRST_OFFSET: Final = 4
_BETWEEN_GROUPS: Final = GTID_EVENTS | {
    MARIADB_GTID_EVENT,
    MARIADB_GTID_LIST_EVENT,
    MARIADB_BINLOG_CHECKPOINT_EVENT,
    PREVIOUS_GTIDS_EVENT,
    ROTATE_EVENT,
    STOP_EVENT,
}


@entry
def _sum_plain(
    types: Bytes,
    flags: Ints,
    sizes: Ints,
    log_pos: Ints,
    begin: Int,
    offset: Int,
    offsets: Ints,
) -> int:
    """Sum from event `begin` on; the index of the first event that needs a closer look, or the count."""
    for index in range(begin, types.size):
        kind = types[index]
        if kind in (4, 15, 27, 41) or flags[index] & 0x20:
            return index
        end = offset + sizes[index]
        if log_pos[index] != 0 and (end & 0xFFFFFFFF) != log_pos[index]:
            return index
        offsets[index] = offset
        offset = end
    return types.size


class PositionTracker:
    """Keeps file name and 64-bit offset of one stream. Pure: fed with batches, asked for offsets.

    `file` and `offset` are where the next event starts, `server_version` is of the last format description.
    `by_gtid` says that the server may leave out events.
    """

    def __init__(self, file: str, offset: int, *, by_gtid: bool = False) -> None:
        self.file = file
        self.offset = offset
        self._by_gtid = by_gtid
        self._may_jump = by_gtid
        self.server_version = ""

    @property
    def text(self) -> str:
        """`file:offset`, for messages."""
        return f"{self.file}:{self.offset}"

    def advance(self, batch: EventBatch) -> npt.NDArray[np.int64]:
        """Start offset of every event of the batch, int64[count]; events the server made up do not advance.

        Fills in `batch.file` and `batch.offsets`. Raises `DecodeError` when a header position disagrees.
        """
        batch.file = self.file
        index = 0
        while index < batch.count:
            index = self._sum(batch, index)
            if index < batch.count:
                self._closer(batch, index)
                index += 1
        return batch.offsets

    def _sum(self, batch: EventBatch, begin: int) -> int:
        stop = int(
            _sum_plain(
                batch.types, batch.flags, batch.sizes, batch.log_pos, begin, self.offset, batch.offsets
            )
        )
        if stop > begin:
            self.offset = int(batch.offsets[stop - 1] + batch.sizes[stop - 1])
            self._may_jump = self._by_gtid
        return stop

    def _closer(self, batch: EventBatch, index: int) -> None:
        """One event that is made up, changes the file, or whose header does not fit the sum."""
        kind = int(batch.types[index])
        start, end = int(batch.starts[index]), int(batch.ends[index])
        if kind in HEARTBEAT_EVENTS:
            self._heartbeat(batch, index)
            batch.offsets[index] = self.offset
            return
        if kind == ROTATE_EVENT:
            self._rotate(batch, index)
            return
        if kind == FORMAT_DESCRIPTION_EVENT:
            self.server_version = parse_format_description(batch.memory, start, end).server_version
        if batch.is_artificial(index):
            batch.offsets[index] = self.offset
            return
        self._step(batch, index)
        if kind == FORMAT_DESCRIPTION_EVENT:
            self._may_jump = True

    def _rotate(self, batch: EventBatch, index: int) -> None:
        rotate = parse_rotate(batch.memory, int(batch.starts[index]), int(batch.ends[index]))
        if batch.is_artificial(index):
            batch.offsets[index] = self.offset
        else:
            self._step(batch, index)
        self._may_jump = self._by_gtid
        self.file, self.offset = rotate.file, rotate.position
        batch.file = batch.file or rotate.file

    def _heartbeat(self, batch: EventBatch, index: int) -> None:
        kind = int(batch.types[index])
        start, end = int(batch.starts[index]), int(batch.ends[index])
        heartbeat = parse_heartbeat(batch.memory, start, end, kind)
        reported = heartbeat.position if kind != HEARTBEAT_EVENT else int(batch.log_pos[index])
        if heartbeat.file != self.file or reported == 0:
            return
        if kind == HEARTBEAT_EVENT:
            reported = self._unwrap(reported, self.offset)
        if reported == self.offset:
            return
        if not self._by_gtid or reported < self.offset:
            reason = f"a heartbeat says {heartbeat.file}:{reported}, by the sum of event sizes it is {self.text}"
            raise DecodeError(reason, self.text)
        self.offset = reported

    def _step(self, batch: EventBatch, index: int) -> None:
        size = int(batch.sizes[index])
        reported = int(batch.log_pos[index])
        if reported and (self.offset + size) % _WRAP != reported:
            self._jump(int(batch.types[index]), size, reported)
        batch.offsets[index] = self.offset
        self.offset += size

    def _jump(self, kind: int, size: int, reported: int) -> None:
        allowed = self._may_jump and (kind in _BETWEEN_GROUPS or not self._by_gtid)
        start = self._unwrap(reported, self.offset + size) - size
        if not allowed or start - self.offset >= _WRAP // 2:
            reason = (
                f"an event of type {kind} says that it ends at {reported}; by the sum of event sizes it starts "
                f"at {self.offset} and is {size} bytes long"
            )
            raise DecodeError(reason, self.text)
        self.offset = start
        self._may_jump = self._by_gtid

    @staticmethod
    def _unwrap(low: int, at_least: int) -> int:
        """Return the smallest 64-bit position not below `at_least` whose low 32 bits are `low`."""
        return at_least + (low - at_least) % _WRAP
