"""BinaryQuery: a prepared SELECT whose rows stay raw bytes.

PyMySQL connects, authenticates and speaks TLS; from there on the binary protocol is spoken here: prepare,
execute, column definitions, then rows as blocks of complete packets in one reusable buffer, for the row
codec's kernels. No row is parsed, no Python object per row is made.

Protocol: COM_STMT_PREPARE / COM_STMT_EXECUTE with EOF packets (`CLIENT_DEPRECATE_EOF` is not offered), MySQL
5.7 to 9.x, MariaDB 10.x and 11.x.
"""

# ruff: noqa: SLF001 - PyMySQL has no public way to send a command and read its packets
from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pymysql
from pymysql.constants import COMMAND, CR
from pymysql.protocol import FieldDescriptorPacket

from mysqlio.packet_kernels import Bytes, Int, entry
from schemas.errors import DecodeError

Buffer = npt.NDArray[np.uint8]
Block = tuple[Buffer, int, int]

DEFAULT_BUFFER_BYTES: Final = 4 << 20
_BLOCK_BYTES: Final = 1 << 20
PACKET_HEADER: Final = 4
_MAX_PACKET: Final = 0xFFFFFF
_MORE, _END, _ERROR, _LARGE = 0, 1, 2, 3
_NO_CURSOR: Final = 0


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One column definition of a result set, as the server sent it. `length` is in bytes."""

    name: str
    type_code: int
    charset: int
    length: int
    flags: int
    decimals: int


class BinaryQuery:
    """One execution of a prepared SELECT on a connection that nobody else uses meanwhile.

    The read view of the SELECT opens in the constructor's execute, not before. `columns` is known from then
    on. Errors of the server are PyMySQL's exceptions. Leaving the block before the last row closes the
    connection: its stream can't be used any more.
    """

    def __init__(self, connection: pymysql.Connection[Any], sql: str) -> None:
        self._connection: Any = connection
        self._pending = self._buffered = False
        self._statement = self._prepare(sql)
        try:
            self.columns = self._execute()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def blocks(self, buffer: Buffer | None = None) -> Iterator[Block]:
        """Yield the rows, as `(buf, start, end)`: complete row packets with their 4-byte headers.

        A block is valid until the next one is asked for. A row of 16 MiB or more is alone in its block:
        its header says 0xFFFFFF and its payload goes to `end` (the protocol's parts are joined).
        """
        buf = np.empty(DEFAULT_BUFFER_BYTES, np.uint8) if buffer is None else buffer
        filled = scanned = 0
        while True:
            scanned, status = _scan(buf, scanned, filled)
            if status == _MORE and scanned < _BLOCK_BYTES:
                buf, filled = self._fill(buf, scanned, filled)
                continue
            if scanned:
                yield buf, 0, scanned
                filled = _move(buf, scanned, filled)
                scanned = 0
                continue
            if status == _LARGE:
                buf, filled, large = self._join(buf, filled)
                yield large, 0, len(large)
                continue
            if status == _ERROR:
                self._pending = False
                pymysql.err.raise_mysql_exception(self._payload(buf, filled))
            self._pending = False
            return

    def close(self) -> None:
        """Give the statement back; with rows still pending the connection is closed instead."""
        if self._pending:
            self._connection._force_close()
        elif self._statement is not None and self._connection.open:
            self._connection._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", self._statement))
        self._pending = False
        self._statement = None

    # ---- protocol

    def _prepare(self, sql: str) -> int | None:
        connection = self._connection
        connection._execute_command(COMMAND.COM_STMT_PREPARE, sql)
        answer = connection._read_packet().get_all_data()
        statement, columns, parameters = struct.unpack_from("<xIHH", answer)
        for count in (parameters, columns):
            if count:
                self._skip_definitions(count)
        if parameters:
            message = f"the statement has {parameters} parameters"
            raise ValueError(message)
        return int(statement)

    def _skip_definitions(self, count: int) -> None:
        for _ in range(count + 1):
            self._connection._read_packet()

    def _execute(self) -> tuple[ResultColumn, ...]:
        connection = self._connection
        head = struct.pack("<IBI", self._statement, _NO_CURSOR, 1)
        connection._execute_command(COMMAND.COM_STMT_EXECUTE, head)
        first = connection._read_packet()
        if first.is_ok_packet():
            message = "the statement returns no rows; BinaryQuery is for SELECT"
            raise ValueError(message)
        count = first.read_length_encoded_integer()
        columns = tuple(_column(connection._read_packet(FieldDescriptorPacket)) for _ in range(count))
        connection._read_packet()
        self._pending = self._buffered = True
        return columns

    def _fill(self, buf: Buffer, scanned: int, filled: int) -> tuple[Buffer, int]:
        """Read what the network has, at least one byte; a packet that can't fit gets a larger buffer."""
        needed = _packet_bytes(buf, scanned, filled)
        if scanned + needed > len(buf) or filled == len(buf):
            larger = np.empty(max(2 * len(buf), scanned + needed), np.uint8)
            larger[:filled] = buf[:filled]
            buf = larger
        try:
            count = self._read(buf[filled:])
        except OSError as error:
            raise self._lost(str(error)) from error
        if not count:
            raise self._lost("the server closed it")
        return buf, filled + count

    def _read(self, room: Buffer) -> int:
        """Read one read of the socket; first what PyMySQL's reader holds, after which `readinto1` would block."""
        stream = self._connection._rfile
        if self._buffered:
            ahead = stream.read1(min(len(room), io.DEFAULT_BUFFER_SIZE))
            self._buffered = len(ahead) == len(room)
            room[: len(ahead)] = np.frombuffer(ahead, np.uint8)
            return len(ahead)
        return int(stream.readinto1(room.data))

    def _join(self, buf: Buffer, filled: int) -> tuple[Buffer, int, Buffer]:
        """Join the parts of the row at the buffer's start; also the buffer and fill that remain after it."""
        parts = [np.array([255, 255, 255, 0], np.uint8)]
        length = _MAX_PACKET
        while length == _MAX_PACKET:
            while filled < PACKET_HEADER or filled < _packet_bytes(buf, 0, filled):
                buf, filled = self._fill(buf, 0, filled)
            length = _packet_bytes(buf, 0, filled) - PACKET_HEADER
            parts.append(buf[PACKET_HEADER : PACKET_HEADER + length].copy())
            filled = _move(buf, PACKET_HEADER + length, filled)
        return buf, filled, np.concatenate(parts)

    def _payload(self, buf: Buffer, filled: int) -> bytes:
        while filled < _packet_bytes(buf, 0, filled):
            buf, filled = self._fill(buf, 0, filled)
        return buf[PACKET_HEADER : _packet_bytes(buf, 0, filled)].tobytes()

    def _lost(self, reason: str) -> pymysql.err.OperationalError:
        self._pending = False
        self._connection._force_close()
        message = f"Lost connection to the server while rows were read ({reason})"
        return pymysql.err.OperationalError(CR.CR_SERVER_LOST, message)


def _column(packet: Any) -> ResultColumn:
    return ResultColumn(
        packet.name, packet.type_code, packet.charsetnr, packet.length, packet.flags, packet.scale
    )


def _packet_bytes(buf: Buffer, at: int, filled: int) -> int:
    """Size of the packet at `at`, header included; the header's own size while that isn't there."""
    if filled - at < PACKET_HEADER:
        return PACKET_HEADER
    return PACKET_HEADER + (int(buf[at]) | int(buf[at + 1]) << 8 | int(buf[at + 2]) << 16)


def _move(buf: Buffer, start: int, filled: int) -> int:
    """Move what is from `start` to the buffer's beginning; the new fill."""
    rest = filled - start
    if rest:
        buf[:rest] = buf[start:filled].copy()
    return rest


def _scan(buf: Buffer, start: int, filled: int) -> tuple[int, int]:
    """Walk complete row packets from `start`; where they end, and why the walk stopped."""
    end, status = _walk(buf, start, filled)
    if status < 0:
        reason = f"packet of type {int(buf[end + PACKET_HEADER]):#04x} among the rows of a result set"
        raise DecodeError(reason)
    return int(end), int(status)


@entry
def _walk(buf: Bytes, start: Int, filled: Int) -> tuple[int, int]:
    at = start
    while filled - at > PACKET_HEADER:
        length = int(buf[at]) | int(buf[at + 1]) << 8 | int(buf[at + 2]) << 16
        first = buf[at + PACKET_HEADER]
        if first == 0xFF:
            return at, _ERROR
        if first == 0xFE and length < 9:
            if filled - at < PACKET_HEADER + length:
                return at, _MORE
            return at, _END
        if first != 0:
            return at, -1
        if length == _MAX_PACKET:
            return at, _LARGE
        if filled - at < PACKET_HEADER + length:
            return at, _MORE
        at += PACKET_HEADER + length
    return at, _MORE


@entry
def last_row(buf: Bytes, start: Int, end: Int) -> Int:
    """Return where the last row packet of a block begins."""
    at = start
    while True:
        length = int(buf[at]) | int(buf[at + 1]) << 8 | int(buf[at + 2]) << 16
        if length == _MAX_PACKET or at + PACKET_HEADER + length >= end:
            return at
        at += PACKET_HEADER + length
