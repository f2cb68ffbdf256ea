"""Ledgers without threads, for tests of its parts."""

from __future__ import annotations

from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.ranges import KeyRange
from schemas.documents import Origin, PlanDocument
from schemas.position import Position

READERS = 2


def at(offset: int) -> Position:
    """A position of the first log file."""
    return Position(0, 1, offset)


def running_ledger() -> SnapshotLedger:
    """A ledger with a request for one table of one chunk, planned and not registered."""
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: 0, lambda: f"w{next(ids)}")
    ledger.requests.submit("r", Origin.SIGNAL, [("db.t", None)])
    task = ledger.turns.to_plan(0.0)
    assert task is not None
    ledger.tasks.planned(task, 0, KeyRange(), PlanDocument(key=(("id", "int", ""),), complete=True))
    return ledger


def everything(tables: tuple[str, ...]) -> tuple[str, ...]:
    """A choice of all tables."""
    return tables
