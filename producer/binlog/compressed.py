"""MariaDB's compressed events (`log_bin_compress`): one event in, the same event uncompressed out.

A compressed query or rows event is the plain one whose last part, the statement or the rows, is compressed: a byte
0x80 | algorithm << 4 | n (algorithm 0 is zlib), the length uncompressed in n bytes (big-endian), the data.
Source: MariaDB 11 `sql/log_event.cc` (`query_event_uncompress`, `row_log_event_uncompress`, `binlog_buf_uncompress`).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from producer.binlog.byte_reader import Reader, truncated, view_of
from producer.binlog.event_types import QUERY_EVENT
from producer.binlog.framing import EventBatch, frame_events
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from producer.binlog.byte_reader import Buffer

_HEADER: Final = 19
_PLAIN: Final = {165: QUERY_EVENT, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_V2: Final = frozenset({30, 31, 32})
_UPDATES: Final = frozenset({24, 31})
_QUERY_HEAD: Final = 13
_ROWS_HEAD: Final = 8


def decompress_event(buf: Buffer, start: int, end: int) -> EventBatch:
    """Return the plain event of a compressed one, alone in a batch of its own memory, without checksum.

    Raises `DecodeError` for bytes that are not what they say.
    """
    view = view_of(buf)
    kind = _PLAIN[view[start + 4]]
    reader = Reader(view, start + _HEADER, end)
    _skip_query_head(reader) if kind == QUERY_EVENT else _skip_rows_head(reader, kind)
    plain = bytearray(view[start : reader.at])
    plain += _decompressed(reader)
    plain[4] = kind
    plain[9:13] = len(plain).to_bytes(4, "little")
    return frame_events(np.frombuffer(plain, np.uint8), 0, len(plain))[0]


def _skip_query_head(reader: Reader) -> None:
    head = reader.read_bytes(_QUERY_HEAD)
    reader.skip(int.from_bytes(head[11:13], "little") + head[8] + 1)


def _skip_rows_head(reader: Reader, kind: int) -> None:
    reader.skip(_ROWS_HEAD)
    if kind in _V2:
        extra = reader.uint(2)
        if extra < 2:
            raise truncated("compressed event")
        reader.skip(extra - 2)
    size = (reader.packed() + 7) // 8
    reader.skip(2 * size if kind in _UPDATES else size)


def _decompressed(reader: Reader) -> bytes:
    head = reader.uint(1)
    length_size = head & 7
    if head & 0xF0 != 0x80 or not 1 <= length_size <= 4:
        reason = f"a compressed event of an unknown kind ({head:#x})"
        raise DecodeError(reason)
    size = int.from_bytes(reader.read_bytes(length_size), "big")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(reader.rest(), size + 1)
    except zlib.error as error:
        reason = f"a compressed event that cannot be decompressed: {error}"
        raise DecodeError(reason) from error
    if len(data) != size or not stream.eof:
        reason = f"a compressed event that does not hold the {size} bytes it claims"
        raise DecodeError(reason)
    return data
