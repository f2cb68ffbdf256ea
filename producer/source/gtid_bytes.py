"""GTID sets of MySQL in binary form, as COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS have them (pure).

A count of 8 bytes, then per UUID: 16 bytes, [tag], the number of intervals in 8 bytes, and 8 + 8 bytes (end exclusive) each.
With tags (MySQL 8.3 and later) the first and the last byte of the count are 1, and it is between them. Each UUID is followed by the
tag then: its length times two (serialization format), its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from producer.binlog.byte_reader import Reader, truncated
from schemas.errors import DecodeError
from schemas.gtid_sets import MysqlGtidSet

if TYPE_CHECKING:
    from producer.binlog.byte_reader import Buffer

_UUID_SIZE: Final = 16


def encode_gtids(gtids: MysqlGtidSet) -> bytes:
    """Return the binary form of a set."""
    tagged = any(tag for _, tag in gtids.intervals)
    count = len(gtids.intervals)
    out = bytearray((1 << 56 | count << 8 | 1 if tagged else count).to_bytes(8, "little"))
    for (uuid, tag), intervals in sorted(gtids.intervals.items()):
        out += UUID(uuid).bytes
        if tagged:
            out += bytes((len(tag) * 2,)) + tag.encode("ascii")
        out += len(intervals).to_bytes(8, "little")
        for first, last in intervals:
            out += first.to_bytes(8, "little") + (last + 1).to_bytes(8, "little")
    return bytes(out)


def decode_gtids(buf: Buffer, start: int = 0, end: int | None = None) -> MysqlGtidSet:
    """Return the set of a binary form. Raises `DecodeError`."""
    reader = Reader(buf, start, end)
    result = MysqlGtidSet()
    head = reader.uint(8)
    tagged = head >> 56 == 1
    count = head >> 8 & ((1 << 48) - 1) if tagged else head
    try:
        for _ in range(count):
            uuid = str(UUID(bytes=reader.read_bytes(_UUID_SIZE)))
            tag = reader.read_bytes(reader.serialized()).decode("ascii") if tagged else ""
            for _ in range(reader.uint(8)):
                first = reader.uint(8)
                result.add_interval(uuid, tag, first, reader.uint(8) - 1)
    except ValueError as error:
        reason = f"a GTID set that is none: {error}"
        raise DecodeError(reason) from error
    if reader.left:
        raise truncated("GTID set")
    return result
