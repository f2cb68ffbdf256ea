"""Key rows of changed parents: read together, turned into whole tables, and rests between these."""

from __future__ import annotations

from typing import Any

from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import State
from schemas.documents import Origin, PlanDocument
from tests.support.ledgers import READERS, at


def test_children_of_one_foreign_key_are_read_together_until_a_window_is_registered() -> None:
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    rows = [ChildRows(("a",), frozenset({(str(number),)})) for number in range(3)]
    ledger.followed.follow("db.t", rows[0])
    ledger.followed.follow("db.t", rows[1])
    ledger.followed.follow("db.t", ChildRows(("b",), frozenset({("0",)})))
    assert [task.children.old for task in ledger.followed.values() if task.children] == [
        {("0",), ("1",)},
        {("0",)},
    ]
    ledger.prepare(at(10), 0.0)
    ledger.followed.follow("db.t", rows[2])
    assert len(ledger.followed) == 3, "its parent is behind the bound of the others"


def test_a_child_that_is_read_whole_again_and_again_rests_in_between() -> None:
    now_ms = 0
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    key = (("id", "int", ""),)
    begun = []
    for _ in range(3):
        ledger.followed.follow_whole("db.t", "a tree")
        while (task := ledger.turns.to_plan(0.0)) is None:
            now_ms += 100
        begun.append(now_ms)
        ledger.tasks.planning(task, None)
        ledger.tasks.planned(task, 0, KeyRange(), PlanDocument(key=key, complete=True))
        ledger.prepare(at(10), 0.0)
        ledger.windows.committed()
        window = ledger.turns.start_next_window()
        assert window is not None
        now_ms += 1000
        ledger.windows.closing(window, 1, {})
        ledger.tasks.close(window, at(20))
    assert begun == [0, 4000, 8000]


def test_a_child_that_rests_keeps_nobody_else_from_its_table() -> None:
    now_ms = 0
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    key = (("id", "int", ""),)
    planned: list[str] = []

    def read(*, complete: bool) -> None:
        nonlocal now_ms
        task = ledger.turns.to_plan(0.0)
        assert task is not None
        planned.append(task.request)
        ledger.tasks.planning(task, None)
        ends = (None, None) if complete else (None, ("5",))
        ledger.tasks.planned(task, 0, KeyRange(*ends), PlanDocument(key=key, upto=ends[1], complete=complete))
        ledger.prepare(at(10), 0.0)
        ledger.windows.committed()
        window = ledger.turns.start_next_window()
        assert window is not None
        now_ms += 1000
        ledger.windows.closing(window, 1, {})
        ledger.tasks.close(window, at(20))

    ledger.followed.follow_whole("db.t", "a tree")
    read(complete=True)
    ledger.followed.follow_whole("db.t", "a tree")
    assert ledger.turns.to_plan(0.0) is None, "it rests"
    ledger.requests.submit("asked", Origin.SIGNAL, [("db.t", "id < 9")])
    read(complete=False)
    now_ms += 100_000
    read(complete=True)
    read(complete=True)
    first, *others, last = planned
    assert others == ["asked", "asked"]
    assert first != last
    assert ledger.turns.to_plan(0.0) is None


def test_a_child_that_rested_before_a_restart_keeps_nobody_else_from_its_table() -> None:
    """The rest is forgotten then, and the child, asked for first, comes first; the other one is half planned."""
    now_ms = 0
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    key = (("id", "int", ""),)
    durable: dict[str, Any] = {}

    def commit(position: int) -> None:
        durable.update(ledger.prepare(at(position), 0.0).state)
        ledger.windows.committed()

    def read_whole(position: int) -> None:
        task = ledger.turns.to_plan(0.0)
        assert task is not None
        ledger.tasks.planning(task, None)
        ledger.tasks.planned(task, task.generation, KeyRange(), PlanDocument(key=key, complete=True))
        commit(position)
        window = ledger.turns.start_next_window()
        assert window is not None
        ledger.windows.closing(window, 1, {})
        ledger.tasks.close(window, at(position))

    ledger.followed.follow_whole("db.t", "a tree")
    task = ledger.turns.to_plan(0.0)
    assert task is not None
    ledger.tasks.planning(task, None)
    now_ms += 1000
    read_whole(20)
    ledger.followed.follow_whole("db.t", "a tree")
    ledger.requests.submit("asked", Origin.SIGNAL, [("db.t", "id < 999")])
    while (task := ledger.turns.to_plan(0.0)) is not None:
        assert task.request == "asked"
        ledger.tasks.planning(task, None)
        upto = (str(task.next_chunk),)
        ledger.tasks.planned(task, 0, KeyRange(task.plan.upto, upto), PlanDocument(key=key, upto=upto, cap=("999",)))
    commit(30)
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    ledger.restore({name: document for name, document in durable.items() if document is not None})
    ledger.windows.slots_fenced()
    read_whole(40)
    assert ledger.requests["asked"].state is State.RUNNING
    commit(50)
    assert ledger.turns.start_next_window() is not None, "nobody reads any more"
