"""Blocking requests without a server: Debezium's marks of rows, and the ledger's part."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mysqlio.server_facts import LogPosition
from producer.snapshot import blocking
from producer.snapshot.blocking import BlockingSnapshots, ViewRequests, marked
from producer.snapshot.ledger import LedgerOptions, SnapshotLedger
from producer.snapshot.shared_ledger import SharedLedger
from producer.snapshot.snapshot_state import MAX_OUTAGE_ATTEMPTS, State
from producer.snapshot.table_access import TableAccess, TopicNames
from producer.snapshot.watermark import LowWatermark
from schemas.documents import Origin
from schemas.position import Position
from schemas.settings import from_mapping


def packet(number: int) -> bytes:
    payload = bytes([0]) + b"x" * number
    return len(payload).to_bytes(3, "little") + b"\1" + payload


def split(rows: list[bytes], sizes: list[int]) -> list[tuple[np.ndarray, int, int]]:
    """Blocks of so many rows, each behind a byte that is not its own."""
    blocks, at = [], 0
    for size in sizes:
        data = b"?" + b"".join(rows[at : at + size])
        blocks.append((np.frombuffer(data + b"?", np.uint8).copy(), 1, len(data)))
        at += size
    return blocks


@pytest.mark.parametrize("first_table", [True, False])
@pytest.mark.parametrize("last_table", [True, False])
def test_the_first_and_the_last_row_have_marks_of_their_own(first_table: bool, last_table: bool) -> None:
    first = "first" if first_table else "first_in_data_collection"
    last = "last" if last_table else "last_in_data_collection"
    dice = random.Random(5)
    for count in (0, 1, 2, 3, 4, 20, 50):
        rows = [packet(dice.randrange(300)) for _ in range(count)]
        sizes = []
        while sum(sizes) < count:
            sizes.append(dice.randint(1, min(8, count - sum(sizes))))
        pieces = list(marked(split(rows, sizes), first_table=first_table, last_table=last_table))
        joined = b"".join(buf[start:end].tobytes() for (buf, start, end), _ in pieces)
        assert joined == b"".join(rows)
        marks = [mark for _, mark in pieces]
        only = "first" if first_table and not last_table else last
        if count < 2:
            assert marks == [only] * count
            continue
        assert (marks[0], marks[-1]) == (first, last)
        assert set(marks[1:-1]) <= {"true"}
        ends = [end - start for (_, start, end), mark in pieces if mark != "true"]
        assert ends == [len(rows[0]), len(rows[-1])]


def test_a_row_of_16_mib_is_alone() -> None:
    large = np.concatenate([np.array([255, 255, 255, 0], np.uint8), np.zeros(1 << 24, np.uint8)])
    small = split([packet(3)], [1])[0]
    blocks = [small, (large, 0, large.size), small]
    pieces = list(marked(blocks, first_table=True, last_table=True))
    assert [(end - start, mark) for (_, start, end), mark in pieces] == [
        (8, "first"), (large.size, "true"), (8, "last"),
    ]  # fmt: skip


def at(offset: int) -> Position:
    return Position(0, 1, offset)


def ledger_with(*tables: str) -> SnapshotLedger:
    ledger = SnapshotLedger("srv", 2, lambda: 5, options=LedgerOptions(merge="producer"))
    ledger.requests.submit("b", Origin.SIGNAL, [(table, None) for table in tables], blocking=True)
    return ledger


def test_a_blocking_request_is_not_for_planner_and_readers() -> None:
    ledger = ledger_with("db.t")
    ledger.requests.submit("chunks", Origin.SIGNAL, [("db.t", None)])
    task = ledger.turns.to_plan(0.0)
    assert task is not None
    assert task.request == "chunks"
    assert ledger.requests.pause()
    assert ledger.requests["b"].state is State.QUEUED
    ledger.requests.submit("later", Origin.SIGNAL, [("db.u", None)], blocking=True)
    assert ledger.requests["later"].state is State.QUEUED


def test_an_attempt_that_failed_counts_for_nothing_and_too_many_fail_the_request() -> None:
    ledger = ledger_with("db.t", "db.u")
    request = ViewRequests(ledger).next_request(0.0)
    assert request is not None
    first, second = ViewRequests(ledger).begin(request)
    ledger.tasks.planning(first, 10)
    ViewRequests(ledger).add_rows(first, 7, report=True)
    ViewRequests(ledger).complete(first, at(100))
    ViewRequests(ledger).failed(request, "gone", 0.0, heals=True)
    assert ViewRequests(ledger).next_request(0.0) is None, "it is not retried at once"
    assert ViewRequests(ledger).next_request(60.0) is request
    again = ViewRequests(ledger).begin(request)
    assert [(task.state, task.rows) for task in again] == [(State.QUEUED, 0)] * 2
    for task in again:
        ledger.tasks.planning(task, None)
        ViewRequests(ledger).complete(task, at(200))
    assert request.state is State.DONE
    assert {task.last_close for task in (first, second)} == {at(200)}
    ledger.requests.submit("c", Origin.SIGNAL, [("db.t", None)], blocking=True)
    other = ledger.requests["c"]
    for _ in range(MAX_OUTAGE_ATTEMPTS):
        assert not other.state.final
        ViewRequests(ledger).failed(other, "gone", 0.0, heals=True)
    assert (other.state, other.error) == (State.FAILED, "db.t: gone")


def test_what_a_person_has_to_mend_fails_at_once_and_a_restart_reads_it_again() -> None:
    ledger = ledger_with("db.t", "db.u")
    (first, _) = ViewRequests(ledger).begin(ledger.requests["b"])
    ledger.tasks.planning(first, None)
    ViewRequests(ledger).complete(first, at(100))
    work = ledger.prepare(at(100), 0.0)
    restarted = SnapshotLedger("srv", 2, lambda: 5)
    restarted.restore(work.state)
    request = ViewRequests(restarted).next_request(0.0)
    assert request is not None
    assert [task.table for task in ViewRequests(restarted).begin(request)] == ["db.t", "db.u"]
    ViewRequests(restarted).failed(request, "not granted", 0.0, heals=False)
    assert request.state is State.FAILED
    types = [note.type for note in restarted.prepare(at(200), 0.0).notifications]
    assert types[-1] == "ABORTED"


@dataclass
class FakeView:
    position: LogPosition
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class ViewPlan:
    """A server whose log ends at `end`, and where views were opened."""

    end: int
    now: float = 0.0
    views: list[FakeView] = field(default_factory=list)

    def close(self) -> None:
        """A connection of its own."""

    def open_view(self, *_: Any) -> FakeView:
        self.views.append(FakeView(LogPosition("binlog.000001", self.end, "")))
        return self.views[-1]


def test_no_view_is_opened_until_the_log_reader_is_near_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ViewPlan(end=1000)
    ledger = ledger_with("db.t")
    shared = SharedLedger(ledger, lambda: server.now, list)
    settings = from_mapping({"name": "srv", "source": {"host": "h", "user": "u", "tables": ["db\\..*"]}})
    monkeypatch.setattr(blocking, "end_of_binlog", lambda *_: LowWatermark(at(server.end), "binlog.000001", server.end))
    monkeypatch.setattr(blocking, "open_view", server.open_view)
    snapshots = BlockingSnapshots(
        shared, TableAccess(lambda: server, None), None, TopicNames("srv"), settings.snapshot  # type: ignore[arg-type]
    )
    assert snapshots.approach(at(100)) is None
    server.now, server.end = 600.0, 5000
    assert snapshots.approach(at(1000)) is None, "it needed ten minutes to come there"
    server.now, server.end = 603.0, 5100
    assert snapshots.approach(at(4000)) is None
    server.now = 604.0
    assert snapshots.approach(at(5000)) == at(5100) == snapshots.position
    assert snapshots.approach(at(5050)) == at(5100)
    assert len(server.views) == 1
    snapshots.close()
    assert server.views[0].closed
    assert snapshots.position is None
    server.now = 604.5
    assert snapshots.approach(at(5101)) is None, "the view is before what was read"
    assert server.views[1].closed
