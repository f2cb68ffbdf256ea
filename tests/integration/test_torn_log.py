"""MariaDB killed while it writes a transaction into its log: what it wrote stays there, what it meant is rolled back."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pymysql
import pytest

from devservers import Database, Kafka, start_database
from mysqlio.server_facts import current_position, server_facts
from producer.source.dump import BinlogStream, StreamStart
from producer.source.lineage import _begun_before, position_behind
from producer.source.log_scan import queries_between
from tests.support.producers import SIGNAL, Source
from tests.support.producing import RunningProducer

LARGE_ROWS = 20_000
LENGTH_AT = 9  # of an event's header of 19 bytes
HEADER = 19
MAGIC = 4
# What is in the log is not committed in the engine before a replica has said that it has it, and none does: however late
# the server is killed, the transaction has not happened.
NOT_ACKNOWLEDGED = (
    "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
    "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
    "SET GLOBAL rpl_semi_sync_master_enabled = ON",
)


@pytest.fixture
def source(kafka: Kafka, tmp_path: Path) -> Iterator[Source]:
    with start_database("mariadb114", tmp_path) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE torn")
        made = Source(server, "torn", kafka.bootstrap_servers)
        made.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", SIGNAL)
        yield made
        made.connection.close()


def log_of(source: Source) -> tuple[Path, int]:
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        name, end = cursor.fetchone()[:2]
    return source.server.data_dir / name, end


def events(path: Path, start: int) -> list[tuple[int, int]]:
    """Where each whole event begins and ends."""
    content, at, found = path.read_bytes(), start, []
    while at + HEADER <= len(content):
        (length,) = struct.unpack_from("<I", content, at + LENGTH_AT)
        if at + length > len(content):
            break
        found.append((at, at + length))
        at += length
    return found


def commit_large(server: Database) -> None:
    """Its rows are in the log at once, when it commits."""
    with suppress(pymysql.MySQLError), server.connect(database="torn") as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO t SELECT seq, REPEAT('x', 1000) FROM seq_10_to_{LARGE_ROWS}")


def tear(source: Source, torn_at: Callable[[list[tuple[int, int]]], int]) -> None:
    """Kill the server in the middle of a transaction's way into the log; the file then ends where `torn_at` says."""
    path, end = log_of(source)
    source.execute(*NOT_ACKNOWLEDGED)
    receive, torn = BinlogStream._receive, threading.Event()

    def later(stream: BinlogStream, deadline: float) -> bool:
        torn.wait()
        return receive(stream, deadline)

    writer = threading.Thread(target=commit_large, args=(source.server,))
    with pytest.MonkeyPatch.context() as patched:
        # Who only reads is sent a transaction before it is acknowledged: it must not get through whole if the kill is late.
        patched.setattr(BinlogStream, "_receive", later)
        try:
            writer.start()
            while path.stat().st_size < end + 1_000_000:
                assert writer.is_alive()
                time.sleep(0.001)
            source.server.kill()
        finally:
            torn.set()
    writer.join()
    whole = events(path, end)
    with path.open("r+b") as file:
        file.truncate(torn_at(whole))


@pytest.mark.parametrize(
    ("reading", "torn_at"),
    [
        pytest.param("meanwhile", lambda whole: whole[50][0] + 100, id="inside an event"),
        pytest.param("later", lambda whole: whole[50][0], id="between two events"),
        pytest.param("later", lambda whole: whole[0][0] + 10, id="inside the first event"),
        pytest.param("later", lambda whole: whole[50][0] + 10, id="inside a header"),
    ],
)
def test_a_transaction_that_the_server_died_in_never_was(
    source: Source, reading: str, torn_at: Callable[[list[tuple[int, int]]], int]
) -> None:
    with RunningProducer(source.settings()) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
        source.execute("INSERT INTO t VALUES (1, 'before')")
        producer.wait_until("it is there", lambda _: ids(source) == [1])
        if reading == "meanwhile":
            tear_and_continue(source, torn_at)
            producer.wait_until("all is read", lambda _: ids(source)[-1:] == [3])
    if reading == "later":
        tear_and_continue(source, torn_at)
        with RunningProducer(source.settings()) as producer:
            producer.wait_until("all is read", lambda _: ids(source)[-1:] == [3])
    assert ids(source) == [1, 2, 3]


def tear_and_continue(source: Source, torn_at: Callable[[list[tuple[int, int]]], int]) -> None:
    source.execute("INSERT INTO t VALUES (2, 'just before')")
    tear(source, torn_at)
    source.server.restart()
    source.connection = source.server.connect(database="torn")
    with source.connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM t")
        assert cursor.fetchone() == (2,)
    source.execute("INSERT INTO t VALUES (3, 'behind')")


def test_what_is_asked_of_the_log_across_the_torn_position_is_reported(source: Source) -> None:
    """Where the log does not name columns, DDL between the reader's place and the end is looked for."""
    source.execute("INSERT INTO t VALUES (1, 'before')")
    settings = source.settings(server_id=77).source
    with source.server.connect() as connection:
        here = current_position(connection)
    tear_and_continue(source, lambda whole: whole[50][0] + 100)
    source.execute("CREATE TABLE behind (id INT PRIMARY KEY)")
    with source.server.connect() as connection:
        end, facts = current_position(connection), server_facts(connection)
        queries = queries_between(settings, facts, StreamStart(here.file, here.pos), end)
        assert "CREATE TABLE behind (id INT PRIMARY KEY)" in [query.sql for query in queries]
        at = position_behind(settings, facts, connection, end.gtid_set)
        assert (at.file, at.pos) == (end.file, end.pos)
        with closing(_begun_before(settings, facts, StreamStart(here.file, here.pos), end)) as found:
            assert len([begun for begun in found if begun.file == end.file]) == 2


def ids(source: Source) -> list[int]:
    return [change.value["after"]["id"] for change in source.changes("t")]


@pytest.mark.parametrize(
    "torn_at",
    [
        pytest.param(lambda whole: whole[50][0] + 100, id="inside an event"),
        pytest.param(lambda whole: whole[50][0], id="between two events", marks=pytest.mark.slow),
    ],
)
def test_what_was_prepared_before_the_torn_position_is_published_at_its_commit(
    source: Source, torn_at: Callable[[list[tuple[int, int]]], int]
) -> None:
    """Reading begins at the XA PREPARE at each start, and so comes by the torn places again."""
    settings = source.settings()
    with RunningProducer(settings) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
        source.execute("INSERT INTO t VALUES (1, 'before')")
        with source.server.connect(database="torn") as session, session.cursor() as cursor:
            for statement in ("XA START 'x'", "INSERT INTO t VALUES (4, 'prepared')", "XA END 'x'", "XA PREPARE 'x'"):
                cursor.execute(statement)
        tear_and_continue(source, torn_at)
        producer.wait_until("all is read", lambda _: ids(source)[-1:] == [3])
        tear(source, torn_at)
        source.server.restart()
        source.connection = source.server.connect(database="torn")
        source.execute("INSERT INTO t VALUES (5, 'behind both')")
        producer.wait_until("all is read again", lambda _: ids(source)[-1:] == [5])
    source.execute("XA COMMIT 'x'")
    with RunningProducer(settings) as producer:
        producer.wait_until("it is committed", lambda _: ids(source)[-1:] == [4])
    assert ids(source) == [1, 2, 3, 5, 4]
