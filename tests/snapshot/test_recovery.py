"""What goes wrong during a snapshot, and that nothing is lost by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from devservers import Database
from producer.snapshot import snapshot_state
from tests.support.chunk_writers import FaultyChunkWriter, MemoryTopics, broken
from tests.support.memory_log import PATIENCE_S, MemoryLog, running
from tests.support.servers import database
from tests.support.snapshots import Source, ids, memory_log, snapshot_rows

SERVERS = ("mysql80", "mariadb114")


@pytest.fixture(params=SERVERS)
def source(request: pytest.FixtureRequest, fresh_database: Callable[[Database], str]) -> Iterator[Source]:
    server = database(request.param)
    made = Source(server, fresh_database(server))
    yield made
    made.connection.close()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_state, "FIRST_DELAY_S", 0.02)
    monkeypatch.setattr(snapshot_state, "MAX_DELAY_S", 0.1)


def start_snapshot(source: Source, log: MemoryLog, *, chunks: int = 2) -> None:
    """A request that has some chunks done, a window open and many chunks to go; reading the log pauses there."""
    log.hold_when(lambda: len(log.durable.reported("IN_PROGRESS")) >= chunks and bool(log.durable.documents("window")))
    source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]}, "r")
    log.wait(log.hold.is_set, "some chunks done, and a window open")


def test_after_a_crash_the_chunks_not_done_are_read_and_the_others_are_not(source: Source) -> None:
    source.numbers("t", 1500)
    log = memory_log(source, readers=2)
    log.start()
    start_snapshot(source, log, chunks=4)
    log.crash()
    document = log.durable.documents("table")[0]
    done = document["rows"]
    assert 0 < done < 1500
    orphans = {window["id"]: window["bound"] for window in log.durable.documents("window")}
    before = len(snapshot_rows(log.durable, source.schema, "t"))
    again = memory_log(source, log.durable, readers=2)
    with running(again):
        again.wait_reported("COMPLETED")
    assert sorted(set(ids(again.durable, source.schema, "t"))) == list(range(1, 1501))
    assert len(snapshot_rows(again.durable, source.schema, "t")) - before == 1500 - done
    assert orphans.keys().isdisjoint(marker.fields["window"] for marker in again.durable.marked("close")[4:])
    (complete,) = again.durable.marked("complete")
    assert complete.fields["rows"] == 1500
    assert complete.fields["first_bound"] <= document["first_bound"]


def test_the_horizon_never_falls_and_never_passes_a_window_that_may_still_write(source: Source) -> None:
    source.numbers("t", 1200)
    log = memory_log(source, readers=2)
    log.start()
    start_snapshot(source, log)
    log.crash()
    first_bound = min(window["bound"] for window in log.durable.documents("window"))
    commits = len(log.durable.horizons)
    slow = threading.Event()

    class SlowToFence(FaultyChunkWriter):
        pass

    def sink(topics: MemoryTopics, slot: int) -> FaultyChunkWriter:
        return SlowToFence(topics, slot, lambda step: (step == "fence" and slow.wait(PATIENCE_S), None)[1])

    again = memory_log(source, log.durable, readers=2, sink=sink)
    with running(again):
        again.wait(lambda: len(again.durable.horizons) > commits + 3, "cuts")
        assert {horizon.text for _, horizon in again.durable.horizons[commits:]} == {first_bound}
        slow.set()
        again.wait_reported("COMPLETED")
        again.wait(lambda: not again.durable.documents("window"), "no window registered")
    horizons = [horizon for _, horizon in again.durable.horizons]
    assert horizons == sorted(horizons)
    assert all(horizon <= position for position, horizon in again.durable.horizons)


def test_a_process_with_fewer_readers_fences_the_slots_of_the_one_before(source: Source) -> None:
    source.numbers("t", 1200)
    log = memory_log(source, readers=4)
    log.start()
    start_snapshot(source, log)
    log.crash()
    assert log.durable.documents("window")
    log.durable.topics.fences = 0
    again = memory_log(source, log.durable, readers=1)
    with running(again):
        again.wait(lambda: log.durable.topics.fences >= 4, "four slots fenced")
        again.wait_reported("COMPLETED")


def test_a_signal_table_that_is_taken_away_in_a_snapshot_lets_go_of_the_horizon(source: Source) -> None:
    source.numbers("t", 1200)
    log = memory_log(source)
    log.start()
    start_snapshot(source, log)
    log.crash()
    assert log.durable.documents("window")
    settings = replace(log.settings, source=replace(log.settings.source, signal_table=None))
    again = MemoryLog(settings, log.durable, source.tables)
    with running(again):
        again.wait(lambda: not again.durable.documents("window"), "no window registered")
        again.wait(lambda: again.durable.horizons[-1][0] == again.durable.horizons[-1][1], "the horizon advances")
        (waiting,) = again.coordinator.progress()
        assert "source.signal_table" in waiting.error
    restarted = memory_log(source, log.durable)
    with running(restarted):
        restarted.wait_reported("COMPLETED")
    assert sorted(set(ids(restarted.durable, source.schema, "t"))) == list(range(1, 1201))


def test_a_source_that_takes_no_rows_for_a_while_is_waited_for(
    fresh_database: Callable[[Database], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made read-only before a switch-over, for longer than a wrong query is tried."""
    server = database("mysql80")
    source = Source(server, fresh_database(server))
    source.numbers("t", 300)
    count, attempts = snapshot_state.Tries.count, [0]

    def counted(tries: snapshot_state.Tries, **how: bool) -> None:
        attempts[0] += 1
        count(tries, **how)

    monkeypatch.setattr(snapshot_state.Tries, "count", counted)
    log = memory_log(source)
    with running(log):
        log.hold.set()
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]})
        source.run("SET GLOBAL super_read_only = ON")
        try:
            log.hold.clear()
            log.wait(lambda: any("read-only" in scan.error for scan in log.coordinator.progress()), "an attempt")
            log.wait(lambda: attempts[0] > 2 * snapshot_state.MAX_ATTEMPTS, "more attempts than a wrong query has")
        finally:
            source.run("SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
        log.wait_reported("COMPLETED")
        assert not log.durable.reported("ABORTED")
    assert ids(log.durable, source.schema, "t") == list(range(1, 301))


def test_a_pause_survives_a_restart(source: Source) -> None:
    source.numbers("t", 1200)
    log = memory_log(source, readers=1)
    log.start()
    start_snapshot(source, log)
    source.signal("pause-snapshot")
    log.hold.clear()
    log.wait_reported("PAUSED")
    log.crash()
    rows = len(ids(log.durable, source.schema, "t"))
    again = memory_log(source, log.durable, readers=1)
    with running(again):
        again.wait(lambda: not again.durable.documents("window"), "no window registered")
        source.run("UPDATE t SET v = 0 WHERE id = 1")
        end = source.end()
        again.wait(lambda: again.durable.horizons[-1][0] >= end, "the log continues")
        assert len(ids(again.durable, source.schema, "t")) == rows
        assert len(again.durable.reported("PAUSED")) == 1
        source.signal("resume-snapshot")
        again.wait_reported("COMPLETED")
    assert sorted(set(ids(again.durable, source.schema, "t"))) == list(range(1, 1201))


def test_a_signal_whose_answer_was_not_committed_is_carried_out_once_after_the_crash(source: Source) -> None:
    source.numbers("t", 50)
    log = memory_log(source)
    log.hold.set()
    log.start()
    source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]}, "r")
    log.crash()
    assert log.durable.notifications == []
    again = memory_log(source, log.durable)
    with running(again):
        again.wait_reported("COMPLETED")
    assert len(again.durable.reported("ACCEPTED")) == 1
    assert ids(again.durable, source.schema, "t") == list(range(1, 51))


@pytest.mark.parametrize("source", SERVERS[:1], indirect=True)
@pytest.mark.parametrize("step", ["write", "commit", "committed", "abort", "fence"])
def test_a_broken_broker_costs_an_attempt_and_no_row(source: Source, step: str) -> None:
    source.numbers("t", 600)
    strikes = [0]

    def sink(topics: MemoryTopics, slot: int) -> FaultyChunkWriter:
        def fault(at: str) -> None:
            if at == "write" and step in ("abort", "fence") and strikes[0] == 0:
                strikes[0] = 1
                raise broken(at)
            if at == step and strikes[0] < 3:
                strikes[0] += 1
                raise broken(at)

        return FaultyChunkWriter(topics, slot, fault)

    log = memory_log(source, sink=sink)
    with running(log):
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]})
        log.wait_reported("COMPLETED")
    assert strikes[0] >= 2
    assert sorted(set(ids(log.durable, source.schema, "t"))) == list(range(1, 601))
    (complete,) = log.durable.marked("complete")
    assert complete.fields["rows"] == 600


def test_a_chunk_that_always_fails_fails_its_table_with_a_clear_error_and_the_request_is_not_complete(
    source: Source,
) -> None:
    source.numbers("t", 300)
    source.numbers("u", 30)
    log = memory_log(source)
    with running(log):
        source.signal(
            "execute-snapshot",
            {
                "data-collections": [f"{source.schema}\\.[tu]"],
                "additional-conditions": [{"data-collection": f"{source.schema}.t", "filter": "nosuch > 3"}],
            },
            "r",
        )
        log.wait_reported("ABORTED")
        states = {p.table.split(".")[1]: (p.state, p.error) for p in log.coordinator.progress()}
    assert states["u"] == ("done", "")
    assert states["t"][0] == "failed"
    assert "nosuch" in states["t"][1]
    assert log.durable.reported("COMPLETED") == []
    assert "nosuch" in log.durable.reported("ABORTED")[0].additional_data["reason"]
    scanned = {
        n.additional_data["scanned_collection"]: n.additional_data
        for n in log.durable.reported("TABLE_SCAN_COMPLETED")
    }
    assert scanned[f"{source.schema}.t"]["status"] == "SQL_EXCEPTION"
    assert [marker.table for marker in log.durable.marked("complete")] == [f"{source.schema}.u"]
    assert log.durable.documents("request")[0]["state"] == "failed"


REFUSED = (
    "nosuch > 3",
    "id >",
    "nosuch(id) = 1",
    "id IN (SELECT id FROM nowhere.nothing)",
    "id = (SELECT 1, 2)",
    "SUM(id) > 1",
    "id - 9223372036854775807 - 9223372036854775807 > 0",
    "id REGEXP '('",
)


def test_a_filter_that_the_server_refuses_fails_at_once_and_holds_no_later_request_up(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight attempts take half a minute, and none of them can succeed."""
    source.numbers("t", 30)
    log = memory_log(source)
    data = {"data-collections": [f"{source.schema}.t"]}
    with running(log):
        for number, refused in enumerate(REFUSED):
            condition = {"data-collection": f"{source.schema}.t", "filter": refused}
            source.signal("execute-snapshot", {**data, "additional-conditions": [condition]}, f"r{number}")
        source.signal("execute-snapshot", data, "last")
        log.wait_reported("COMPLETED")
    for number, refused in enumerate(REFUSED):
        (note,) = [n for n in log.durable.reported("ABORTED") if n.id == f"r{number}"]
        assert f"the source refuses the filter {refused!r} of {source.schema}.t: " in note.additional_data["reason"]
    assert sorted(ids(log.durable, source.schema, "t")) == list(range(1, 31)), "of the last request"
    said = "".join(capsys.readouterr())
    assert "snapshot.planning_failed" not in said
    assert "snapshot.chunk_failed" not in said


def test_killed_connections_are_replaced(source: Source) -> None:
    source.numbers("t", 1500)
    log = memory_log(source, readers=2)
    with running(log):
        start_snapshot(source, log)
        log.hold.clear()
        for _ in range(5):
            for thread, command in source.rows(
                "SELECT id, command FROM information_schema.processlist WHERE user = 'tidemark'"
            ):
                if command != "Binlog Dump" and thread != source.connection.thread_id():
                    try:
                        source.run(f"KILL {thread}")
                    except pymysql.MySQLError:
                        continue
        log.wait_reported("COMPLETED")
    assert sorted(set(ids(log.durable, source.schema, "t"))) == list(range(1, 1501))


def test_a_ddl_in_the_middle_has_the_chunks_across_it_read_again_with_the_new_columns(source: Source) -> None:
    source.numbers("t", 1200)
    log = memory_log(source, readers=3)
    with running(log):
        start_snapshot(source, log)
        source.run("ALTER TABLE t ADD COLUMN added INT NOT NULL DEFAULT 5")
        log.hold.clear()
        log.wait_reported("COMPLETED")
    best: dict[int, tuple[str, dict[str, Any]]] = {}
    changed_at = max(
        window["source"]["sequence"]
        for window in snapshot_rows(log.durable, source.schema, "t")
        if "added" not in window["after"]
    )
    for row in snapshot_rows(log.durable, source.schema, "t"):
        key, version = row["after"]["id"], row["source"]["sequence"]
        if key not in best or version > best[key][0]:
            best[key] = (version, row["after"])
    assert sorted(best) == list(range(1, 1201))
    late = [after for version, after in best.values() if version > changed_at]
    assert late
    assert all(after["added"] == 5 for after in late)


def test_a_changed_primary_key_has_the_table_planned_again(source: Source) -> None:
    source.run("CREATE TABLE t (id BIGINT NOT NULL, v INT NOT NULL, PRIMARY KEY (id))")
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(i, 3000 - i) for i in range(1200)])
        cursor.execute("ANALYZE NO_WRITE_TO_BINLOG TABLE t")  # as Source.numbers does
    log = memory_log(source, readers=2)
    with running(log):
        start_snapshot(source, log)
        source.run("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)")
        log.hold.clear()
        log.wait_reported("COMPLETED")
    (complete,) = log.durable.marked("complete")
    assert complete.fields["rows"] == 1200
    assert set(ids(log.durable, source.schema, "t")) == set(range(1200))
    assert log.durable.documents("table")[0]["plan"]["key"][0][0] == "v"


def test_a_dropped_table_ends_its_scan_and_the_request_continues(source: Source) -> None:
    source.numbers("t", 1500)
    source.numbers("u", 10)
    log = memory_log(source, readers=1)
    with running(log):
        log.hold_at("IN_PROGRESS", 2)
        source.signal(
            "execute-snapshot", {"data-collections": [f"{source.schema}\\.t", f"{source.schema}\\.u"]}, "r"
        )
        log.wait_reported("IN_PROGRESS", 2)
        source.run("DROP TABLE t")
        log.hold.clear()
        log.wait_reported("COMPLETED")
    status = {
        n.additional_data["scanned_collection"]: n.additional_data["status"]
        for n in log.durable.reported("TABLE_SCAN_COMPLETED")
    }
    assert status == {f"{source.schema}.t": "UNKNOWN_SCHEMA", f"{source.schema}.u": "SUCCEEDED"}


def test_an_open_row_that_never_reaches_the_log_fails_with_a_clear_error(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.snapshot.reader.OPEN_PATIENCE_S", 0.2)
    monkeypatch.setattr("producer.snapshot.planning_worker.BARRIER_PATIENCE_S", 0.2)
    source.numbers("t", 300)
    log = memory_log(source)
    log.skip_signals = True
    with running(log):
        log.coordinator.requests.request_table(f"{source.schema}.t", "test")
        log.wait_reported("ABORTED")
    assert "not in the log" in log.durable.reported("ABORTED")[0].additional_data["reason"]
    assert snapshot_rows(log.durable, source.schema, "t") == []


def test_a_log_far_behind_delays_chunks_without_failing_them(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.snapshot.reader.OPEN_PATIENCE_S", 0.1)
    source.numbers("t", 80)
    log = memory_log(source)
    with running(log):
        log.hold_when(lambda: bool(log.durable.documents("window")))
        log.coordinator.requests.request_table(f"{source.schema}.t", "test")
        log.wait(log.hold.is_set, "a window")
        log.wait(lambda: log.durable.topics.aborts > 0 or bool(log.durable.topics.commits), "an abort")
        log.hold.clear()
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "t") == list(range(1, 81))


def test_prepared_xa_transactions_hold_chunks_back(source: Source) -> None:
    source.numbers("t", 50)
    xa = source.server.connect(database=source.schema)
    log = memory_log(source)
    try:
        with xa.cursor() as cursor:
            for statement in (
                "XA START 'x'",
                "INSERT INTO t VALUES (9999, 1)",
                "XA END 'x'",
                "XA PREPARE 'x'",
            ):
                cursor.execute(statement)
        with running(log):
            log.coordinator.requests.request_table(f"{source.schema}.t", "test")
            log.wait(lambda: any("XA" in p.error for p in log.coordinator.progress()), "chunks wait for XA")
            with xa.cursor() as cursor:
                cursor.execute("XA COMMIT 'x'")
            log.wait_reported("COMPLETED")
    finally:
        xa.close()
    assert ids(log.durable, source.schema, "t") == [*range(1, 51), 9999]
