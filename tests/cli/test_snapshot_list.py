"""What the state topic says of snapshots, as the command and the page show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas.documents import SnapshotState
from schemas.identity import SourceId
from schemas.json_codec import encode
from schemas.liveness import Sign
from schemas.state import State
from tests.cli.test_status import request, task
from tidemark.commands.snapshot_actions import as_text
from tidemark.status.reckoning import KEYLESS
from tidemark.status.snapshot_list import SnapshotList, snapshot_list

NOW_MS = 1_000_000
PLAN = task(1, "x")["plan"]


def listed(documents: dict[str, Any], now_ms: int = NOW_MS) -> SnapshotList:
    return snapshot_list(State(documents, SourceId("shop")), now_ms)


def documents(**values: object) -> dict[str, Any]:
    return {
        "request/r2": request(2, tables=["shop.orders", "shop.items"], **values),
        "request/r1": request(1, "done", tables=["shop.orders"], finished_ms=900_000),
        "table/r2/shop.items": task(2, "shop.items", state="queued", rows=0, estimate=None),
        "table/r2/shop.orders": task(2, "shop.orders", chunks_done=4),
        "table/r1/shop.orders": task(1, "shop.orders", state="done", rows=1_200),
    }


def test_requests_come_in_their_order_and_tables_in_that_of_the_request() -> None:
    found = listed(documents())
    assert [request.id for request in found.requests] == ["r1", "r2"]
    assert [task.table for task in found.requests[1].tasks] == ["shop.orders", "shop.items"]
    assert found.is_running
    assert found.requests[1].rows == 400
    assert found.find("r3") is None


def test_a_request_that_ended_has_its_rows_and_its_time() -> None:
    (done,) = [one for one in listed(documents()).requests if one.id == "r1"]
    assert (done.state, done.rows, done.finished_ms) == (SnapshotState.DONE, 1_200, 900_000)
    assert done.tasks[0].share == 1.0


def test_a_request_that_is_done_says_how_many_tables_were_not_read() -> None:
    entries = documents() | {"table/r1/shop.orders": task(1, "shop.orders", state="failed", error="disk full")}
    entries["table/r1/shop.log"] = task(1, "shop.log", state="failed", status=KEYLESS, error="no key")
    found = listed(entries)
    assert found.requests[0].outcome == "done, 1 failed, 1 without a key"
    assert "r1  done, 1 failed, 1 without a key  " in as_text(found)
    assert listed(documents()).requests[0].outcome == "done"


def test_a_table_that_is_read_is_paused_where_its_request_is() -> None:
    paused = listed(documents(state="paused"))
    assert [task.state.value for task in paused.requests[1].tasks] == ["paused", "queued"]


def test_a_share_is_never_whole_before_the_end_and_unknown_without_an_estimate() -> None:
    orders, items = listed(documents()).requests[1].tasks
    assert (orders.share, items.share) == (0.4, None)
    assert replace(orders, rows=5_000).share is None


def test_a_rate_needs_two_looks_and_an_end_needs_rate_and_estimate() -> None:
    before = listed(documents(), NOW_MS - 2_000)
    later = documents()
    later["table/r2/shop.orders"] = task(2, "shop.orders", rows=600)
    now = listed(later)
    now = now.with_rates(before)
    assert [task.rows_per_s for task in now.tasks] == [None, 100.0, 0.0]
    orders, items = now.requests[1].tasks
    assert orders.eta_s == 4.0
    assert items.eta_s is None
    assert replace(orders, rows=1_500).eta_s is None, "there are more rows than was estimated"
    assert {task.rows_per_s for task in now.with_rates(now).tasks} == {None}


def test_a_wait_is_shown_only_while_the_producer_is_alive() -> None:
    sign = Sign(at_ms=NOW_MS - 1_000, every_s=2.0, state="reading", snapshot_waits="Threads_running 87 > 50")
    with_sign = documents() | {"alive": encode(sign)}
    assert listed(with_sign).requests[1].tasks[0].waits == "Threads_running 87 > 50"
    assert listed(with_sign).requests[0].tasks[0].waits == ""
    dead = listed(with_sign, NOW_MS + 60_000)
    assert dead.requests[1].tasks[0].waits == ""
    assert (dead.producer.state.value, dead.producer.alive) == ("silent", False)
    assert encode(dead)["producer"]["alive"] is False


def test_a_new_liveness_record_counts_more_than_clocks() -> None:
    early, late = ({"alive": encode(Sign(at_ms=at, every_s=2.0, state="reading"))} for at in (10_000, 12_000))
    before = listed(early)
    assert before.producer.alive is False
    now = snapshot_list(State(late, SourceId("shop")), NOW_MS, before)
    assert now.producer.alive is True


def test_rows_of_children_belong_to_no_request() -> None:
    rows = {"columns": ["parent"], "old": [], "new": [], "nulled": []}
    child = task(0, "shop.child") | {"request": "c1", "children": rows}
    found = listed({"children/c1": child})
    assert found.requests == ()
    assert [one.table for one in found.children] == ["shop.child"]
    assert found.is_running


def test_the_document_has_null_for_what_is_not_known() -> None:
    document = encode(listed(documents()))
    (_, running) = document["requests"]
    assert running["state"] == "running"
    assert running["outcome"] == "running"
    assert running["error"] is None
    items = running["tables"][1]
    assert (items["rows_estimated"], items["rows_per_s"], items["eta_s"]) == (None, None, None)
    assert running["tables"][0]["via"] == "kafka"


def test_the_document_says_of_a_request_that_is_done_how_many_tables_failed() -> None:
    known = documents()
    known["table/r1/shop.orders"] |= {"state": "failed", "error": "the server went away"}
    done = encode(listed(known))["requests"][0]
    assert (done["state"], done["outcome"]) == ("done", "done, 1 failed")
