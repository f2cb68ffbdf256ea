"""Rows of a text result set as columns of byte ranges: no Python object per cell, one small step per row.

PyMySQL sends the query and reads the header; the row packets are then taken from its buffered stream in
blocks, and the cells of a block are found column by column with numpy (a text row is a run of
length-encoded strings). This is not the row codec: verify must not share the code it checks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception

from schemas.errors import RetriableSourceError

_BLOCK_BYTES: Final = 4 << 20
_READ_BYTES: Final = 256 << 10
_LARGEST_PACKET: Final = 0xFFFFFF
_HEADER: Final = struct.Struct("<IB")
_EOF: Final = 0xFE
_ERROR: Final = 0xFF
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


def read_columns(
    connection: Connection[Any], sql: str, block_bytes: int = _BLOCK_BYTES
) -> Iterator[list[Cells]]:
    """Run a SELECT and yield blocks of rows, each a list with the cells of every column.

    Memory is one block, or one row where a row is larger. The result must be read to its end before the
    connection is used again; after an early stop the connection has to be closed. Raises what PyMySQL
    raises for an error packet, and `RetriableSourceError` when the server closes the stream.
    """
    width = _start(connection, sql)
    reader = _PacketReader(connection, block_bytes)
    for buffer, starts in reader.blocks():
        yield split(buffer, starts, width)


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


def _start(connection: Any, sql: str) -> int:
    """Send the query, read the result's header; the number of columns."""
    connection._execute_command(COMMAND.COM_QUERY, sql)  # noqa: SLF001 - the only way to an undecoded result
    width = int(connection._read_packet().read_length_encoded_integer())  # noqa: SLF001
    for _ in range(width + 1):  # the column definitions and their EOF
        connection._read_packet()  # noqa: SLF001
    return width


class _PacketReader:
    """Cuts the stream behind a result's header into blocks of whole row packets."""

    def __init__(self, connection: Any, block_bytes: int) -> None:
        self._connection = connection
        self._stream = connection._rfile  # noqa: SLF001
        self._block_bytes = block_bytes
        self._data = bytearray()
        self._at = 0
        self._starts: list[int] = []

    def blocks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """Buffers and the first bytes of the rows in them, until the EOF packet."""
        while True:
            size = self._scan()
            if size == _LARGEST_PACKET:
                yield from self._flush()
                yield self._giant()
            elif size is None:
                if self._at >= self._block_bytes:
                    yield from self._flush()
                self._fill()
            else:
                self._check_end(size)
                yield from self._flush()
                return

    def _scan(self) -> int | None:
        """Walk over whole packets; the size of the one that ends the walk, None to continue with more bytes."""
        data, at, end = self._data, self._at, len(self._data)
        starts, unpack = self._starts, _HEADER.unpack_from
        found = None
        while at + 5 <= end:
            word, head = unpack(data, at)
            size = word & _LARGEST_PACKET
            if size == _LARGEST_PACKET:
                found = size
                break
            if at + 4 + size > end:
                break
            if head == _ERROR or (head == _EOF and size < 9):
                found = size
                break
            starts.append(at + 4)
            at += 4 + size
        self._at = at
        return found

    def _fill(self) -> None:
        received = self._stream.read1(_READ_BYTES)
        if not received:
            message = "the server closed the connection in the middle of a result; retry"
            raise RetriableSourceError(message)
        self._data += received

    def _flush(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        """Hand out the rows walked over so far; what follows them starts the next block."""
        if self._starts:
            block = np.frombuffer(bytes(memoryview(self._data)[: self._at]), dtype=np.uint8)
            yield block, np.array(self._starts, dtype=np.int64)
            self._starts = []
        del self._data[: self._at]
        self._at = 0

    def _giant(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return a row of 16 MiB and more: its packets put together."""
        row = bytearray()
        while True:
            while len(self._data) < 4:
                self._fill()
            size = int.from_bytes(self._data[:3], "little")
            while len(self._data) < 4 + size:
                self._fill()
            row += memoryview(self._data)[4 : 4 + size]
            del self._data[: 4 + size]
            if size < _LARGEST_PACKET:
                return np.frombuffer(bytes(row), dtype=np.uint8), np.zeros(1, dtype=np.int64)

    def _check_end(self, size: int) -> None:
        body = bytes(self._data[self._at + 4 : self._at + 4 + size])
        if body[0] == _ERROR:
            raise_mysql_exception(body)
