"""Kernels that find the events in received bytes, check their CRC32 and write where they are to arrays.

CRC32 (polynomial 0x04C11DB7, bits reflected, as zlib's): where the processor multiplies without carries (PCLMULQDQ), sixteen
bytes a step are folded into the next sixteen (`crc32_folding`); elsewhere sixteen bytes a step are looked up in tables
(slicing-by-16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from producer.binlog.log_kernels import GROUP, Bytes, CrcTables, Int, Ints, entry, kernel

if TYPE_CHECKING:
    import numpy.typing as npt


# Why the kernel stopped.
MORE: Final = 0
FULL: Final = 1
BOUNDARY: Final = 2
JOIN: Final = 3
ERROR: Final = 4
EOF: Final = 5
BAD_STATUS: Final = 6
BAD_SEQUENCE: Final = 7
BAD_SIZE: Final = 8
BAD_CHECKSUM: Final = 9
BAD_ALGORITHM: Final = 10
NO_DESCRIPTION: Final = 11
EVENT: Final = -1

# Slots of the kernel's state: the next packet's sequence number (-1 = any), the checksum algorithm.
SEQUENCE: Final = 0
ALGORITHM: Final = 1


def _crc_tables() -> npt.NDArray[np.uint32]:
    """Return the sixteen tables of the slicing-by-16 CRC32 (bits reflected), uint32[16, 256]."""
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


CRC_TABLES: Final = _crc_tables()


@entry
def crc32_by_tables(buf: Bytes, start: Int, end: Int, tables: CrcTables) -> np.uint32:
    """CRC32 of buf[start:end], the same as zlib's, sixteen bytes a step."""
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


def _folds() -> bool:
    """Return whether this process compiles the kernels for a processor that multiplies without carries."""
    if not GROUP.is_compiling:
        return False
    from producer.binlog.crc32_folding import multiplies_without_carries

    return multiplies_without_carries()


if _folds():
    from producer.binlog.crc32_folding import folded

    @entry
    def crc32(buf: Bytes, start: Int, end: Int, tables: CrcTables) -> np.uint32:
        """CRC32 of buf[start:end], the same as zlib's: what is faster on this processor."""
        if end - start < 16:
            return crc32_by_tables(buf, start, end, tables)
        first, second = folded(buf, start, end)
        crc = np.uint32(0xFFFFFFFF)
        for index in range(8):
            shift = np.uint64(8 * index)
            crc ^= tables[15 - index, (first >> shift) & np.uint64(255)]
            crc ^= tables[7 - index, (second >> shift) & np.uint64(255)]
        return np.uint32(crc)

else:

    @entry
    def crc32(buf: Bytes, start: Int, end: Int, tables: CrcTables) -> np.uint32:
        """CRC32 of buf[start:end], the same as zlib's: what is faster on this processor."""
        return crc32_by_tables(buf, start, end, tables)


@entry
def little_endian(buf: Bytes, at: Int, size: Int) -> int:
    """Return the number of `size` bytes at `at`, at most four, of which all four can be read."""
    first = np.uint64(at)  # an index that cannot be negative: LLVM makes one load of the four
    word = (
        np.uint32(buf[first])
        | np.uint32(buf[first + np.uint64(1)]) << np.uint32(8)
        | np.uint32(buf[first + np.uint64(2)]) << np.uint32(16)
        | np.uint32(buf[first + np.uint64(3)]) << np.uint32(24)
    )
    return np.int64(word) & ((np.int64(1) << np.int64(8 * size)) - np.int64(1))  # type: ignore[return-value]


@kernel
def _checksum_matches(buf: Bytes, start: Int, end: Int, tables: CrcTables) -> bool:
    return bool(np.int64(crc32(buf, start, end - 4, tables)) == little_endian(buf, end - 4, 4))


@entry
def copy_event(
    buf: Bytes,
    start: Int,
    end: Int,
    index: Int,
    state: Ints,
    tables: CrcTables,
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
    if size < 19 or little_endian(buf, start + 9, 4) != size:
        return BAD_SIZE
    kind = buf[start + 4]
    algorithm = state[1]
    if kind == 15:
        if size < 24:
            return BAD_SIZE
        algorithm = np.int64(buf[end - 5])
        if algorithm > 1:
            return BAD_ALGORITHM
    elif algorithm == 255 and kind not in (4, 27, 41):
        return NO_DESCRIPTION
    body_end = end
    if algorithm == 1:
        if size < 23:
            return BAD_SIZE
        if not _checksum_matches(buf, start, end, tables):
            return BAD_CHECKSUM
        body_end = end - 4
    elif kind == 15 or (algorithm == 255 and size >= 23 and _checksum_matches(buf, start, end, tables)):
        body_end = end - 4
    state[1] = algorithm
    types[index] = kind
    starts[index] = start
    ends[index] = body_end
    timestamps[index] = little_endian(buf, start, 4)
    server_ids[index] = little_endian(buf, start + 5, 4)
    sizes[index] = size
    log_pos[index] = little_endian(buf, start + 13, 4)
    flags[index] = little_endian(buf, start + 15, 4) >> 16
    return 0


@kernel
def _look(buf: Bytes, at: Int, there: Int, length: Int) -> int:
    """Return what the packet at `at` is, of whose `length` bytes `there` have arrived: `EVENT`, or why to stop."""
    if length == 0:
        return BAD_STATUS
    if there == 0:
        return MORE
    status = buf[at]
    if status == 0:
        if length == 0xFFFFFF:
            return JOIN
        return EVENT if there >= length else MORE
    if status == 255:
        return ERROR if there >= length else MORE
    if status == 254 and length < 9:
        return EOF if there >= length else MORE
    return BAD_STATUS


@entry
def scan_packets(
    buf: Bytes,
    start: Int,
    fill: Int,
    state: Ints,
    tables: CrcTables,
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
            return count, at, FULL
        if fill - at < 4:
            return count, at, MORE
        length = little_endian(buf, at, 3)
        sequence = np.int64(buf[at + 3])
        if state[0] >= 0 and sequence != state[0]:
            return count, at, BAD_SEQUENCE
        stop = _look(buf, at + 4, fill - at - 4, length)
        if stop != EVENT:
            return count, at, stop
        end = at + 4 + length
        refused = copy_event(
            buf, at + 5, end, count, state, tables,
            types, starts, ends, timestamps, server_ids, sizes, log_pos, flags,
        )  # fmt: skip
        if refused != 0:
            return count, at, refused
        state[0] = (sequence + 1) & 255
        count += 1
        at = end
        if types[count - 1] == 4:
            return count, at, BOUNDARY


@entry
def scan_events(
    buf: Bytes,
    start: Int,
    fill: Int,
    state: Ints,
    tables: CrcTables,
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
            return count, at, FULL
        if fill - at < 19:
            return count, at, MORE
        size = little_endian(buf, at + 9, 4)
        if size < 19:
            return count, at, BAD_SIZE
        if fill - at < size:
            return count, at, MORE
        refused = copy_event(
            buf, at, at + size, count, state, tables,
            types, starts, ends, timestamps, server_ids, sizes, log_pos, flags,
        )  # fmt: skip
        if refused != 0:
            return count, at, refused
        count += 1
        at += size
