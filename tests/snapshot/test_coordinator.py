"""The coordinator on real servers, with the log reader's part played by `tests.support.memory_log`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from devservers import Database
from tests.support.memory_log import running
from tests.support.servers import database
from tests.support.snapshots import Source, ids, memory_log, snapshot_rows

SERVERS = ("mysql80", "mariadb114")


@pytest.fixture(params=SERVERS)
def source(request: pytest.FixtureRequest, fresh_database: Callable[[Database], str]) -> Iterator[Source]:
    server = database(request.param)
    made = Source(server, fresh_database(server))
    yield made
    made.connection.close()


def test_a_signalled_table_is_read_in_chunks_and_every_step_is_reported(source: Source) -> None:
    source.numbers("t", 1000)
    log = memory_log(source)
    with running(log):
        name = f"{source.schema}.t"
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}\\.t"]})
        log.wait_reported("COMPLETED")
    durable = log.durable
    assert ids(durable, source.schema, "t") == list(range(1, 1001))
    row = snapshot_rows(durable, source.schema, "t")[0]
    assert row["op"] == "r"
    assert row["before"] is None
    assert row["source"]["snapshot"] == "incremental"
    kinds = [notification.type for notification in durable.notifications]
    assert kinds[:2] == ["ACCEPTED", "STARTED"]
    assert kinds[-2:] == ["TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert kinds.count("IN_PROGRESS") >= 10
    opens, closes = durable.marked("open"), durable.marked("close")
    assert len(opens) == len(closes) >= 10
    (complete,) = durable.marked("complete")
    assert complete.table == name
    assert complete.fields["rows"] == 1000
    assert complete.fields["whole_table"] is True
    lows = {row["source"]["sequence"] for row in snapshot_rows(durable, source.schema, "t")}
    assert complete.fields["first_bound"] <= min(lows)
    assert durable.documents("window") == []
    assert durable.documents("request")[0]["state"] == "done"


def test_every_table_of_the_initial_snapshot_is_read_and_marked_true(source: Source) -> None:
    source.numbers("a", 250)
    source.numbers("b", 1)
    source.numbers("nothing", 0)
    log = memory_log(source)
    with running(log, initial=True):
        log.wait_reported("COMPLETED")
    durable = log.durable
    assert ids(durable, source.schema, "a") == list(range(1, 251))
    assert ids(durable, source.schema, "b") == [1]
    assert {row["source"]["snapshot"] for row in snapshot_rows(durable, source.schema, "a")} == {"true"}
    scanned = {n.additional_data["scanned_collection"]: n for n in durable.reported("TABLE_SCAN_COMPLETED")}
    assert scanned[f"{source.schema}.nothing"].additional_data["status"] == "EMPTY"
    assert scanned[f"{source.schema}.a"].additional_data["total_rows_scanned"] == "250"
    assert {n.aggregate_type for n in durable.notifications} == {"Initial Snapshot"}
    assert len(durable.marked("complete")) == 3


def test_patterns_match_in_any_letter_case_and_a_condition_makes_it_no_whole_table(source: Source) -> None:
    source.numbers("orders", 300)
    source.numbers("orders_old", 5)
    log = memory_log(source)
    with running(log):
        source.signal(
            "execute-snapshot",
            {
                "data-collections": [f"{source.schema.upper()}\\.ORDERS"],
                "additional-conditions": [
                    {"data-collection": f"{source.schema}.orders", "filter": "id <= 10 OR id > 295"}
                ],
            },
        )
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "orders") == [*range(1, 11), *range(296, 301)]
    assert ids(log.durable, source.schema, "orders_old") == []
    (complete,) = log.durable.marked("complete")
    assert complete.fields["whole_table"] is False


def test_a_table_without_primary_key_is_refused_with_a_clear_error_and_the_others_are_read(source: Source) -> None:
    source.run("CREATE TABLE nokey (x INT)", "INSERT INTO nokey VALUES (1)")
    source.numbers("t", 20)
    log = memory_log(source)
    with running(log):
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}\\..*"]})
        log.wait_reported("COMPLETED")
    reported = {
        n.additional_data["scanned_collection"]: n.additional_data
        for n in log.durable.reported("TABLE_SCAN_COMPLETED")
    }
    refused = reported[f"{source.schema}.nokey"]
    assert refused["status"] == "NO_PRIMARY_KEY"
    assert "ADD PRIMARY KEY" in refused["reason"]
    assert reported[f"{source.schema}.t"]["status"] == "SUCCEEDED"
    assert ids(log.durable, source.schema, "t") == list(range(1, 21))
    assert [marker.table for marker in log.durable.marked("complete")] == [f"{source.schema}.t"]


WRONG_SIGNALS = (
    ("execute-snapshot", '{"data-collections": ["x"', "not valid JSON"),
    ("execute-snapshot", {}, "data-collections is missing"),
    ("execute-snapshot", {"data-collections": ["{schema}.ordres"]}, "did you mean {schema}.orders?"),
    ("execute-snapshot", {"data-collections": ["[" ]}, "not a regular expression"),
    ("execute-snapshots", {}, "did you mean 'execute-snapshot'?"),
    ("stop-snapshot", {}, "no snapshot is running"),
    ("pause-snapshot", {}, "nothing to pause"),
    ("resume-snapshot", {}, "no snapshot is paused"),
    (None, {}, "a signal lacks its type"),
    ("", {}, "a signal lacks its type"),
    ("snapshot-window-open", {}, "are written by chunk readers"),
    ("snapshot-window-close", "nonsense", "are written by chunk readers"),
)  # fmt: skip
"""Type and data of a signal that cannot be carried out, and a part of the answer."""


@pytest.mark.parametrize("source", SERVERS[:1], indirect=True)
def test_a_signal_that_cannot_be_carried_out_is_answered_with_the_reason(source: Source) -> None:
    source.numbers("orders", 1)
    source.run("CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")  # the user's own
    log = memory_log(source)
    with running(log):
        for number, (kind, data, _) in enumerate(WRONG_SIGNALS):
            text = data if isinstance(data, str) else json.dumps(data).replace("{schema}", source.schema)
            source.signal(kind, text, f"{number}-open" if "window" in str(kind) else f"{number}")
        log.wait_reported("REJECTED", len(WRONG_SIGNALS))
    reasons = {answer.id: answer.additional_data["reason"] for answer in log.durable.reported("REJECTED")}
    assert len(log.durable.notifications) == len(WRONG_SIGNALS)
    for number, (kind, data, reason) in enumerate(WRONG_SIGNALS):
        found = reasons[f"{number}-open" if "window" in str(kind) else f"{number}"]
        assert reason.format(schema=source.schema) in found, (kind, data)


def test_an_id_used_twice_is_carried_out_once(source: Source) -> None:
    source.numbers("t", 10)
    log = memory_log(source)
    with running(log):
        data = {"data-collections": [f"{source.schema}.t"]}
        source.signal("execute-snapshot", data, "again")
        log.wait_reported("COMPLETED")
        source.run("DELETE FROM signals WHERE id = 'again'")
        source.signal("execute-snapshot", data, "again")
        log.wait_reported("REJECTED")
    assert "was used before" in log.durable.reported("REJECTED")[0].additional_data["reason"]
    assert ids(log.durable, source.schema, "t") == list(range(1, 11))


def test_two_requests_for_one_table_are_read_one_after_the_other(source: Source) -> None:
    source.numbers("t", 400)
    log = memory_log(source)
    with running(log):
        log.hold.set()
        data = {"data-collections": [f"{source.schema}.t"]}
        first, second = source.signal("execute-snapshot", data), source.signal("execute-snapshot", data)
        log.hold.clear()
        log.wait_reported("COMPLETED", 2)
    assert ids(log.durable, source.schema, "t") == sorted(2 * list(range(1, 401)))
    ended = [n.id for n in log.durable.notifications if n.type == "COMPLETED"]
    assert ended == [first, second]
    order = [n.id for n in log.durable.notifications if n.type == "IN_PROGRESS"]
    assert order == sorted(order)


def test_a_paused_snapshot_holds_nothing_and_continues_when_resumed(source: Source) -> None:
    source.numbers("t", 2000)
    log = memory_log(source, readers=2)
    with running(log):
        log.hold_at("IN_PROGRESS", 3)
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]}, "r")
        log.wait_reported("IN_PROGRESS", 3)
        source.signal("pause-snapshot")
        log.hold.clear()
        log.wait_reported("PAUSED")
        log.wait(lambda: not log.durable.documents("window"), "no window registered")
        position, horizon = log.durable.horizons[-1]
        assert horizon == position
        rows = len(ids(log.durable, source.schema, "t"))
        assert 0 < rows < 2000
        source.run("UPDATE t SET v = v + 1 WHERE id = 1")
        log.wait(lambda: log.durable.horizons[-1][1] > position, "the horizon moves on")
        assert len(ids(log.durable, source.schema, "t")) == rows
        assert {p.state for p in log.coordinator.progress()} == {"paused"}
        source.signal("resume-snapshot")
        log.wait_reported("RESUMED")
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "t") == list(range(1, 2001))


def test_stop_cancels_the_tables_it_names_also_while_paused(source: Source) -> None:
    source.numbers("t", 2000)
    source.numbers("u", 50)
    log = memory_log(source, readers=1)
    with running(log):
        log.hold_at("IN_PROGRESS")
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}\\.[tu]"]}, "r")
        log.wait_reported("IN_PROGRESS")
        source.signal("pause-snapshot")
        log.hold.clear()
        log.wait_reported("PAUSED")
        source.signal("stop-snapshot", {"data-collections": [f"{source.schema}.t"]})
        log.wait_reported("TABLE_SCAN_COMPLETED")
        source.signal("resume-snapshot")
        log.wait_reported("COMPLETED")
        states = {p.table.split(".")[1]: p.state for p in log.coordinator.progress()}
        assert states == {"t": "cancelled", "u": "done"}
        log.wait(lambda: not log.durable.documents("window"), "no window registered")
    assert ids(log.durable, source.schema, "u") == list(range(1, 51))
    assert len(ids(log.durable, source.schema, "t")) < 2000
    assert [marker.table for marker in log.durable.marked("complete")] == [f"{source.schema}.u"]


def test_stop_of_everything_aborts_the_request(source: Source) -> None:
    source.numbers("t", 3000)
    log = memory_log(source, readers=1)
    with running(log):
        log.hold_at("IN_PROGRESS")
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]}, "r")
        log.wait_reported("IN_PROGRESS")
        source.signal("stop-snapshot")
        log.hold.clear()
        log.wait_reported("ABORTED")
        log.wait(lambda: not log.durable.documents("window"), "no window registered")
    assert [n.id for n in log.durable.reported("ABORTED")] == ["r"]
    assert log.durable.reported("COMPLETED") == []
    assert log.durable.documents("request")[0]["state"] == "cancelled"


def test_rows_beyond_the_largest_key_are_newer_than_the_first_bound(source: Source) -> None:
    """Rows inserted after the cap was read are in no chunk: a sweep must not take them for stale ones."""
    source.numbers("t", 500)
    log = memory_log(source)
    inserted: list[int] = []

    def tables() -> list[tuple[str, str]]:
        # asked while the planner works: rows arrive between the cap and the first window's bound
        inserted.append(1000 + len(inserted))
        source.run(f"INSERT INTO t VALUES ({inserted[-1]}, 0)")
        return [(source.schema, "t")]

    log.coordinator.shared.captured = tables
    with running(log):
        log.coordinator.requests.request_table(f"{source.schema}.t", "test")
        log.wait_reported("COMPLETED")
    assert len(inserted) > 2
    (complete,) = log.durable.marked("complete")
    cap_low = log.durable.documents("table")[0]["plan"]["cap_low"]
    assert complete.fields["first_bound"] <= cap_low
    assert set(range(1, 501)) <= set(ids(log.durable, source.schema, "t"))


def test_an_automatic_snapshot_asked_for_twice_is_queued_once(source: Source) -> None:
    source.numbers("t", 150)
    log = memory_log(source)
    with running(log):
        with log.coordinator.shared.changed:  # else somebody may begin to read it in between
            for _ in range(3):
                log.coordinator.requests.request_table(f"{source.schema}.t", "a DDL filled a column")
        log.wait_reported("COMPLETED")
    assert ids(log.durable, source.schema, "t") == list(range(1, 151))
    assert log.durable.documents("request")[0]["origin"] == "automatic"


def test_progress_counts_rows_of_the_estimate(source: Source) -> None:
    source.numbers("t", 1200)
    source.run("ANALYZE TABLE t")
    log = memory_log(source)
    with running(log):
        source.signal("execute-snapshot", {"data-collections": [f"{source.schema}.t"]})
        log.wait_reported("COMPLETED")
        (progress,) = log.coordinator.progress()
    assert (progress.rows, progress.state, progress.planned, progress.chunks_open) == (1200, "done", True, 0)
    assert progress.estimate is not None
    assert 600 <= progress.estimate <= 2400
