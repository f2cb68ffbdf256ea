"""Rows of a text result set as columns of byte ranges: no Python object per cell, one small step per row.

The cells of a block of rows are found column by column with numpy (a text row is a run of length-encoded strings). This is not
the row codec: verify must not share the code it checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mysqlio.text_query import BLOCK_BYTES, TextQuery

if TYPE_CHECKING:
    from mysqlio.connection import Connection

_NULL: Final = 0xFB
_WIDTHS: Final = ((0xFC, 2), (0xFD, 3), (0xFE, 8))


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of a block: the bytes of row i are `buffer[begins[i]:ends[i]]`; `nulls` marks SQL NULL."""

    buffer: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    nulls: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.begins)

    def binary(self) -> pa.BinaryArray:
        """Return the cells as one Arrow array of binary.

        Row i's begin and end are neighbours in one rising list of offsets, so the buffer is an array of
        wanted and unwanted pieces in turn, and `take` copies the wanted ones.
        """
        count = len(self)
        offsets = np.empty(2 * count, dtype=np.int64)
        offsets[0::2] = self.begins
        offsets[1::2] = self.ends
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        pieces = pa.Array.from_buffers(pa.large_binary(), max(2 * count - 1, 0), buffers)
        wanted = pa.array(np.arange(0, 2 * count, 2), mask=self.nulls if self.nulls.any() else None)
        return pieces.take(wanted)

    def fixed(self, width: int) -> NDArray[np.uint8]:
        """Return the first `width` bytes of each cell as a matrix; what is beyond a shorter cell is undefined."""
        index = self.begins[:, None] + np.arange(width)
        matrix: NDArray[np.uint8] = self.buffer[np.minimum(index, len(self.buffer) - 1)]
        return matrix


def read_columns(connection: Connection, sql: str, block_bytes: int = BLOCK_BYTES) -> Iterator[list[Cells]]:
    """Run a SELECT and yield blocks of rows, each a list with the cells of every column; limits and errors as of `TextQuery`."""
    query = TextQuery(connection, sql)
    for buffer, starts in query.blocks(block_bytes):
        yield split(buffer, starts, query.width)


def split(buffer: NDArray[np.uint8], starts: NDArray[np.int64], width: int) -> list[Cells]:
    """Return the cells of rows that begin at `starts`, column by column."""
    columns: list[Cells] = []
    at = starts
    for _ in range(width):
        head = buffer[at]
        nulls = head == _NULL
        length = head.astype(np.int64)
        begins = at + 1
        if head.max(initial=0) > _NULL:
            for mark, size in _WIDTHS:
                rows = np.nonzero(head == mark)[0]
                if len(rows):
                    length[rows] = _little_endian(buffer, begins[rows], size)
                    begins[rows] += size
        length[nulls] = 0
        ends = begins + length
        columns.append(Cells(buffer, begins, ends, nulls))
        at = ends
    return columns


def _little_endian(buffer: NDArray[np.uint8], at: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    value = np.zeros(len(at), dtype=np.int64)
    for byte in range(size):
        value |= buffer[at + byte].astype(np.int64) << (8 * byte)
    return value
