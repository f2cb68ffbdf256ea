"""Requests: what is submitted, stopped and remembered."""

from __future__ import annotations

from producer.snapshot.blocking import ViewRequests
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.requests import KEPT_REQUESTS
from producer.snapshot.snapshot_state import State
from schemas.documents import Origin
from schemas.notifications import ScanStatus
from tests.support.ledgers import READERS, at, everything


def test_what_has_to_be_read_again_is_not_left_to_a_request_that_a_person_may_stop() -> None:
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    ledger.requests.submit("asked", Origin.SIGNAL, [("db.t", None), ("db.u", None)], surrogate="misspelt")
    automatic = ledger.requests.submit_automatic("db.t", "DDL changed stored values")
    assert ledger.requests.stop(everything, automatic=False) == ("db.t", "db.u")
    unfinished = [task.request for task in ledger.tasks.values() if not task.state.final]
    assert unfinished == [automatic], "a sink that is wrong stays so, and nobody is informed"
    assert ledger.requests.submit_automatic("db.t", "and again") is None
    ledger.requests.submit("start", Origin.INITIAL, [("db.v", None)])
    assert ledger.requests.submit_automatic("db.v", "its first rows are not read yet") is None


def test_a_stop_without_names_leaves_what_nobody_asked_for() -> None:
    """Its sink is wrong until it is read; a stop that names the table takes it as well."""
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    wrong = ledger.requests.submit_automatic("db.t", "its columns are not known")
    ledger.requests.submit("start", Origin.INITIAL, [("db.v", None)])
    ledger.requests.submit("asked", Origin.SIGNAL, [("db.t", None), ("db.u", None)])
    assert set(ledger.requests.stop(everything, automatic=False)) == {"db.t", "db.u", "db.v"}
    states = {request.id: request.state for request in ledger.requests.values()}
    assert states == {wrong: State.QUEUED, "start": State.CANCELLED, "asked": State.CANCELLED}
    assert [task.request for task in ledger.tasks.values() if not task.state.final] == [wrong]
    assert ledger.requests.stop(everything, automatic=False) == ()
    assert ledger.requests.stop(everything) == ("db.t",)
    assert all(request.state is State.CANCELLED for request in ledger.requests.values())


def test_a_table_that_could_not_be_read_again_is_remembered_until_it_was() -> None:
    """The status calls it inexact by its request; a hundred others come soon where parents change."""
    ledger = SnapshotLedger("srv", 2, lambda: 5)

    def ended(request: str | None, *, fails: bool = False) -> str:
        assert request is not None
        (task,) = (task for task in ledger.tasks.values() if task.request == request)
        if fails:
            ledger.tasks.refuse(task, ScanStatus.SQL_EXCEPTION, "no such index")
        else:
            ViewRequests(ledger).complete(task, at(5))
        ledger.prepare(at(10), 0.0)
        return request

    def others() -> None:
        for number in range(KEPT_REQUESTS + 20):
            ledger.requests.submit(f"r{number}", Origin.SIGNAL, [("db.u", None)])
            ended(f"r{number}")

    failed = ended(ledger.requests.submit_automatic("db.t", "a DDL"), fails=True)
    ended(ledger.requests.submit_automatic("db.v", "a DDL"))
    others()
    assert failed in ledger.requests
    assert len(ledger.requests) == KEPT_REQUESTS + 1
    ledger.requests.submit("again", Origin.SIGNAL, [("db.t", "id > 5")])
    ended("again")
    others()
    assert failed in ledger.requests, "some of its rows were read"
    ledger.requests.submit("whole", Origin.SIGNAL, [("db.t", None)])
    ended("whole")
    others()
    assert failed not in ledger.requests


def test_of_many_tables_that_could_not_be_read_again_those_that_were_since_stay_so() -> None:
    ledger = SnapshotLedger("srv", 2, lambda: 5)
    ledger.requests.submit("anew-1", Origin.INITIAL, [("db.t", None), ("db.u", None)])
    for task in ledger.tasks.values():
        ledger.tasks.refuse(task, ScanStatus.SQL_EXCEPTION, "no such index")
    ledger.prepare(at(10), 0.0)
    for number in range(KEPT_REQUESTS + 20):
        ledger.requests.submit(f"r{number}", Origin.SIGNAL, [("db.v" if number else "db.t", None)])
        ViewRequests(ledger).complete(ledger.tasks[f"r{number}", "db.v" if number else "db.t"], at(5))
        ledger.prepare(at(10), 0.0)
    assert {"anew-1", "r0"} <= ledger.requests.keys()
