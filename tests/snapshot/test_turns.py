"""Turns: who is read next."""

from __future__ import annotations

import pytest

from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import Window
from schemas.documents import Origin, PlanDocument
from tests.support.ledgers import READERS, at


@pytest.mark.parametrize("checkpoints", [0, 1], ids=["quick_readers", "slow_readers"])
def test_children_and_requests_share_the_readers_while_both_have_ever_more_to_read(checkpoints: int) -> None:
    """Parents that change all the time must not keep a table from being read, nor a large table the sink from following.

    A window is read within so many checkpoints.
    """
    ids = iter(range(10_000))
    ledger = SnapshotLedger("srv", READERS, lambda: 0, lambda: f"w{next(ids)}")
    ledger.requests.submit("r", Origin.SIGNAL, [("db.large", None)])
    taken: list[Window] = []
    for number in range(60):
        while (task := ledger.turns.to_plan(0.0)) is not None:
            bounds = KeyRange((str(task.next_chunk),), (str(task.next_chunk + 1),))
            ledger.tasks.planned(task, 0, bounds, PlanDocument(key=(("id", "int", ""),)))
        for child in range(2 * READERS):  # another table each: they are not read together
            ledger.followed.follow(f"db.child{number}_{child}", ChildRows(("parent",), frozenset({("1",)})))
        ledger.prepare(at(10 * number + 10), 0.0)
        ledger.windows.committed()
        for _ in range(READERS):
            window = ledger.turns.start_next_window()
            assert window is not None
            taken.append(window)
            if len(taken) > checkpoints * READERS:
                done = taken[-1 - checkpoints * READERS]
                ledger.windows.closing(done, 1, {})
                ledger.tasks.close(done, at(10 * number + 15))
    of_requests = [window.table == "db.large" for window in taken]
    assert not of_requests[0], "children come first"
    assert min(of_requests.count(True), of_requests.count(False)) > 0.4 * len(taken)
    oldest = min(window.bound for window in ledger.windows.values())
    assert oldest > at(10 * 50), "a window that is never read holds the horizon"
