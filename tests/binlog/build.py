"""Builds binlog events and replication packets byte by byte, as a server would write them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from uuid import UUID

import numpy as np

from producer.binlog.framing import EventBatch, PacketFramer

UUID_TEXT = "342accec-e5a0-11f1-8f1c-02fc00000001"


def event(
    kind: int,
    body: bytes = b"",
    *,
    log_pos: int = 0,
    flags: int = 0,
    timestamp: int = 1_700_000_000,
    server_id: int = 1,
    checksum: bool = True,
) -> bytes:
    """One event with its header, and its CRC32 unless reported otherwise."""
    size = 19 + len(body) + (4 if checksum else 0)
    data = struct.pack("<IBIIIH", timestamp, kind, server_id, size, log_pos, flags) + body
    return data + zlib.crc32(data).to_bytes(4, "little") if checksum else data


def format_description(
    *, algorithm: int = 1, log_pos: int = 0, version: str = "8.0.40", flags: int = 0
) -> bytes:
    """A format description; it always ends with four checksum bytes."""
    body = struct.pack("<H50sIB", 4, version.encode(), 0, 19) + bytes(40) + bytes((algorithm,))
    if algorithm:
        return event(15, body, log_pos=log_pos, flags=flags)
    return event(15, body + bytes(4), log_pos=log_pos, flags=flags, checksum=False)


def rotate(file: str, position: int = 4, *, artificial: bool = True, log_pos: int = 0) -> bytes:
    """A ROTATE event: the server's greeting, or the last event of a file."""
    body = position.to_bytes(8, "little") + file.encode()
    if artificial:
        return event(4, body, flags=0x20, timestamp=0)
    return event(4, body, log_pos=log_pos)


def packets(events: Iterable[bytes], sequence: int = 1) -> bytes:
    """The events as packets, large ones cut into several."""
    out = bytearray()
    for one in events:
        payload = b"\0" + one
        while True:
            piece, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
            out += len(piece).to_bytes(3, "little") + bytes((sequence & 255,)) + piece
            sequence += 1
            if len(piece) < 0xFFFFFF:
                break
    return bytes(out)


def packet(payload: bytes, sequence: int = 1) -> bytes:
    """One packet with any payload."""
    return len(payload).to_bytes(3, "little") + bytes((sequence & 255,)) + payload


def feed(framer: PacketFramer, data: bytes, step: int = 1 << 30) -> list[EventBatch]:
    """Give bytes to a framer in pieces of `step`; copies of its batches, so that all stay valid."""
    batches = []
    at = 0
    while at < len(data):
        space = framer.space()
        size = min(step, len(space), len(data) - at)
        space[:size] = data[at : at + size]
        framer.filled(size)
        at += size
        while (batch := framer.next_batch()) is not None:
            batches.append(copied(batch))
    return batches


def copied(batch: EventBatch) -> EventBatch:
    """The batch with memory of its own."""
    arrays = (
        batch.types, batch.starts, batch.ends, batch.timestamps, batch.server_ids, batch.sizes, batch.log_pos,
        batch.flags,
    )  # fmt: skip
    copy = EventBatch(batch.buf.copy(), batch.count, *(array.copy() for array in arrays))
    copy.offsets, copy.file = batch.offsets.copy(), batch.file
    return copy


def bodies(batches: Iterable[EventBatch]) -> list[tuple[int, bytes]]:
    """(type, body without header and checksum) of every event."""
    found = []
    for batch in batches:
        for kind, start, end in zip(batch.types, batch.starts, batch.ends, strict=True):
            found.append((int(kind), bytes(batch.memory[start + 19 : end])))
    return found


def batch_of(*events: bytes) -> EventBatch:
    """The events as one batch, as if they had just been read."""
    framer = PacketFramer()
    (batch,) = feed(framer, packets(events))
    return batch


def packed(value: int) -> bytes:
    """A length-encoded integer."""
    if value < 251:
        return bytes((value,))
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def field(code: int, value: bytes) -> bytes:
    """A field of a table map's optional metadata."""
    return bytes((code,)) + packed(len(value)) + value


def table_map(
    types: bytes, meta: bytes, optional: bytes = b"", *, nulls: int = 0, names: str = "d.t"
) -> bytes:
    """A TABLE_MAP event of table id 7."""
    database, table = (name.encode() for name in names.split("."))
    body = (
        (7).to_bytes(6, "little") + b"\1\0"
        + bytes((len(database),)) + database + b"\0" + bytes((len(table),)) + table + b"\0"
        + packed(len(types)) + types + packed(len(meta)) + meta
        + nulls.to_bytes((len(types) + 7) // 8, "little") + optional
    )  # fmt: skip
    return event(19, body)


def rows(
    kind: int, columns: int, data: bytes, *, present: int | None = None, extra: bytes = b"", table_id: int = 7
) -> bytes:
    """A rows event."""
    bitmap = ((1 << columns) - 1 if present is None else present).to_bytes((columns + 7) // 8, "little")
    head = table_id.to_bytes(6, "little") + b"\1\0"
    if kind >= 30:
        head += (2 + len(extra)).to_bytes(2, "little") + extra
    return event(kind, head + packed(columns) + bitmap * (2 if kind in (24, 31) else 1) + data)


def gtid(number: int = 5, *, kind: int = 33, times: bytes = b"", log_pos: int = 0) -> bytes:
    """A GTID event of MySQL."""
    body = struct.pack("<B16sqBqq", 1, UUID(UUID_TEXT).bytes, number, 2, 3, 4) + times
    return event(kind, body, log_pos=log_pos)


def array_of(data: bytes) -> np.ndarray:
    """Bytes as the arrays that kernels take."""
    return np.frombuffer(data, np.uint8).copy()
