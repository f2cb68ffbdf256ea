"""Commands about snapshots, carried out on a ledger alone, and the reasons in the answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from producer.control.command_registry import CommandRegistry
from producer.control.signal_row import SignalRow
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.signal_commands import SnapshotCommands, matching
from producer.snapshot.snapshot_state import State
from schemas.notifications import Notification
from schemas.position import Position

CAPTURED = ("shop.orders", "shop.order_items", "shop.customers", "crm.customers")


class Desk:
    """A ledger that is sent signals; `send` returns and forgets its notifications."""

    def __init__(self, *, windows: bool = True) -> None:
        self.ledger = SnapshotLedger("srv", 2, lambda: 5)
        self.registry = CommandRegistry("srv", lambda: 5)
        SnapshotCommands(self.ledger.requests, lambda: CAPTURED, windows=windows).register_in(self.registry)
        self.offset = 100

    def send(
        self, kind: str, data: Any = None, signal_id: str = "s", *, again: bool = False, may_repeat: bool = True
    ) -> list[Notification]:
        if not again:
            self.offset += 10
        text = data if isinstance(data, str) or data is None else json.dumps(data)
        row = SignalRow(signal_id, kind, text)
        self.registry.answer(row, Position(0, 1, self.offset), self.ledger.outbox.notifications, may_repeat=may_repeat)
        return list(self.ledger.prepare(Position(0, 1, self.offset + 5), 0.0).notifications)


def execute(*collections: str) -> dict[str, Any]:
    return {"data-collections": list(collections)}


def test_patterns_match_in_full_and_in_any_case() -> None:
    assert matching("SHOP\\.Order.*", CAPTURED) == ("shop.orders", "shop.order_items")
    assert matching("shop.order", CAPTURED) == ()
    assert matching(".*\\.customers", CAPTURED) == ("shop.customers", "crm.customers")


def test_an_accepted_request_names_each_table_once() -> None:
    desk = Desk()
    answers = desk.send("execute-snapshot", execute("shop.orders", "shop\\..*"))
    assert [n.type for n in answers] == ["ACCEPTED"]
    assert answers[0].additional_data["signal_type"] == "execute-snapshot"
    assert desk.ledger.requests["s"].tables == ("shop.orders", "shop.order_items", "shop.customers")


def test_a_pattern_that_matches_nothing_is_reported_and_the_other_tables_are_read() -> None:
    desk = Desk()
    answers = desk.send("execute-snapshot", execute("shop.orders", "shop.nothing"))
    assert [(n.type, n.additional_data.get("status")) for n in answers] == [
        ("ACCEPTED", None),
        ("TABLE_SCAN_COMPLETED", "UNKNOWN_SCHEMA"),
    ]
    assert desk.ledger.requests["s"].tables == ("shop.orders",)


def test_nothing_at_all_is_rejected_with_near_names() -> None:
    desk = Desk()
    (answers,) = desk.send("execute-snapshot", execute("shop.custmers"))
    assert answers.type == "REJECTED"
    assert "did you mean shop.customers, crm.customers" in answers.additional_data["reason"]
    (answers,) = desk.send("execute-snapshot", execute("x"))
    assert (
        "captured are crm.customers, shop.customers, shop.order_items ..." in answers.additional_data["reason"]
    )
    assert desk.ledger.requests == {}


def test_the_same_row_seen_again_is_not_answered_twice() -> None:
    desk = Desk()
    assert len(desk.send("execute-snapshot", execute("shop.orders"))) == 1
    assert desk.send("execute-snapshot", execute("shop.orders"), again=True) == []
    (answers,) = desk.send("execute-snapshot", execute("shop.orders"))
    assert "was used before" in answers.additional_data["reason"]


def test_the_first_condition_that_matches_counts() -> None:
    desk = Desk()
    conditions = [
        {"data-collection": "shop.order_items", "filter": "n > 1"},
        {"data-collection": "SHOP\\..*", "filter": "id < 9"},
    ]
    desk.send("execute-snapshot", execute("shop\\.order.*") | {"additional-conditions": conditions})
    found = {task.table: task.condition for task in desk.ledger.tasks.values()}
    assert found == {"shop.orders": "id < 9", "shop.order_items": "n > 1"}


def test_pause_resume_and_stop_say_what_they_did() -> None:
    desk = Desk()
    desk.send("execute-snapshot", execute("shop.orders", "shop.customers"), "r")
    assert [n.type for n in desk.send("pause-snapshot", None, "p")] == ["ACCEPTED", "PAUSED"]
    assert [n.type for n in desk.send("pause-snapshot", None, "p2")] == ["ACCEPTED"]
    assert desk.send("execute-snapshot", execute("crm.customers"), "later")[0].type == "ACCEPTED"
    assert desk.ledger.requests["later"].state is State.PAUSED
    (answers,) = desk.send("stop-snapshot", execute("shop.nothing"), "x")
    assert answers.additional_data["reason"] == "no snapshot of shop.nothing is running"
    kinds = [n.type for n in desk.send("stop-snapshot", execute("shop\\..*"), "y")]
    assert kinds == ["ACCEPTED", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "ABORTED"]
    assert [n.type for n in desk.send("resume-snapshot", None, "z")] == ["ACCEPTED", "RESUMED"]
    assert desk.ledger.requests["later"].state is State.QUEUED


def test_a_stop_of_everything_is_not_of_what_nobody_asked_for() -> None:
    desk = Desk()
    wrong = desk.ledger.requests.submit_automatic("crm.customers", "its columns are not known")
    assert wrong is not None
    (answers,) = desk.send("stop-snapshot", None, "a")
    assert answers.additional_data["reason"] == "no snapshot is running"
    desk.send("execute-snapshot", execute("shop.orders"), "r")
    assert [n.type for n in desk.send("stop-snapshot", None, "b")] == ["ACCEPTED", "TABLE_SCAN_COMPLETED", "ABORTED"]
    assert desk.ledger.requests[wrong].state is State.QUEUED
    desk.send("stop-snapshot", execute("crm.customers"), "c")
    assert desk.ledger.requests[wrong].state is State.CANCELLED


def test_a_signal_of_another_channel_is_carried_out_once_and_an_id_used_twice_is_rejected() -> None:
    """Its channel remembers it: the same id at the same boundary is another signal, not the same one again."""
    desk = Desk()
    assert len(desk.send("execute-snapshot", execute("shop.orders"), may_repeat=False)) == 1
    (answers,) = desk.send("execute-snapshot", execute("shop.orders"), again=True, may_repeat=False)
    assert answers.type == "REJECTED"
    assert "was used before" in answers.additional_data["reason"]


def test_without_windows_only_a_blocking_snapshot_is_accepted() -> None:
    desk = Desk(windows=False)
    (answers,) = desk.send("execute-snapshot", execute("shop.orders"), "chunks")
    assert "or ask for BLOCKING" in answers.additional_data["reason"]
    assert [n.type for n in desk.send("execute-snapshot", execute("shop.orders") | {"type": "BLOCKING"}, "view")] == ["ACCEPTED"]
    assert list(desk.ledger.requests) == ["view"]


@pytest.mark.parametrize("data", ["[]", "{", '{"data-collections": [1]}', '{"data-collections": []}', "\x00"])
def test_whatever_is_wrong_with_the_data_is_answered(data: str) -> None:
    (answers,) = Desk().send("execute-snapshot", data)
    assert answers.type == "REJECTED"
    assert answers.additional_data["reason"]
