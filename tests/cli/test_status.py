from __future__ import annotations

import json
import re
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from producer.source.retention import ResumePosition, reckon
from schemas.errors import StateError
from schemas.identity import SourceId
from schemas.json_codec import decode, encode
from schemas.liveness import Sign
from schemas.merge_progress import MergeProgress
from schemas.position import Position
from schemas.settings import Settings, from_mapping
from schemas.state import State
from tidemark.api.source_log import SourceLog
from tidemark.commands import run
from tidemark.commands.status import as_json, as_json_of_sinks, as_text, as_text_of_sinks
from tidemark.status import reckoning
from tidemark.status.job_standing import SinkFacts
from tidemark.status.status_tree import FOLLOWING, NOT_FOLLOWED, Status

if TYPE_CHECKING:
    from producer.app import Producer

LOG = Position(0, 3, 1155)


def offset() -> dict[str, Any]:
    return {
        "v": 1, "epoch": 0, "file": "binlog.000003", "pos": 1155, "gtid_set": "", "server": "u",
        "position": LOG.text, "committed_ms": 1_000_000,
    }  # fmt: skip


def request(number: int, state: str = "running", **values: object) -> dict[str, Any]:
    return {
        "v": 1, "id": f"r{number}", "number": number, "origin": "signal", "tables": [], "state": state, "started": True,
        "pause_told": False, "position": None, "reason": "", "error": "", "created_ms": 0, "finished_ms": None,
    } | values  # fmt: skip


def task(number: int, table: str, **values: object) -> dict[str, Any]:
    return {
        "v": 1, "request": f"r{number}", "table": table, "condition": None, "state": "running", "status": "", "error": "",
        "rows": 400, "estimate": 1000, "chunks_done": 0, "next_chunk": 0, "outstanding": [], "first_bound": None,
        "last_close": None,
        "plan": {
            "key": [], "upto": None, "cap": None, "cap_low": None, "step": None, "rows_per_chunk": 0, "complete": False,
        },
    } | values  # fmt: skip


def status_of(documents: dict[str, Any], progress: dict[str, Any], now_ms: int, facts: SinkFacts | None = None) -> Status:
    """The status of documents as they are in Kafka and in the file."""
    return reckoning.status_of(State(documents, SourceId("shop")), decode(MergeProgress, progress), now_ms, facts)


def topic(table: str) -> dict[str, Any]:
    database, _, name = table.partition(".")
    return {"database": database, "table": name, "partitions": 4}


def documents() -> dict[str, Any]:
    return {
        "offset": offset(),
        "topics/shop.orders": topic("shop.orders"),
        "topics/shop.quiet": topic("shop.quiet"),
        "request/r1": request(1, "done"),
        "request/r2": request(2),
        "table/r1/shop.orders": task(1, "shop.orders", state="done", rows=1000),
        "table/r2/shop.orders": task(2, "shop.orders"),
    }


def progress(**values: object) -> dict[str, Any]:
    table = {"rows": 77, "applied_position": LOG.text, "consistent_at": None, "quarantined": 0} | values
    return {"updated_ms": 999_000, "caught_up": True, "tables": {"shop.orders": table}}


def test_nothing_started_yet_is_a_status_too() -> None:
    status = status_of({}, {}, 1_000_000)

    assert status.log is None
    assert status.tables == ()
    assert status.applied is None
    assert "producer: unknown: `tidemark run` was not started, or has not reached the source and Kafka yet" in as_text(status, status)
    assert json.loads(as_json(status, status))["log"] is None


def test_a_table_shows_its_newest_request_and_its_position_in_the_sink() -> None:
    status = status_of(documents(), progress(), 1_000_000)
    orders, quiet = status.tables

    assert (orders.table, orders.snapshot, orders.rows_read, orders.rows_estimated) == (
        "shop.orders",
        "running",
        400,
        1000,
    )
    assert orders.share == 0.4
    assert orders.sink_rows == 77
    assert (quiet.table, quiet.snapshot, quiet.applied) == ("shop.quiet", None, None)
    assert status.snapshot_running


def test_the_sink_has_applied_what_all_its_tables_have() -> None:
    behind = Position(0, 2, 9)
    known = documents()
    del known["topics/shop.quiet"]
    two = progress()
    two["tables"]["shop.other"] = {"rows": 1, "applied_position": behind.text, "consistent_at": None}

    assert status_of(known, two, 0).applied == behind
    assert status_of(documents(), progress(), 0).applied is None


def test_rate_and_eta_come_from_two_looks() -> None:
    before = status_of(documents(), progress(), 1_000_000)
    later = documents()
    later["table/r2/shop.orders"] = task(2, "shop.orders", rows=600)
    status = status_of(later, progress(), 1_002_000)

    table = json.loads(as_json(status, before))["tables"]["shop.orders"]

    assert table["rows_per_s"] == 100.0
    assert table["eta_s"] == 4.0
    assert "400 of about" not in as_text(status, before)
    assert "4 s" in as_text(status, before)


def test_more_rows_than_were_estimated_are_neither_all_nor_over_in_no_time() -> None:
    before = status_of(documents(), progress(), 1_000_000)
    status = status_of(documents() | {"table/r2/shop.orders": task(2, "shop.orders", rows=1500)}, progress(), 1_002_000)
    assert status.tables[0].share is None
    assert json.loads(as_json(status, before))["tables"]["shop.orders"]["eta_s"] is None


def test_an_age_by_a_clock_that_is_behind_is_not_called_none() -> None:
    status = status_of(documents(), progress(), 940_000)
    assert "committed 60.0 s ahead of this machine's clock" in as_text(status, status)


def test_a_pause_an_error_and_a_quarantine_are_seen() -> None:
    known = documents()
    known["request/r2"] = request(2, "paused")
    known["table/r2/shop.orders"] = task(2, "shop.orders", error="no primary key")
    status = status_of(known, progress(quarantined=3), 1_000_000)

    text = as_text(status, status)

    assert status.paused
    assert "paused" in text
    assert "shop.orders: no primary key" in text
    assert "shop.orders: 3 records are in quarantine" in text


@pytest.mark.parametrize(
    ("consistent_at", "applied", "expected"),
    [
        (None, LOG, "not consistent yet"),
        (LOG, LOG, "consistent, all applied"),
        (Position(0, 1, 4), Position(0, 2, 9), "consistent, applied to binlog.000002:9"),
    ],
)
def test_the_table_says_whether_it_is_consistent(
    consistent_at: Position | None, applied: Position, expected: str
) -> None:
    known = progress(consistent_at=consistent_at and consistent_at.text, applied_position=applied.text)
    status = status_of(documents(), known, 0)

    assert expected in as_text(status, status)


TOPICS = {"shop.orders": ("p.shop.orders", "p-snapshot.shop.orders"), "shop.quiet": ("p.shop.quiet", "p-snapshot.shop.quiet")}


def sink(behind: int = 0, quiet: int = 0, **values: object) -> SinkFacts:
    """A merge job that is alive; `behind` records of shop.orders are not merged, and `quiet` of a table never applied."""
    ends = {"p.shop.orders": {0: 10 + behind}, "p-snapshot.shop.orders": {0: 3}, "p.shop.quiet": {0: quiet}}
    facts = {"sign": Sign(at_ms=999_000), "locked": True, "topics": TOPICS, "ends": ends | {"p-snapshot.shop.quiet": {0: 0}}}
    return SinkFacts(**{**facts, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "expected", "alive"),
    [
        (sink(), "caught up", True),
        (sink(behind=7), "catching up: 1 table, 7 records behind", True),
        (sink(quiet=262_144), "catching up: 1 table, 262,144 records behind", True),  # never applied, and no silence for it
        (sink(behind=7, locked=False), "not running: start `tidemark merge`; 1 table, 7 records behind", False),
        (sink(locked=False), "not running", False),
        (sink(sign=Sign(at_ms=900_000)), "silent: no liveness record for 100 s; a process has the sink's lock", False),
        (sink(sign=Sign(at_ms=900_000), locked=None), "silent: no liveness record for 100 s; is `tidemark merge` running?", False),
        (sink(sign=Sign(at_ms=999_000, state="ended", reason="disk full"), locked=None), "Z: disk full", False),
        (sink(sign=Sign(at_ms=999_000, state="ended")), "not running", False),  # a command has the lock
        (sink(sign=Sign(at_ms=999_000, state="waiting", reason="retried soon"), locked=False), "waiting: retried soon", True),
        (sink(sign=Sign(at_ms=900_000, state="waiting", reason="retried soon"), locked=False), "not running", False),
        (sink(sign=Sign(at_ms=9_000_000, state="waiting"), locked=False), "not running", False),
        (sink(sign=None), "unknown: it writes no liveness record", None),
        (sink(sign=Sign(at_ms=900_000), is_moving=True), "caught up", True),  # its clock is behind ours
        (sink(sign=Sign(at_ms=9_000_000), is_moving=True), "caught up", True),
        (sink(sign=Sign(at_ms=9_000_000)), "unknown: its last liveness record is 133 min in the future", None),
        (sink(ends=None, ends_unknown="Kafka was not asked"), "unknown: it runs; how much it has to merge is unknown", True),
        (sink(ends={}), "Kafka has no topics of shop.orders, shop.quiet", True),
        (sink(unreadable="progress.json cannot be read"), "unknown: progress.json cannot be read", None),
    ],
)
def test_caught_up_is_said_of_a_live_merge_job_alone_by_kafka_s_own_ends(
    facts: SinkFacts, expected: str, alive: bool | None
) -> None:
    status = status_of(documents(), merged(), 1_000_000, facts)
    text, reported = as_text(status, status), json.loads(as_json(status, status))["sink"]

    assert f"sink:  {expected}" in text or expected in text
    assert ("caught up" in text) == (expected == "caught up")
    assert reported["alive"] is alive
    assert reported["caught_up"] is (None if reported["state"] == "unknown" else expected == "caught up")


def merged() -> dict[str, Any]:
    return progress(change_offsets={"0": 10}, snapshot_offsets={"0": 3})


def test_of_several_sinks_each_has_its_own_state_and_table() -> None:
    lake, mart = (status_of(documents(), merged(), 1_000_000, facts) for facts in (sink(), sink(behind=7)))
    found = {"lake": lake, "mart": mart}
    text = as_text_of_sinks(found, found)
    assert text.count("producer: ") == 1
    assert "\nsink lake: caught up" in text
    assert "\nsink mart: catching up: 1 table, 7 records behind" in text
    documents_of_sinks = json.loads(as_json_of_sinks(found, found))["sinks"]
    assert documents_of_sinks == {name: json.loads(as_json(status, status)) for name, status in found.items()}
    assert as_text_of_sinks({"lake": lake}, {"lake": lake}) == as_text(lake, lake)
    assert as_json_of_sinks({"lake": lake}, {"lake": lake}) == as_json(lake, lake)


def test_nothing_is_caught_up_where_the_state_topic_says_nothing() -> None:
    status = status_of({}, merged(), 1_000_000, sink())
    assert json.loads(as_json(status, status))["sink"]["caught_up"] is None
    assert "the state topic of this name is missing or empty" in as_text(status, status)


def test_a_batch_that_takes_long_is_reported_with_what_it_has_to_merge() -> None:
    sign = Sign(at_ms=999_000, batch={"number": 7, "since_ms": 960_000, "last_s": 41.2})
    status = status_of(documents(), merged(), 1_000_000, sink(behind=5, sign=sign))
    expected = "catching up: 1 table, 5 records behind; in batch 7 for 40 s; last batch took 41 s"
    assert expected in as_text(status, status)


@pytest.mark.parametrize(
    ("sign", "expected"),
    [
        (None, "unknown: it writes no liveness record"),
        (Sign(at_ms=999_000, state="reading"), "reading: how far it is behind is unknown"),
        (Sign(at_ms=900_000, state="reading"), "silent: no liveness record for 100 s"),
        (Sign(at_ms=9_000_000, state="reading"), "unknown: its last liveness record is 133 min in the future"),
        (Sign(at_ms=999_000, state="waiting", reason="db:3306 refuses", since_ms=990_000), "waiting: db:3306 refuses; for 10 s"),
        (Sign(at_ms=999_000, state="starting", reason="it connects"), "starting: it connects"),
        (Sign(at_ms=999_000, state="ended", reason="db.u cannot be read"), "not running: start `tidemark run`; it ended at 1970-01-01 00:16:39Z: db.u"),
        (Sign(at_ms=900_000, state="ended"), "not running: start `tidemark run`"),
    ],
)
def test_the_producer_is_called_reading_only_where_it_said_so_lately(sign: Sign | None, expected: str) -> None:
    known = documents() if sign is None else documents() | {"alive": encode(sign)}
    status = status_of(known, progress(), 1_000_000)
    assert f"producer: {expected}" in as_text(status, status)


def test_how_far_the_producer_is_behind_is_what_the_source_s_log_says() -> None:
    known = documents() | {"alive": encode(Sign(at_ms=999_000, state="reading"))}
    status = status_of(known, progress(), 1_000_000)
    for file, expected in (("binlog.000003", "850 bytes behind"), ("binlog.000001", "how far it is behind is unknown")):
        room = reckon({"binlog.000003": 2000, "binlog.000004": 5}, {}, ResumePosition(file, 1155, 0), 7000)
        assert f"producer: reading: {expected}" in as_text(status, status, SourceLog(room, ""))


def test_a_table_that_is_set_aside_is_called_so_with_the_reason_and_is_not_caught_up() -> None:
    known = progress(
        change_offsets={"0": 10},
        snapshot_offsets={"0": 3},
        consistent_at=LOG.text,
        set_aside={"reason": "DELTA_REFUSED", "since_ms": 60_000},
    )
    of_producer = {"database": "shop", "table": "bad", "reason": "no name in Avro", "position": LOG.text, "since_ms": 60_000}
    status = status_of(documents() | {"aside/shop.bad": of_producer}, known, 1_000_000, sink())
    text = as_text(status, status)
    assert "shop.orders: set aside: DELTA_REFUSED (by the merge job since 1970-01-01 00:01:00Z)" in text
    assert f"shop.bad: set aside: no name in Avro (by the producer since 1970-01-01 00:01:00Z from position {LOG.text})" in text
    assert "catching up: 2 tables set aside: shop.bad, shop.orders" in text
    assert "consistent, " not in text
    assert "no name in Avro" in json.loads(as_json(status, status))["tables"]["shop.bad"]["set_aside"]


def test_a_table_that_is_set_aside_for_its_name_does_not_set_aside_the_other_one_of_that_name() -> None:
    twin = {"database": "a", "table": "b.c", "reason": "taken", "position": LOG.text, "since_ms": 60_000}
    known = {"topics/a.b.c": topic("a.b.c") | {"database": "a.b", "table": "c"}, "aside/a.`b.c`": twin}
    status = status_of(documents() | known, progress(), 1_000_000)
    assert {one.table: one.set_aside is not None for one in status.tables if one.table not in ("shop.orders", "shop.quiet")} == {
        "a.b.c": False, "a.`b.c`": True,
    }  # fmt: skip


def test_a_released_table_is_called_so_and_the_others_decide_how_far_the_sink_is() -> None:
    known = documents() | {"topics/shop.quiet": topic("shop.quiet") | {"released": True}}
    status = status_of(known, progress(consistent_at=LOG.text), 1_000_000)
    assert status.applied == LOG
    assert re.search(r"shop\.quiet .*released$", as_text(status, status), re.MULTILINE)
    assert "shop.quiet: it is not captured any more" in as_text(status, status)
    tables = json.loads(as_json(status, status))["tables"]
    assert {name: table["released"] for name, table in tables.items()} == {"shop.orders": False, "shop.quiet": True}


def test_documents_of_another_version_are_refused_with_a_clear_error() -> None:
    with pytest.raises(StateError, match="is of version 9: a newer Tidemark wrote it"):
        status_of({"offset": {"v": 9}}, {}, 0)


def test_a_source_that_will_purge_what_is_needed_is_a_line_of_the_status() -> None:
    status = status_of(documents(), progress(), 1_000_000)
    position = ResumePosition("binlog.000003", 1155, 0)
    room = reckon({"binlog.000003": 2000, "binlog.000004": 5}, {"binlog_expire_logs_seconds": "7200"}, position, 7000)
    source = SourceLog(room, room.warning(43_200))

    assert "source: reading continues in binlog.000003, which the server may purge in 200 s" in as_text(status, status, source)
    document = json.loads(as_json(status, status, source))["source"]
    assert (document["head_room_s"], document["behind_bytes"]) == (200.0, 850)
    assert "raise binlog_expire_logs_seconds" in document["problem"]


def test_the_endpoint_answers_with_what_the_producer_saw_of_the_source_and_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen:
        def __init__(self, _: Settings) -> None: ...

        def settled_each(self) -> dict[str, Status]:
            return {"lake": status_of(documents(), progress(), 0)}

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    def connect(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tidemark.api.observe.Observer", Seen)
    monkeypatch.setattr("mysqlio.connection.connect", connect)
    settings = from_mapping({"name": "shop", "source": {"tables": [".*"]}})
    room = reckon({"b.1": 9}, {"binlog_expire_logs_seconds": "7200"}, ResumePosition("b.0", 4, 0), 7000)
    with ExitStack() as stack:
        service = run._serve(settings, stack)
        assert json.loads(service.describe())["source"]["newest_file"] is None
        service.watch(cast("Producer", SimpleNamespace(retention=SimpleNamespace(latest=room))))
        source = json.loads(service.describe())["source"]
        assert source["newest_file"] == "b.1"
        assert "is purged" in source["problem"]


def test_what_is_needed_of_the_log_begins_before_prepared_transactions() -> None:
    document = offset() | {"resume": {"file": "binlog.000002", "pos": 9, "gtid_set": ""}, "last": {"file": "b.2", "pos": 9, "gtid": None, "ts_us": 5_000_000, "checksum": 7}}
    log = status_of({"offset": document}, {}, 1_000_000).log

    assert log is not None
    assert (log.needed_file, log.needed_pos, log.read_ms) == ("binlog.000002", 9, 5_000)


def test_a_table_whose_children_are_not_followed_or_not_yet_is_inexact() -> None:
    known = documents() | {
        "children/one": task(9, "shop.orders", children={"columns": ["p"], "old": [["1"]], "new": [], "nulled": []}),
        "inexact": {"v": 1, "tables": ["shop.quiet"]},
    }
    status = status_of(known, progress(consistent_at=LOG.text), 1_000_000)
    assert [table.inexact for table in status.tables] == [FOLLOWING, NOT_FOLLOWED]
    text = as_text(status, status)
    assert f"shop.quiet: {NOT_FOLLOWED}" in text
    assert "consistent, all applied" not in text
    assert json.loads(as_json(status, status))["tables"]["shop.orders"]["inexact"] == FOLLOWING
    followed = status_of(documents() | {"inexact": {"v": 1, "tables": []}}, progress(), 1_000_000)
    assert [table.inexact for table in followed.tables] == [None, None]


def test_a_table_that_lacks_records_is_never_called_consistent() -> None:
    status = status_of(documents(), progress(consistent_at=LOG.text, quarantined=8, lacks="8 of them wait"), 0)
    text = as_text(status, status)
    assert "consistent, " not in text
    assert "shop.orders: 8 of them wait" in text
    assert "8 records are in quarantine" in text


@pytest.mark.parametrize("who", [{"id": "automatic-1", "origin": "automatic"}, {"id": "anew-1", "origin": "initial"}])
def test_a_table_that_has_to_be_read_again_is_inexact_until_that_is_in_the_sink(who: dict[str, str]) -> None:
    def reported(state: str, at: Position | None = None, consistent_at: Position | None = LOG, **more: object) -> str | None:
        closed = None if at is None else at.text
        again = task(3, "shop.orders", state=state, last_close=closed, condition=None) | more | {"request": who["id"]}
        asked = request(3, state) | who | {"reason": "a DDL changed stored values"}
        known = documents() | {f"request/{who['id']}": asked, "table/again/shop.orders": again}
        status = status_of(known, progress(consistent_at=consistent_at and consistent_at.text), 1_000_000)
        text = as_text(status, status)
        assert ("consistent, all applied" in text) == (consistent_at is not None and status.tables[0].inexact is None)
        return status.tables[0].inexact

    behind = Position(0, 9, 4)
    for state in ("queued", "running", "paused"):
        assert reported(state) == "it is being read again: a DDL changed stored values"
    assert reported("failed") == "it had to be read again, which failed; ask for it: a DDL changed stored values"
    assert "was stopped" in str(reported("cancelled"))
    assert reported("done", behind) is not None, "the sink has not got it yet"
    assert reported("done", LOG) is None
    assert reported("running", consistent_at=None) is None, "it never was consistent"
    assert reported("failed", status="UNKNOWN_SCHEMA") is None, "it was dropped, and so are its rows in the sink"


def test_a_failed_reading_is_made_good_by_a_later_one_of_the_whole_table() -> None:
    def reported(condition: str | None) -> str | None:
        asked = request(3, "failed") | {"origin": "automatic", "reason": "a DDL changed stored values"}
        later = {"state": "done", "last_close": LOG.text, "condition": condition}
        known = documents() | {
            "request/r3": asked,
            "request/r4": request(4, "done"),
            "table/r3/shop.orders": task(3, "shop.orders", state="failed", last_close=None),
            "table/r4/shop.orders": task(4, "shop.orders", **later),
        }
        return status_of(known, progress(consistent_at=LOG.text), 1_000_000).tables[0].inexact

    assert reported(None) is None
    assert reported("id > 5") is not None


def test_a_table_that_was_read_with_a_condition_is_called_partial() -> None:
    known = documents() | {"table/r2/shop.orders": task(2, "shop.orders", state="done", condition="id > 5")}
    status = status_of(known, progress(), 1_000_000)
    assert "partial: read with a condition" in as_text(status, status)
    assert json.loads(as_json(status, status))["tables"]["shop.orders"]["partial"] is True
    assert "consistent, all applied" in as_text(status_of(known, progress(consistent_at=LOG.text), 0), status)


def test_a_table_that_is_not_mirrored_is_not_called_consistent_and_says_why() -> None:
    status = status_of(documents(), progress(consistent_at=LOG.text, skipped="no primary key"), 0)
    text = as_text(status, status)
    assert "not mirrored" in text
    assert "consistent, " not in text
    assert "shop.orders: no primary key" in text
    assert json.loads(as_json(status, status))["tables"]["shop.orders"]["skipped"] == "no primary key"


def test_a_snapshot_that_waits_for_the_source_says_so_while_the_producer_is_alive() -> None:
    waits = "Threads_running 87 > 50"

    def seen(sign: Sign, **more: Any) -> Status:
        return status_of(documents() | {"alive": encode(sign)} | more, progress(), 1_000_000)

    status = seen(Sign(at_ms=999_000, state="reading", snapshot_waits=waits))
    assert f"shop.orders: waiting: {waits}" in as_text(status, status)
    tables = json.loads(as_json(status, status))["tables"]
    assert tables["shop.orders"]["waiting"] == waits
    assert tables["shop.quiet"]["waiting"] is None, "nothing is read of it"
    assert status.tables[0].awaited == f"its snapshot is running, waiting: {waits}"

    for sign in (
        Sign(at_ms=900_000, state="reading", snapshot_waits=waits),  # it was killed
        Sign(at_ms=999_000, state="waiting", snapshot_waits=waits),
        Sign(at_ms=999_000, state="reading"),
    ):
        assert "waiting: Threads" not in as_text(seen(sign), seen(sign))
    blocking = {"request/r2": request(2, blocking=True)}
    assert seen(Sign(at_ms=999_000, state="reading", snapshot_waits=waits), **blocking).tables[0].waits is None
    done = {"table/r2/shop.orders": task(2, "shop.orders", state="done")}
    assert seen(Sign(at_ms=999_000, state="reading", snapshot_waits=waits), **done).tables[0].waits is None


def test_a_sign_says_nothing_of_waiting_where_nothing_waits() -> None:
    """Versions that do not know the field ignore it."""
    assert "snapshot_waits" not in encode(Sign(at_ms=1))
    assert decode(Sign, encode(Sign(at_ms=1, snapshot_waits="x"))).snapshot_waits == "x"
    assert decode(Sign, {"v": 2, "at_ms": 1, "every_s": 2.0, "state": "reading", "of a newer version": 1}).snapshot_waits == ""
