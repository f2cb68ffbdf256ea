"""Tasks and their chunks: attempts that fail, and tables that are paused or stopped meanwhile."""

from __future__ import annotations

import pytest

from producer.snapshot.blocking import ViewRequests
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import MAX_ATTEMPTS, State, Tries
from schemas.documents import Origin, PlanDocument
from tests.support.ledgers import READERS, at, everything, running_ledger


def test_a_registration_is_not_given_to_a_reader_before_it_is_durable() -> None:
    ledger = running_ledger()
    ledger.prepare(at(10), 0.0)
    assert ledger.turns.start_next_window() is None
    ledger.windows.committed()
    window = ledger.turns.start_next_window()
    assert window is not None
    assert window.bound == at(10)


def test_a_chunk_is_retried_later_and_later_and_then_its_table_fails() -> None:
    ledger = running_ledger()
    now, waits = 0.0, []
    for _ in range(MAX_ATTEMPTS):
        ledger.prepare(at(10), now)
        ledger.windows.committed()
        window = ledger.turns.start_next_window()
        if window is None:
            pytest.fail("the chunk was not given out again")
        ledger.tasks.fail(window, "no such column", now, heals=False)
        waits.append(Tries(len(waits) + 1).delay_s)
        assert not ledger.wants_checkpoint(now + waits[-1] - 0.1) or ledger.prepare(at(11), now) is not None
        now += waits[-1] + 0.01
    (task,) = ledger.tasks.values()
    assert (task.state, task.error) == (State.FAILED, "no such column")
    assert waits == sorted(waits)


def test_what_waits_for_somebody_waits_for_ever_and_costs_nothing_of_what_else_may_fail() -> None:
    """A prepared XA transaction may be forgotten over a weekend; the chunk is read when it has gone."""
    ledger = running_ledger()
    now = 0.0
    failures = [{"heals": True, "waits": True}] * 500 + [{"heals": True}] * 20 + [{"heals": False}] * MAX_ATTEMPTS
    for number, failure in enumerate(failures):
        ledger.prepare(at(10), now)
        ledger.windows.committed()
        window = ledger.turns.start_next_window()
        assert window is not None, f"given up after {number} failures"
        ledger.tasks.fail(window, "prepared XA transactions", now, **failure)
        now += 31.0
    (task,) = ledger.tasks.values()
    assert task.state is State.FAILED
    ledger.requests.submit("planned", Origin.SIGNAL, [("db.u", None)])
    task = ledger.turns.to_plan(now)
    assert task is not None
    for failure in failures[:-1]:
        ledger.tasks.planning_failed(task, "prepared XA transactions", now, **failure)
    assert task.state is State.QUEUED
    ledger.requests.submit("blocking", Origin.SIGNAL, [("db.v", None)], blocking=True)
    blocking = ledger.requests["blocking"]
    for _ in range(500):
        ViewRequests(ledger).failed(blocking, "prepared XA transactions", now, heals=True, waits=True)
    assert blocking.state is State.QUEUED


def test_what_was_paused_or_stopped_while_its_table_was_looked_at_does_not_begin() -> None:
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    ledger.requests.submit("paused", Origin.SIGNAL, [("db.t", None)])
    task = ledger.turns.to_plan(0.0)
    assert task is not None
    assert ledger.requests.pause()
    ledger.tasks.planning(task, 5)
    ledger.tasks.planned(task, 0, KeyRange(), PlanDocument(key=(("id", "int", ""),), complete=True))
    sent = ledger.prepare(at(10), 0.0).notifications
    assert (ledger.requests["paused"].state, [one.type for one in sent]) == (State.PAUSED, ["PAUSED"])
    ledger.windows.committed()
    assert ledger.turns.start_next_window() is None
    assert ledger.requests.resume()
    sent = ledger.prepare(at(20), 0.0).notifications
    ledger.windows.committed()
    window = ledger.turns.start_next_window()
    assert window is not None
    sent = [*sent, *ledger.prepare(at(30), 0.0).notifications]
    assert (ledger.requests["paused"].state, [one.type for one in sent]) == (State.RUNNING, ["RESUMED", "STARTED"])

    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    ledger.requests.submit("stopped", Origin.SIGNAL, [("db.t", None)])
    task = ledger.turns.to_plan(0.0)
    assert task is not None
    assert ledger.requests.stop(everything)
    ledger.prepare(at(10), 0.0)
    ledger.tasks.planning(task, 5)
    assert not ledger.prepare(at(20), 0.0).notifications
    assert ledger.requests["stopped"].state is State.CANCELLED
    assert not ledger.requests.pause(), "a request that was stopped runs for ever"


def test_planning_that_fails_once_more_after_a_stop_changes_nothing() -> None:
    ledger = SnapshotLedger("srv", 2, lambda: 5)
    ledger.requests.submit("r", Origin.SIGNAL, [("db.t", None)])
    task = ledger.turns.to_plan(0.0)
    assert task is not None
    for _ in range(MAX_ATTEMPTS - 1):
        ledger.tasks.planning_failed(task, "no such index", 0.0, heals=False)
    assert ledger.requests.stop(everything) == ("db.t",)
    ledger.prepare(at(10), 1.0)
    ledger.tasks.planning_failed(task, "no such index", 0.0, heals=False)
    assert (task.state, ledger.requests["r"].state) == (State.CANCELLED, State.CANCELLED)
    assert not ledger.prepare(at(20), 2.0).notifications, "a table that was stopped is sent to have failed"
