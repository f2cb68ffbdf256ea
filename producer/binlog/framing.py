"""Bytes of a replication connection into arrays of events.

What enters: the packets of a COM_BINLOG_DUMP answer, as they come from the socket, in any cut. What leaves:
`EventBatch`es, arrays that say where each complete event of the buffer is. One kernel walks the packets;
no Python object is made per event. Packets that continue in the next one (events of 16 MiB and more) are
joined in place by a slower path.

Packet: 3 bytes length, 1 byte sequence, then status 0x00 and the event, or 0xff and an error, or 0xfe = end
of stream. Event: 19 bytes header (timestamp 4, type 1, server id 4, size 4, log_pos 4, flags 2), body, CRC32
if the format description says so. Source: MySQL "Replication Protocol" and "Binlog Event" pages, MySQL 9
`binlog_event.h`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from producer.binlog.event_types import (
    FLAG_ARTIFICIAL,
    FORMAT_DESCRIPTION_EVENT,
    HEARTBEAT_EVENTS,
    ROTATE_EVENT,
)
from producer.binlog.framing_kernels import (
    ALGORITHM,
    BAD_ALGORITHM,
    BAD_CHECKSUM,
    BAD_SEQUENCE,
    BAD_SIZE,
    BAD_STATUS,
    CRC_TABLES,
    EOF,
    ERROR,
    JOIN,
    NO_DESCRIPTION,
    SEQUENCE,
    copy_event,
    little_endian,
    scan_events,
    scan_packets,
)
from schemas.errors import DecodeError

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]

HEADER_SIZE: Final = 19
CHECKSUM_OFF: Final = 0
CHECKSUM_UNKNOWN: Final = 255
"""No format description was seen yet: an event ends with a checksum if its last four bytes are its CRC32."""

_PACKET_HEADER: Final = 4
_CONTINUED: Final = 0xFFFFFF
_MAX_EVENT: Final = 0x7FFFFFFF
_MIN_BUFFER: Final = 1 << 16

_REASONS: Final = {
    BAD_STATUS: "a packet of the replication stream begins with neither OK, ERR nor EOF",
    BAD_SEQUENCE: "packets of the replication stream are out of order",
    BAD_SIZE: "an event's size is not the size of its packet",
    BAD_CHECKSUM: "an event does not match its CRC32: it was damaged in the log file or on the way",
    BAD_ALGORITHM: "a format description names an unknown checksum algorithm",
    NO_DESCRIPTION: "the stream does not begin with a format description",
}


class EventColumns:
    """The reusable output arrays of the kernels: one slot per event."""

    __slots__ = ("arrays",)

    def __init__(self, capacity: int) -> None:
        self.arrays: tuple[Any, ...] = (
            np.empty(capacity, np.uint8),
            *(np.empty(capacity, np.int64) for _ in range(7)),
        )


@dataclass(slots=True)
class EventBatch:
    """Complete events of one read, all of one binlog file. Valid until the next read: the memory is reused.

    Arrays have `count` elements. `starts` is the first byte of the 19-byte header in `buf`, `ends` excludes
    the checksum, `sizes` is the event's length in the log file with it. `log_pos` is the header's 32-bit
    field, kept in int64. `offsets` is where each event starts in `file`, 64 bit; the stream fills in both (0
    and "" for the events inside a compressed payload, whose position is that of their payload).
    """

    buf: Bytes
    count: int
    types: Bytes
    starts: Ints
    ends: Ints
    timestamps: Ints
    server_ids: Ints
    sizes: Ints
    log_pos: Ints
    flags: Ints
    offsets: Ints = field(init=False)
    file: str = field(init=False, default="")
    memory: memoryview = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.memory = self.buf.data
        self.offsets = np.zeros(self.count, np.int64)

    @property
    def size(self) -> int:
        """The bytes of all events together."""
        return int(self.ends[self.count - 1] - self.starts[0]) if self.count else 0

    def is_artificial(self, index: int) -> bool:
        """Return whether the event is in no file: the server made it up for the connection."""
        kind = int(self.types[index])
        if kind in HEARTBEAT_EVENTS or self.flags[index] & FLAG_ARTIFICIAL:
            return True
        if kind == FORMAT_DESCRIPTION_EVENT:
            return bool(self.log_pos[index] == 0)
        return bool(kind == ROTATE_EVENT and self.timestamps[index] == 0)


def batch_of(buf: Bytes, columns: EventColumns, count: int) -> EventBatch:
    """Return the first `count` events of the kernels' output, as views."""
    views = [array[:count] for array in columns.arrays]
    return EventBatch(buf, count, *views)


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """The server's last packet: an error (code, text), or the end of the stream (code 0)."""

    code: int
    sql_state: str
    text: str


class PacketFramer:
    """A growing read buffer and the place of the first packet in it that was not handed out yet. No I/O.

    Use: write received bytes into `space()`, report how many by `filled(n)`, then take `next_batch()` until it
    is None. A batch's memory is overwritten by the next `space()`. Raises `DecodeError` without a position:
    the stream knows it. Memory: `capacity` bytes, for an event larger than that its size, given back after
    it.
    """

    def __init__(self, capacity: int = 2 << 20, events: int = 1 << 15, sequence: int = -1) -> None:
        self._capacity = max(capacity, _MIN_BUFFER)
        self._buf: Bytes = np.empty(self._capacity, np.uint8)
        self._start = 0
        self._fill = 0
        self._needed = 0
        self._state = np.array([sequence, CHECKSUM_UNKNOWN], np.int64)
        self._columns = EventColumns(events)
        self._refused: int = 0
        self.message: ServerMessage | None = None

    @property
    def checksum_algorithm(self) -> int:
        """The algorithm in force: 0 off, 1 CRC32, 255 not known yet."""
        return int(self._state[ALGORITHM])

    @property
    def pending_bytes(self) -> int:
        """Bytes received and not yet handed out."""
        return self._fill - self._start

    def space(self) -> memoryview:
        """Return where the next received bytes go; never empty."""
        pending = self.pending_bytes
        wanted = max(self._capacity, self._needed)
        if self._buf.size < wanted or (self._buf.size > wanted and pending <= wanted // 2):
            grown: Bytes = np.empty(wanted, np.uint8)
            grown[:pending] = self._buf[self._start : self._fill]
            self._buf, self._start, self._fill = grown, 0, pending
        elif pending == 0:
            self._start = self._fill = 0
        elif self._start and self._buf.size - self._fill < max(self._buf.size // 2, self._needed - pending):
            self._buf[:pending] = self._buf[self._start : self._fill]
            self._start, self._fill = 0, pending
        if self._fill == self._buf.size:
            self._needed = self._buf.size * 2
            return self.space()
        return self._buf.data[self._fill :]

    def filled(self, size: int) -> None:
        """Note that `size` bytes were written into `space()`."""
        self._fill += size

    def next_batch(self) -> EventBatch | None:
        """Return the next complete events, or None: more bytes are needed, or the server ended (`message`)."""
        if self._refused:
            raise DecodeError(_REASONS[self._refused])
        if self.message is not None:
            return None
        count, self._start, stop = scan_packets(
            self._buf, self._start, self._fill, self._state, CRC_TABLES, *self._columns.arrays
        )
        if stop in _REASONS:
            self._refused = stop
            if not count:
                raise DecodeError(_REASONS[stop])
        if count:
            self._needed = 0
            return batch_of(self._buf, self._columns, count)
        if stop == JOIN:
            return self._joined()
        if stop in (ERROR, EOF):
            self.message = self._server_message(stop)
        elif self._fill - self._start >= _PACKET_HEADER:
            self._needed = _PACKET_HEADER + int(little_endian(self._buf, self._start, 3))
        return None

    def _joined(self) -> EventBatch | None:
        """Return the event whose first packet is full and continues in the next ones, once all have arrived."""
        start = self._start
        first = start + _PACKET_HEADER + 1
        if self._fill - first < HEADER_SIZE:
            return None
        size = int(little_endian(self._buf, first + 9, 4))
        if not _CONTINUED - 1 <= size <= _MAX_EVENT:
            raise DecodeError(_REASONS[BAD_SIZE])
        packets = (size + 1) // _CONTINUED + 1
        self._needed = size + 1 + packets * _PACKET_HEADER
        if self._fill - start < self._needed:
            return None
        self._join_packets(start, size + 1, packets)
        refused = copy_event(self._buf, first, first + size, 0, self._state, CRC_TABLES, *self._columns.arrays)
        if refused:
            raise DecodeError(_REASONS[refused])
        self._start = start + self._needed
        self._needed = 0
        return batch_of(self._buf, self._columns, 1)

    def _join_packets(self, start: int, payload: int, packets: int) -> None:
        """Close the gaps that the headers of the continuing packets leave, in place."""
        sequence = int(self._buf[start + 3])
        source = start
        target = start + _PACKET_HEADER
        for index in range(packets):
            length = min(payload, _CONTINUED)
            if (
                int(little_endian(self._buf, source, 3)) != length
                or self._buf[source + 3] != (sequence + index) & 255
            ):
                raise DecodeError(_REASONS[BAD_SEQUENCE])
            source += _PACKET_HEADER
            if index:
                self._buf[target : target + length] = self._buf[source : source + length]
            source += length
            target += length
            payload -= length
        self._state[SEQUENCE] = (sequence + packets) & 255

    def _server_message(self, stop: int) -> ServerMessage:
        length = int(little_endian(self._buf, self._start, 3))
        begin = self._start + _PACKET_HEADER
        body = self._buf[begin : begin + length].tobytes()
        if stop == EOF:
            return ServerMessage(0, "", "")
        code = int.from_bytes(body[1:3], "little")
        state, text = "", body[3:]
        if text[:1] == b"#":
            state, text = text[1:6].decode("ascii", "replace"), text[6:]
        return ServerMessage(code, state, text.decode("utf-8", "replace"))


def frame_events(buf: Bytes, start: int, end: int, algorithm: int = CHECKSUM_OFF) -> tuple[EventBatch, int]:
    """Return the complete events in buf[start:end], which stand without packets around them; and the bytes consumed.

    Raises `DecodeError` when a size or checksum is wrong.
    """
    columns = EventColumns(max(1, (end - start) // HEADER_SIZE))
    state = np.array([-1, algorithm], np.int64)
    count, at, stop = scan_events(buf, start, end, state, CRC_TABLES, *columns.arrays)
    if stop in _REASONS:
        raise DecodeError(_REASONS[stop])
    return batch_of(buf, columns, count), at - start
