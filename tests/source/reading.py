"""Reads a real server's binlog to its end, and asks the server itself what is where."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from devservers import Database
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import LogPosition, current_position
from producer.binlog import EventBatch
from producer.source.dump import BinlogStream, StreamStart
from schemas.settings import SourceSettings, TlsSettings

SERVERS = ("mysql80", pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114")  # what only 9.7 has is tested by name
SERVER_ID = 48_213


@dataclass(frozen=True, slots=True)
class Read:
    """One event as the stream gave it; `data` is header and body."""

    file: str
    offset: int
    kind: int
    size: int
    log_pos: int
    artificial: bool
    data: bytes


def settings_of(server: Database, **more: Any) -> SourceSettings:
    given = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "tables": (".*",),
        "server_id": SERVER_ID,
        "tls": TlsSettings(),
    }
    return SourceSettings(**{**given, **more})


def execute(server: Database, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
    """Run statements on one connection; the rows of the last."""
    rows: list[tuple[Any, ...]] = []
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
    return rows


@contextmanager
def as_bytes(server: Database) -> Iterator[Any]:
    """A cursor that decodes no text: statements of other tests in the log may be in any character set."""
    with server.connect(use_unicode=False) as connection, connection.cursor() as cursor:
        yield cursor


_checkpointed: set[tuple[int, bytes]] = set()


def end_of_log(server: Database) -> LogPosition:
    connection = connect(ServerAccess.of(settings_of(server)))
    try:
        if server.flavour == "mariadb":
            _wait_for_checkpoint(server)
        return current_position(connection)
    finally:
        connection.close()


def _wait_for_checkpoint(server: Database) -> None:
    """A moment after MariaDB has begun a file a thread of it writes there, by itself, that no former one is needed."""
    deadline = time.monotonic() + 30
    with as_bytes(server) as cursor:
        while time.monotonic() < deadline:
            cursor.execute("SHOW BINARY LOGS")
            file = cursor.fetchall()[-1][0]
            if (server.port, file) in _checkpointed:
                return
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file.decode()}'")
            if any(row[2] == b"Binlog_checkpoint" and row[5] == file for row in cursor.fetchall()):
                _checkpointed.add((server.port, file))
                return
            time.sleep(0.05)


@contextmanager
def stream_of(server: Database, start: StreamStart, **more: Any) -> Iterator[BinlogStream]:
    stream = BinlogStream(settings_of(server), **more)
    stream.open(start)
    try:
        yield stream
    finally:
        stream.close()


def read_to(stream: BinlogStream, end: LogPosition, timeout_s: float = 120) -> list[Read]:
    """Every event up to a position; fails when it does not come in time."""
    found: list[Read] = []
    while (stream.file, stream.position) < (end.file, end.pos):
        batch = stream.read(timeout_s)
        assert batch is not None, f"the log ended at {stream.file}:{stream.position}, before {end}"
        found += [read_event(batch, index) for index in range(batch.count)]
    return found


def read_event(batch: EventBatch, index: int) -> Read:
    return Read(
        batch.file,
        int(batch.offsets[index]),
        int(batch.types[index]),
        int(batch.sizes[index]),
        int(batch.log_pos[index]),
        batch.is_artificial(index),
        bytes(batch.memory[int(batch.starts[index]) : int(batch.ends[index])]),
    )


def read_all(server: Database, start: StreamStart) -> list[Read]:
    """Every event from `start` to the present end of the log."""
    end = end_of_log(server)
    with stream_of(server, start) as stream:
        return read_to(stream, end)


def events_by_the_server(server: Database, since: LogPosition) -> list[tuple[str, int]]:
    """(file, offset) of every event from a position on, as SHOW BINLOG EVENTS has them."""
    found: list[tuple[str, int]] = []
    files = [str(file) for file, *_ in execute(server, "SHOW BINARY LOGS")]
    with as_bytes(server) as cursor:
        for file in files:
            if file < since.file:
                continue  # of other tests, and long
            begin = f" FROM {since.pos}" if file == since.file else ""  # the events before it are many, and of other tests
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'{begin}")
            for row in cursor.fetchall():
                position = (file, int(row[1]))
                if position >= (since.file, since.pos) and position not in found[-1:]:
                    found.append(position)  # the events inside a compressed transaction all have its offset
    return found
