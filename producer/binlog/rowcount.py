"""Counts the rows of a rows event without decoding them.

Every row of a transaction has an ordinal, also the rows of tables that are not captured (DESIGN: the ordinal
is then the same on every read, whatever is filtered). So rows of uncaptured tables, whatever their column
types, are measured by type and metadata alone. Sizes: MySQL 8.0 `Field::pack_length_from_metadata`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from producer.binlog.byte_reader import Reader, truncated
from producer.binlog.log_kernels import Bytes, Int, Ints, entry
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.binlog.byte_reader import Buffer

_TRUNCATED: Final = -1
_UNKNOWN_TYPE: Final = -2
_UNMEASURED: Final = "a rows event of a table that is not captured holds a column type that cannot be measured"

_FIXED: Final = {
    1: 1,  # TINY
    2: 2,  # SHORT
    3: 4,  # LONG
    4: 4,  # FLOAT
    5: 8,  # DOUBLE
    6: 0,  # NULL
    7: 4,  # TIMESTAMP
    8: 8,  # LONGLONG
    9: 3,  # INT24
    10: 3,  # DATE
    11: 3,  # TIME
    12: 8,  # DATETIME
    13: 1,  # YEAR
    14: 3,  # NEWDATE
}
_DECIMAL_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_VARCHAR, _BIT, _TIMESTAMP2, _DATETIME2, _TIME2 = 15, 16, 17, 18, 19
_NEWDECIMAL, _ENUM, _SET, _STRING, _VAR_STRING = 246, 247, 248, 254, 253
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED = 140, 141  # MariaDB's
_LENGTH_BYTES: Final = frozenset({_BLOB_COMPRESSED, 242, 245, 249, 250, 251, 252, 255})  # VECTOR JSON *BLOB GEOMETRY


def cell_sizes(types: tuple[int, ...], metas: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Size rule per column: n >= 0 is a fixed size, -n a length prefix of n bytes; -9 = unknown type."""
    sizes = np.empty(len(types), np.int64)
    for index, (code, meta) in enumerate(zip(types, metas, strict=True)):
        sizes[index] = _cell_size(code, meta)
    return sizes


def _cell_size(code: int, meta: int) -> int:
    if code in _FIXED:
        return _FIXED[code]
    if code == _BIT:
        return (((meta >> 8) * 8 + (meta & 255)) + 7) // 8
    if code in (_TIMESTAMP2, _DATETIME2, _TIME2):
        return {_TIMESTAMP2: 4, _DATETIME2: 5, _TIME2: 3}[code] + (meta + 1) // 2
    if code == _NEWDECIMAL:
        precision, scale = meta >> 8, meta & 255
        integer = precision - scale
        return integer // 9 * 4 + _DECIMAL_BYTES[integer % 9] + scale // 9 * 4 + _DECIMAL_BYTES[scale % 9]
    if code in (_ENUM, _SET):
        return meta & 255
    if code in (_VARCHAR, _VARCHAR_COMPRESSED, _VAR_STRING, _STRING):
        return -2 if meta > 255 else -1
    if code in _LENGTH_BYTES:
        return -meta
    return -9


@entry
def _walk(buf: Bytes, start: Int, end: Int, sizes: Ints, images: Int, most: Int) -> tuple[int, int]:
    """Return how many rows, at most that many, and where they end."""
    columns = sizes.size
    null_bytes = (columns + 7) // 8
    at = start
    rows = 0
    while at < end and rows < most:
        for _ in range(images):
            nulls = at
            at += null_bytes
            if at > end:
                return -1, at
            for column in range(columns):
                if (buf[nulls + (column >> 3)] >> (column & 7)) & 1:
                    continue
                size = sizes[column]
                if size >= 0:
                    at += size
                elif size >= -4:
                    if at - size > end:
                        return -1, at
                    length = np.int64(0)
                    for index in range(-size):
                        length |= np.int64(buf[at + index]) << (8 * index)
                    at += length - size
                else:
                    return -2, at
                if at > end:
                    return -1, at
        rows += 1
    return rows, at


def count_rows(
    buf: npt.NDArray[np.uint8], start: int, end: int, sizes: npt.NDArray[np.int64], images: int, where: str
) -> int:
    """Return rows between `start` (first row's null bitmap) and `end`; `images` is 2 for updates, else 1.

    Raises `DecodeError` with `where` when the bytes are not whole rows of these columns.
    """
    return _walked(buf, start, end, sizes, images, end, where)[0]


def count_partial_rows(
    buf: Buffer, start: int, end: int, sizes: npt.NDArray[np.int64], present: Sequence[int]
) -> int:
    """Return rows whose images hold some of the columns: `present` has a number per image, with a bit for each.

    Raises `DecodeError`, without a position.
    """
    images = [[size for column, size in enumerate(sizes.tolist()) if shown >> column & 1] for shown in present]
    reader = Reader(buf, start, end)
    rows = 0
    while reader.left:
        if not any(images):
            raise truncated("rows event without columns")
        for image in images:
            _skip_image(reader, image)
        rows += 1
    return rows


def _skip_image(reader: Reader, image: Sequence[int]) -> None:
    nulls = int.from_bytes(reader.read_bytes((len(image) + 7) // 8), "little")
    for column, size in enumerate(image):
        if nulls >> column & 1:
            continue
        if size < -4:
            raise DecodeError(_UNMEASURED)
        reader.skip(size if size >= 0 else reader.uint(-size))


def end_of_rows(
    buf: npt.NDArray[np.uint8], start: int, end: int, sizes: npt.NDArray[np.int64], images: int, rows: int, where: str
) -> int:
    """Return where the first `rows` rows end, which is `end` where there are no more. Raises as `count_rows`."""
    return _walked(buf, start, end, sizes, images, rows, where)[1]


def _walked(
    buf: npt.NDArray[np.uint8], start: int, end: int, sizes: npt.NDArray[np.int64], images: int, most: int, where: str
) -> tuple[int, int]:
    rows, at = _walk(buf, start, end, sizes, images, most)
    if rows == _TRUNCATED:
        reason = "a rows event ends in the middle of a row"
        raise DecodeError(reason, where)
    if rows == _UNKNOWN_TYPE:
        raise DecodeError(_UNMEASURED, where)
    return int(rows), int(at)
