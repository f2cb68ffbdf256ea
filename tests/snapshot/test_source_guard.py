"""Guarding the source, on real servers: chunks follow their cost, rows a rate, and readers wait while the source is under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pymysql
import pytest

from devservers import Database
from producer.snapshot import load_guard
from producer.snapshot.pace import MIN_CHUNK_ROWS
from producer.source import server_load
from tests.support.memory_log import MemoryLog, running
from tests.support.servers import database, end_connection
from tests.support.snapshots import Source, ids, memory_log, snapshot_rows

SERVERS = ("mysql80", "mariadb114")
KIB = 1 << 10


@pytest.fixture(params=SERVERS)
def source(request: pytest.FixtureRequest, fresh_database: Callable[[Database], str]) -> Iterator[Source]:
    server = database(request.param)
    made = Source(server, fresh_database(server))
    yield made
    made.connection.close()


def wide(source: Source, rows: int, row_bytes: int) -> None:
    """A table whose statistics are of its first row, so that nothing but reading shows how wide the others are."""
    source.run("CREATE TABLE t (id BIGINT PRIMARY KEY, v LONGTEXT) STATS_AUTO_RECALC=0")
    source.run("INSERT INTO t SELECT 0, ''", "ANALYZE NO_WRITE_TO_BINLOG TABLE t")
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, REPEAT('x', %s))", [(n, row_bytes) for n in range(1, rows)])


def sizes(log: MemoryLog) -> list[int]:
    """The rows of each chunk, in the order in which they were read; for a single reader."""
    done = [int(one.additional_data["rows_done"]) for one in log.durable.reported("IN_PROGRESS")]
    return [after - before for before, after in zip([0, *done], done, strict=False)]


def snapshot_of(source: Source, log: MemoryLog, **more: Any) -> None:
    log.hold.clear()
    source.signal("execute-snapshot", {"data-collections": [f"{source.schema}\\.t"], **more})


def test_chunks_of_wide_rows_become_smaller_and_every_row_arrives_once(source: Source) -> None:
    wide(source, 1200, 16 * KIB)
    log = memory_log(source, readers=1, chunk_rows=300, chunk_target_bytes=512 * KIB, chunk_target_ms=0)
    with running(log):
        snapshot_of(source, log)
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "t") == list(range(1200))
    found = sizes(log)
    assert found[0] == 300
    assert all(after >= before // 4 for before, after in pairwise(found[:-1])), found
    assert found[-2] == 31, found
    (document,) = log.durable.documents("table")
    assert document["chunk_rows"] == 31


def test_chunks_of_a_slow_table_become_smaller_and_every_row_arrives_once(source: Source) -> None:
    """Its rows take a millisecond each. Several readers share the sizes of the table."""
    source.numbers("t", 6000)
    log = memory_log(source, readers=3, chunk_rows=1000, chunk_target_ms=300)
    with running(log):
        slow = {"data-collection": f"{source.schema}.t", "filter": "SLEEP(0.001) = 0"}
        snapshot_of(source, log, **{"additional-conditions": [slow]})
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "t") == list(range(1, 6001))
    (document,) = log.durable.documents("table")
    assert MIN_CHUNK_ROWS <= document["chunk_rows"] <= 400, document
    assert len(log.durable.marked("close")) >= 10


def test_a_restart_continues_with_other_sizes(source: Source) -> None:
    """What was planned is read as planned, and the rest in the sizes of the settings of then."""
    wide(source, 1500, 8 * KIB)
    log = memory_log(source, readers=2, chunk_rows=200, chunk_target_bytes=256 * KIB, chunk_target_ms=0)
    log.start()
    log.hold_at("IN_PROGRESS", 4)
    source.signal("execute-snapshot", {"data-collections": [f"{source.schema}\\.t"]})
    log.wait_reported("IN_PROGRESS", 4)
    log.crash()
    (document,) = log.durable.documents("table")
    assert 0 < document["rows"] < 1500
    assert document["chunk_rows"] < 200
    again = memory_log(source, log.durable, readers=3, chunk_rows=70, chunk_target_bytes=0, chunk_target_ms=0)
    with running(again):
        again.wait_reported("COMPLETED")
    assert sorted(set(ids(again.durable, source.schema, "t"))) == list(range(1500))
    (complete,) = again.durable.marked("complete")
    assert complete.fields["rows"] == 1500


def test_no_more_rows_are_read_than_the_rate_allows(source: Source) -> None:
    source.numbers("t", 2000)
    log = memory_log(source, readers=3, chunk_rows=1000, max_rows_per_s=500)
    with running(log):
        begun = time.monotonic()
        snapshot_of(source, log)
        log.wait_reported("COMPLETED")
        took_s = time.monotonic() - begun
    assert ids(log.durable, source.schema, "t") == list(range(1, 2001))
    assert took_s >= (2000 - 2 * 500) / 500, "all but the rows of the first second and of one chunk"
    assert len(log.durable.marked("close")) >= 4, "a chunk has a second's rows at most"


@contextmanager
def load(source: Source, threads: int) -> Iterator[None]:
    """So many statements that run on the server until the end."""
    connections = [source.server.connect() for _ in range(threads)]

    def sleep(connection: Any) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("DO SLEEP(600)")
        except pymysql.MySQLError:  # it is killed
            pass

    running_now = [threading.Thread(target=sleep, args=(connection,), daemon=True) for connection in connections]
    for thread in running_now:
        thread.start()
    try:
        deadline = time.monotonic() + 60
        while (server_load.threads_running(source.connection).value or 0) < threads:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        with source.connection.cursor() as cursor:
            for connection in connections:
                end_connection(cursor, connection.thread_id())
        for thread in running_now:
            thread.join(60)


def test_readers_wait_while_the_source_is_under_load_and_hold_nothing(source: Source) -> None:
    source.numbers("t", 1000)
    log = memory_log(source, readers=2, chunk_rows=50, pause_when={"threads_running": 20})
    with running(log):
        with load(source, 40):
            snapshot_of(source, log)
            log.wait(lambda: log.coordinator.waits_because.startswith("Threads_running "), "the readers wait")
            reason = log.coordinator.waits_because
            assert int(reason.split()[1]) >= 40, reason
            assert reason.endswith(" > 20"), reason
            log.wait(lambda: not log.durable.documents("window"), "no window is registered")
            read = len(snapshot_rows(log.durable, source.schema, "t"))
            at = source.end()
            log.wait(lambda: log.durable.horizons[-1][1] >= at, "the horizon is not held")
            assert not log.durable.reported("COMPLETED")
            assert log.coordinator.waits_because
            assert len(snapshot_rows(log.durable, source.schema, "t")) == read == 0, "nothing is read before the first answer"
        log.wait_reported("COMPLETED")
        assert log.coordinator.waits_because == ""
    assert ids(log.durable, source.schema, "t") == list(range(1, 1001))


def test_load_that_comes_in_the_middle_stops_the_readers(source: Source) -> None:
    source.numbers("t", 1000)
    log = memory_log(source, readers=2, chunk_rows=50, pause_when={"threads_running": 20})
    with running(log):
        log.hold_at("IN_PROGRESS", 2)  # the snapshot is not over before the load has come
        snapshot_of(source, log)
        log.wait_reported("IN_PROGRESS", 2)
        with load(source, 40):
            log.wait(lambda: log.coordinator.waits_because != "", "the readers wait")
            log.hold.clear()
            log.wait(lambda: not log.durable.documents("window"), "the running windows have ended")
            rows = len(snapshot_rows(log.durable, source.schema, "t"))
            time.sleep(0.5)
            assert len(snapshot_rows(log.durable, source.schema, "t")) == rows < 1000
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "t") == list(range(1, 1001))


def test_a_source_that_is_no_replica_is_read_all_the_same_and_a_warning_says_so(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(load_guard.log, "warning", lambda event, **facts: said.append({"event": event, **facts}))
    source.numbers("t", 300)
    log = memory_log(source, pause_when={"replica_lag_s": 5})
    with running(log):
        snapshot_of(source, log)
        log.wait_reported("COMPLETED")
    assert said == [
        {"event": "snapshot.load_unknown", "figure": "replica lag in seconds", "reason": "the source is no replica"}
    ]
