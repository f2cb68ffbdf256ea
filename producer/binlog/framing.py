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

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba import njit

from producer.binlog.event_types import (
    FLAG_ARTIFICIAL,
    FORMAT_DESCRIPTION_EVENT,
    HEARTBEAT_EVENTS,
    ROTATE_EVENT,
)
from schemas.errors import DecodeError

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Ints = npt.NDArray[np.int64]

HEADER_SIZE: Final = 19
CHECKSUM_SIZE: Final = 4
CHECKSUM_OFF: Final = 0
CHECKSUM_CRC32: Final = 1
CHECKSUM_UNKNOWN: Final = 255
"""No format description was seen yet: an event ends with a checksum if its last four bytes are its CRC32."""

_PACKET_HEADER: Final = 4
_CONTINUED: Final = 0xFFFFFF
_MAX_EVENT: Final = 0x7FFFFFFF
_MIN_BUFFER: Final = 1 << 16

# Why the kernel stopped.
_MORE: Final = 0
_FULL: Final = 1
_BOUNDARY: Final = 2
_JOIN: Final = 3
_ERROR: Final = 4
_EOF: Final = 5
_BAD_STATUS: Final = 6
_BAD_SEQUENCE: Final = 7
_BAD_SIZE: Final = 8
_BAD_CHECKSUM: Final = 9
_BAD_ALGORITHM: Final = 10
_NO_DESCRIPTION: Final = 11
_EVENT: Final = -1

_REASONS: Final = {
    _BAD_STATUS: "a packet of the replication stream begins with neither OK, ERR nor EOF",
    _BAD_SEQUENCE: "packets of the replication stream are out of order",
    _BAD_SIZE: "an event's size is not the size of its packet",
    _BAD_CHECKSUM: "an event does not match its CRC32: it was damaged in the log file or on the way",
    _BAD_ALGORITHM: "a format description names an unknown checksum algorithm",
    _NO_DESCRIPTION: "the stream does not begin with a format description",
}

# Slots of the kernel's state: the next packet's sequence number (-1 = any), the checksum algorithm.
_SEQUENCE: Final = 0
_ALGORITHM: Final = 1


def _crc_tables() -> npt.NDArray[np.uint32]:
    """Return the sixteen tables of the slicing-by-16 CRC32 (polynomial 0xEDB88320), uint32[16, 256]."""
    tables = np.zeros((16, 256), np.uint32)
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        tables[0, value] = crc
    for index in range(1, 16):
        before = tables[index - 1].astype(np.int64)
        tables[index] = (before >> 8) ^ tables[0][before & 255].astype(np.int64)
    return tables


_TABLES: Final = _crc_tables()


@njit("uint32(uint8[::1], int64, int64, uint32[:, ::1])", nogil=True, cache=True)
def crc32(buf: Bytes, start: int, end: int, tables: npt.NDArray[np.uint32]) -> np.uint32:
    """CRC32 of buf[start:end], the same as zlib's."""
    crc = np.uint32(0xFFFFFFFF)
    at = np.uint64(start)
    stop = np.uint64(end)
    step = np.uint64(16)
    while at + step <= stop:
        low = np.uint32(
            np.uint32(buf[at])
            | np.uint32(buf[at + np.uint64(1)]) << np.uint32(8)
            | np.uint32(buf[at + np.uint64(2)]) << np.uint32(16)
            | np.uint32(buf[at + np.uint64(3)]) << np.uint32(24)
        )
        low ^= crc
        crc = (
            tables[15, low & np.uint32(255)]
            ^ tables[14, (low >> np.uint32(8)) & np.uint32(255)]
            ^ tables[13, (low >> np.uint32(16)) & np.uint32(255)]
            ^ tables[12, low >> np.uint32(24)]
            ^ tables[11, buf[at + np.uint64(4)]]
            ^ tables[10, buf[at + np.uint64(5)]]
            ^ tables[9, buf[at + np.uint64(6)]]
            ^ tables[8, buf[at + np.uint64(7)]]
            ^ tables[7, buf[at + np.uint64(8)]]
            ^ tables[6, buf[at + np.uint64(9)]]
            ^ tables[5, buf[at + np.uint64(10)]]
            ^ tables[4, buf[at + np.uint64(11)]]
            ^ tables[3, buf[at + np.uint64(12)]]
            ^ tables[2, buf[at + np.uint64(13)]]
            ^ tables[1, buf[at + np.uint64(14)]]
            ^ tables[0, buf[at + np.uint64(15)]]
        )
        at += step
    while at < stop:
        crc = tables[0, (crc ^ np.uint32(buf[at])) & np.uint32(255)] ^ (crc >> np.uint32(8))
        at += np.uint64(1)
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


@njit("int64(uint8[::1], int64, int64)", nogil=True, cache=True)
def _little(buf: Bytes, at: int, size: int) -> int:
    value = np.int64(0)
    for index in range(size):
        value |= np.int64(buf[at + index]) << np.int64(8 * index)
    return value  # type: ignore[return-value]


@njit("boolean(uint8[::1], int64, int64, uint32[:, ::1])", nogil=True, cache=True)
def _checksum_matches(buf: Bytes, start: int, end: int, tables: npt.NDArray[np.uint32]) -> bool:
    return bool(np.int64(crc32(buf, start, end - 4, tables)) == _little(buf, end - 4, 4))


_COLUMNS: Final = (
    "uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1]"
)


@njit(
    f"int64(uint8[::1], int64, int64, int64, int64[::1], uint32[:, ::1], {_COLUMNS})", nogil=True, cache=True
)
def _copy_event(
    buf: Bytes,
    start: int,
    end: int,
    index: int,
    state: Ints,
    tables: npt.NDArray[np.uint32],
    types: Bytes,
    starts: Ints,
    ends: Ints,
    timestamps: Ints,
    server_ids: Ints,
    sizes: Ints,
    log_pos: Ints,
    flags: Ints,
) -> int:
    """Check the event in buf[start:end] and write it to slot `index`; 0, or the reason it was not taken."""
    size = end - start
    if size < 19 or _little(buf, start + 9, 4) != size:
        return _BAD_SIZE
    kind = buf[start + 4]
    algorithm = state[1]
    if kind == 15:
        if size < 24:
            return _BAD_SIZE
        algorithm = np.int64(buf[end - 5])
        if algorithm > 1:
            return _BAD_ALGORITHM
    elif algorithm == 255 and kind not in (4, 27, 41):
        return _NO_DESCRIPTION
    body_end = end
    if algorithm == 1:
        if size < 23:
            return _BAD_SIZE
        if not _checksum_matches(buf, start, end, tables):
            return _BAD_CHECKSUM
        body_end = end - 4
    elif kind == 15 or (algorithm == 255 and size >= 23 and _checksum_matches(buf, start, end, tables)):
        body_end = end - 4
    state[1] = algorithm
    types[index] = kind
    starts[index] = start
    ends[index] = body_end
    timestamps[index] = _little(buf, start, 4)
    server_ids[index] = _little(buf, start + 5, 4)
    sizes[index] = size
    log_pos[index] = _little(buf, start + 13, 4)
    flags[index] = _little(buf, start + 17, 2)
    return 0


@njit("int64(uint8[::1], int64, int64, int64)", nogil=True, cache=True)
def _look(buf: Bytes, at: int, there: int, length: int) -> int:
    """Return what the packet at `at` is, of whose `length` bytes `there` have arrived: `_EVENT`, or why to stop."""
    if length == 0:
        return _BAD_STATUS
    if there == 0:
        return _MORE
    status = buf[at]
    if status == 0:
        if length == 0xFFFFFF:
            return _JOIN
        return _EVENT if there >= length else _MORE
    if status == 255:
        return _ERROR if there >= length else _MORE
    if status == 254 and length < 9:
        return _EOF if there >= length else _MORE
    return _BAD_STATUS


@njit(
    f"UniTuple(int64, 3)(uint8[::1], int64, int64, int64[::1], uint32[:, ::1], {_COLUMNS})",
    nogil=True,
    cache=True,
)
def scan_packets(
    buf: Bytes,
    start: int,
    fill: int,
    state: Ints,
    tables: npt.NDArray[np.uint32],
    types: Bytes,
    starts: Ints,
    ends: Ints,
    timestamps: Ints,
    server_ids: Ints,
    sizes: Ints,
    log_pos: Ints,
    flags: Ints,
) -> tuple[int, int, int]:
    """Walk the packets in buf[start:fill]; (events taken, first byte not consumed, why it stopped).

    `state` is int64[2]: next sequence number (-1 = any) and checksum algorithm; both are kept up to date.
    Stops behind a ROTATE event, so that all events of a batch stand in one file.
    """
    at = start
    count = 0
    while True:
        if count == types.size:
            return count, at, _FULL
        if fill - at < 4:
            return count, at, _MORE
        length = _little(buf, at, 3)
        sequence = np.int64(buf[at + 3])
        if state[0] >= 0 and sequence != state[0]:
            return count, at, _BAD_SEQUENCE
        stop = _look(buf, at + 4, fill - at - 4, length)
        if stop != _EVENT:
            return count, at, stop
        end = at + 4 + length
        refused = _copy_event(
            buf, at + 5, end, count, state, tables,
            types, starts, ends, timestamps, server_ids, sizes, log_pos, flags,
        )  # fmt: skip
        if refused != 0:
            return count, at, refused
        state[0] = (sequence + 1) & 255
        count += 1
        at = end
        if types[count - 1] == 4:
            return count, at, _BOUNDARY


@njit(
    f"UniTuple(int64, 3)(uint8[::1], int64, int64, int64[::1], uint32[:, ::1], {_COLUMNS})",
    nogil=True,
    cache=True,
)
def scan_events(
    buf: Bytes,
    start: int,
    fill: int,
    state: Ints,
    tables: npt.NDArray[np.uint32],
    types: Bytes,
    starts: Ints,
    ends: Ints,
    timestamps: Ints,
    server_ids: Ints,
    sizes: Ints,
    log_pos: Ints,
    flags: Ints,
) -> tuple[int, int, int]:
    """Walk events that stand one behind the other without packets: a payload's inside, or a binlog file."""
    at = start
    count = 0
    while True:
        if count == types.size:
            return count, at, _FULL
        if fill - at < 19:
            return count, at, _MORE
        size = _little(buf, at + 9, 4)
        if size < 19:
            return count, at, _BAD_SIZE
        if fill - at < size:
            return count, at, _MORE
        refused = _copy_event(
            buf, at, at + size, count, state, tables,
            types, starts, ends, timestamps, server_ids, sizes, log_pos, flags,
        )  # fmt: skip
        if refused != 0:
            return count, at, refused
        count += 1
        at += size


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
        return int(self._state[_ALGORITHM])

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
            self._buf, self._start, self._fill, self._state, _TABLES, *self._columns.arrays
        )
        if stop in _REASONS:
            self._refused = stop
            if not count:
                raise DecodeError(_REASONS[stop])
        if count:
            self._needed = 0
            return batch_of(self._buf, self._columns, count)
        if stop == _JOIN:
            return self._joined()
        if stop in (_ERROR, _EOF):
            self.message = self._server_message(stop)
        elif self._fill - self._start >= _PACKET_HEADER:
            self._needed = _PACKET_HEADER + int(_little(self._buf, self._start, 3))
        return None

    def _joined(self) -> EventBatch | None:
        """Return the event whose first packet is full and continues in the next ones, once all have arrived."""
        start = self._start
        first = start + _PACKET_HEADER + 1
        if self._fill - first < HEADER_SIZE:
            return None
        size = int(_little(self._buf, first + 9, 4))
        if not _CONTINUED - 1 <= size <= _MAX_EVENT:
            raise DecodeError(_REASONS[_BAD_SIZE])
        packets = (size + 1) // _CONTINUED + 1
        self._needed = size + 1 + packets * _PACKET_HEADER
        if self._fill - start < self._needed:
            return None
        self._join_packets(start, size + 1, packets)
        refused = _copy_event(self._buf, first, first + size, 0, self._state, _TABLES, *self._columns.arrays)
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
                int(_little(self._buf, source, 3)) != length
                or self._buf[source + 3] != (sequence + index) & 255
            ):
                raise DecodeError(_REASONS[_BAD_SEQUENCE])
            source += _PACKET_HEADER
            if index:
                self._buf[target : target + length] = self._buf[source : source + length]
            source += length
            target += length
            payload -= length
        self._state[_SEQUENCE] = (sequence + packets) & 255

    def _server_message(self, stop: int) -> ServerMessage:
        length = int(_little(self._buf, self._start, 3))
        begin = self._start + _PACKET_HEADER
        body = self._buf[begin : begin + length].tobytes()
        if stop == _EOF:
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
    count, at, stop = scan_events(buf, start, end, state, _TABLES, *columns.arrays)
    if stop in _REASONS:
        raise DecodeError(_REASONS[stop])
    return batch_of(buf, columns, count), at - start


def checksum(data: bytes) -> int:
    """CRC32 as events carry it (for tools and tests that write events)."""
    return zlib.crc32(data)
