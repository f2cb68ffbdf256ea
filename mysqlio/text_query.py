"""TextQuery: a SELECT whose rows stay text, as the server prints the values.

PyMySQL sends the query and reads the header; the row packets are then taken from its buffered stream in blocks. There is one small
step per row, and no Python object per cell.
"""

# ruff: noqa: SLF001 - PyMySQL has no public way to an undecoded result
from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception

from schemas.errors import RetriableSourceError

Rows: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.int64]]"

BLOCK_BYTES: Final = 4 << 20
_READ_BYTES: Final = 256 << 10
_LARGEST_PACKET: Final = 0xFFFFFF
_HEADER: Final = struct.Struct("<IB")
_EOF: Final = 0xFE
_ERROR: Final = 0xFF


class TextQuery:
    """One SELECT on a connection that nobody else uses meanwhile; `width` is the number of its columns.

    Memory is one block, or one row if a row is larger. The result must be read to its end before the connection is used again;
    after an early stop the connection has to be closed. Raises `ServerError` for an error packet, and `RetriableSourceError` when
    the server closes the stream.
    """

    def __init__(self, connection: Connection[Any], sql: str) -> None:
        inside: Any = connection
        inside._execute_command(COMMAND.COM_QUERY, sql)
        self.width = int(inside._read_packet().read_length_encoded_integer())
        for _ in range(self.width + 1):  # the column definitions and their EOF
            inside._read_packet()
        self._stream = inside._rfile
        self._data = bytearray()
        self._at = 0
        self._starts: list[int] = []

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[Rows]:
        """Yield buffers, and the first bytes of the rows in them, until the EOF packet."""
        while True:
            size = self._scan()
            if size == _LARGEST_PACKET:
                yield from self._flush()
                yield self._giant()
            elif size is None:
                if self._at >= block_bytes:
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
        ending = None
        while at + 5 <= end:
            word, head = unpack(data, at)
            size = word & _LARGEST_PACKET
            if size == _LARGEST_PACKET:
                ending = size
                break
            if at + 4 + size > end:
                break
            if head == _ERROR or (head == _EOF and size < 9):
                ending = size
                break
            starts.append(at + 4)
            at += 4 + size
        self._at = at
        return ending

    def _fill(self) -> None:
        received = self._stream.read1(_READ_BYTES)
        if not received:
            message = "the server closed the connection in the middle of a result; retry"
            raise RetriableSourceError(message)
        self._data += received

    def _flush(self) -> Iterator[Rows]:
        """Hand out the rows walked over so far; what follows them starts the next block."""
        if self._starts:
            block = np.frombuffer(bytes(memoryview(self._data)[: self._at]), dtype=np.uint8)
            yield block, np.array(self._starts, dtype=np.int64)
            self._starts = []
        del self._data[: self._at]
        self._at = 0

    def _giant(self) -> Rows:
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
