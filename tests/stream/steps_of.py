"""A log in memory for the transaction assembler: events by name, and the steps that they become as short texts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

import numpy as np

from producer.binlog.framing import EventBatch, frame_events
from producer.stream import steps
from producer.stream.cursor import LogCursor
from producer.stream.groups import TransactionAssembler
from producer.stream.offset import LogOffset
from producer.stream.pending_rows import PendingMemory
from tests.binlog.build import UUID_TEXT, event

FILE = "binlog.000007"
MYSQL_OFFSET = LogOffset(0, FILE, 100, f"{UUID_TEXT}:1-9", "server")
MARIADB_OFFSET = LogOffset(0, FILE, 100, "0-1-9", "server_id=1")


def gtid(number: int, *, transactional: bool = True) -> bytes:
    """A GTID event of MySQL; without `transactional` its group may have a ROLLBACK."""
    return event(33, struct.pack("<B16sqBqq", not transactional, UUID(UUID_TEXT).bytes, number, 2, 3, 4))


def mariadb_gtid(number: int, flags: int = 4) -> bytes:
    """A GTID event of MariaDB: 1 standalone, 4 transactional, 64 prepared XA, 128 completed XA."""
    return event(162, struct.pack("<qIB", number, 0, flags))


def query(sql: str, thread: int = 3) -> bytes:
    return event(2, struct.pack("<IIBHH", thread, 0, 1, 0, 0) + b"d\0" + sql.encode())


def table_map() -> bytes:
    return event(19, b"table map")


def rows(kind: int = 30, body: bytes = b"rows") -> bytes:
    return event(kind, body)


def xid() -> bytes:
    return event(16, b"12345678")


def xa_prepare(name: bytes, *, one_phase: bool = False) -> bytes:
    return event(38, bytes([one_phase]) + struct.pack("<iII", 1, len(name), 0) + name)


def xa(verb: str, name: bytes) -> bytes:
    return query(f"XA {verb} X'{name.hex()}',X'',1")


def batch(*parts: bytes, offset: int = 100, file: str = FILE) -> EventBatch:
    """The events as the stream reads them: framed, each with its offset in the file."""
    data = b"".join(without_checksum(part) for part in parts)
    found, _ = frame_events(np.frombuffer(bytearray(data), np.uint8), 0, len(data))
    found.offsets = offset + np.concatenate(([0], np.cumsum(found.sizes)[:-1]))
    found.file = file
    return found


def without_checksum(part: bytes) -> bytes:
    body = bytearray(part[:-4])
    body[9:13] = len(body).to_bytes(4, "little")
    return bytes(body)


class Log:
    """An assembler, and where its log ends."""

    def __init__(
        self,
        offset: LogOffset = MYSQL_OFFSET,
        *,
        include_query: bool = False,
        hint: steps.RereadHint | None = None,
        limit_bytes: int = 1 << 20,
    ) -> None:
        flavour = "mariadb" if offset.server.startswith("server_id=") else "mysql"
        self.offset = offset
        self.memory = PendingMemory(limit_bytes)
        self.assembler = TransactionAssembler(
            LogCursor(offset, flavour), flavour, include_query=include_query, hint=hint, memory=self.memory
        )
        self.end = offset.start.pos

    def steps(self, *parts: bytes) -> Iterator[steps.Step]:
        one = batch(*parts, offset=self.end, file=self.assembler.cursor.file)
        self.end += int(one.sizes.sum())
        return self.assembler.steps(one)

    def read(self, *parts: bytes) -> list[str]:
        """The steps of the events, in short: rows with their ordinal (each event is one row) and their offset."""
        return [self._short(step) for step in self.steps(*parts)]

    def boundary_offset(self) -> LogOffset:
        return self.assembler.boundary_offset(self.offset)

    def _short(self, step: steps.Step) -> str:
        name = type(step).__name__
        if isinstance(step, steps.Rows):
            step.transaction.next_ordinal += 1
            body = bytes(step.batch.memory[step.start + 19 : step.end]).decode()
            return f"{name} {body} #{step.transaction.next_ordinal - 1} {step.offset - self.offset.start.pos}"
        if isinstance(step, steps.SqlText):
            return f"{name} {step.sql}"
        if isinstance(step, steps.Definition):
            return f"{name} {step.query.sql}"
        return name


