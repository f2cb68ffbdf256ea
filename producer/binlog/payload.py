"""Compressed transactions: a TRANSACTION_PAYLOAD event holds the events of a transaction, compressed by zstd.

Body: fields of code, length and value (packed numbers): 1 size of the payload, 2 compression (0 zstd, 255
none), 3 size uncompressed; code 0 ends them, the payload follows. MySQL passes over other fields.
The events inside carry no checksum.
Source: MySQL 8.0.20 `transaction_payload_event.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import zstandard

from producer.binlog.byte_reader import Reader, truncated, view_of
from producer.binlog.event_types import TRANSACTION_PAYLOAD_EVENT
from producer.binlog.framing import EventBatch, frame_events
from producer.binlog.passed_fields import note_passed_field
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from producer.binlog.byte_reader import Buffer

_HEADER: Final = 19
_ZSTD: Final = 0
_NONE: Final = 255
_LAST_FIELD: Final = 3
_BLOCK: Final = 4 << 20
_MAX_SIZE: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class PayloadHeader:
    """Where the compressed bytes stand, how they are compressed, and how many they will be."""

    data_start: int
    data_end: int
    compression: int
    size: int


def parse_payload_header(buf: Buffer, start: int, end: int) -> PayloadHeader:
    """Parse the fields before the payload. Raises `DecodeError` for an unknown compression and wrong sizes."""
    reader = Reader(buf, start + _HEADER, end)
    fields: dict[int, int] = {}
    while True:
        code = reader.packed()
        if code == 0:
            break
        value = Reader(reader.read_bytes(reader.packed()))
        if code > _LAST_FIELD:
            note_passed_field("compressed transaction", code)
            continue
        fields[code] = value.packed()
    if 1 not in fields or 2 not in fields:
        reason = "a compressed transaction that does not say its size or how it is compressed"
        raise DecodeError(reason)
    size = fields[1]
    compression = fields[2]
    if size != reader.left:
        raise truncated("compressed transaction")
    if compression not in (_ZSTD, _NONE):
        reason = f"a compressed transaction with the unknown compression {compression}"
        raise DecodeError(reason)
    uncompressed = fields.get(3, size)
    if uncompressed > _MAX_SIZE:
        reason = f"a compressed transaction that claims to hold {uncompressed} bytes"
        raise DecodeError(reason)
    return PayloadHeader(reader.at, end, compression, uncompressed)


def payload_batches(buf: Buffer, start: int, end: int, block: int = _BLOCK) -> Iterator[EventBatch]:
    """Yield the events inside, in batches; each is valid until the next. Memory: `block` bytes or one event.

    Raises `DecodeError` for bytes that are not what the header says, and for events that are none.
    """
    header = parse_payload_header(buf, start, end)
    view = view_of(buf)[header.data_start : header.data_end]
    if header.compression == _NONE:
        data = np.frombuffer(view, np.uint8).copy()
        yield _whole(data, data.size)
        return
    yield from _decompressed(view, header.size, block)


def _decompressed(view: memoryview, size: int, block: int) -> Iterator[EventBatch]:
    memory: npt.NDArray[np.uint8] = np.empty(min(block, max(size, 1)), np.uint8)
    fill = total = 0
    with zstandard.ZstdDecompressor().stream_reader(view) as stream:
        while True:
            try:
                got = stream.readinto(memory.data[fill:])
            except zstandard.ZstdError as error:
                reason = f"a compressed transaction that cannot be decompressed: {error}"
                raise DecodeError(reason) from error
            fill += got
            total += got
            if total > size or (not got and (fill or total != size)):
                reason = f"a compressed transaction that does not hold the {size} bytes of events it claims"
                raise DecodeError(reason)
            if not got:
                return
            batch, consumed = frame_events(memory, 0, fill)
            _refuse_nesting(batch)
            if batch.count:
                yield batch
            rest = fill - consumed
            if rest == memory.size:
                grown: npt.NDArray[np.uint8] = np.empty(min(memory.size * 2, size), np.uint8)
                grown[:rest] = memory
                memory = grown
            else:
                memory[:rest] = memory[consumed:fill].copy()
            fill = rest


def _whole(data: npt.NDArray[np.uint8], size: int) -> EventBatch:
    batch, consumed = frame_events(data, 0, size)
    if consumed != size:
        raise truncated("compressed transaction")
    _refuse_nesting(batch)
    return batch


def _refuse_nesting(batch: EventBatch) -> None:
    if np.any(batch.types == TRANSACTION_PAYLOAD_EVENT):
        reason = "a compressed transaction inside a compressed transaction"
        raise DecodeError(reason)
