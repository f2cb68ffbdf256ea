"""The ledger alone: random lives of requests, windows, crashes and DDL, and what must hold at every checkpoint."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from producer.snapshot.asked_loads import LoadRequest, LoadRule
from producer.snapshot.child_rows import MAX_VALUES, ChildRows
from producer.snapshot.ledger import LedgerOptions, SnapshotLedger, SnapshotWork
from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import ReadTask, State, Window, WindowState
from schemas.documents import Origin
from schemas.errors import StateError
from schemas.json_codec import encode
from schemas.loads import LoadAnswer
from schemas.position import Position
from tests.support.ledgers import READERS, at, running_ledger

STEPS = 400
LIVELY = ("submit", "follow", "plan", "checkpoint", "start_window", "low", "open", "commit_rows", "close")
WILD = ("give_up", "give_up_loads", "ddl", "replan", "pause", "resume", "stop", "crash")


class World:
    """A ledger, the log before it, and what readers with a window in hand could still write."""

    def __init__(self, seed: int, *, loads: bool = False) -> None:
        self.rng = random.Random(seed)
        self.loads = loads
        self.clock = 0.0
        self.offset = 100
        self.durable: dict[str, Any] = {}
        self.horizon = Position.MINIMUM
        self.writers: dict[str, Position] = {}
        self.zombies: dict[str, Position] = {}
        self.done: dict[tuple[str, str], list[int]] = {}
        self.durably_done: dict[tuple[str, str], list[int]] = {}
        self.completes: list[dict[str, Any]] = []
        self.parents: list[tuple[str, str, str]] = []
        self.durable_parents: list[tuple[str, str, str]] = []
        self.requests = 0
        self.ids = 0
        self.ledger = self.new_ledger()

    def new_ledger(self) -> SnapshotLedger:
        options = LedgerOptions(loads=LoadRule("kafka", chunk_rows=1), load_workers=READERS)
        return SnapshotLedger("srv", READERS, lambda: int(self.clock * 1000), self.new_id, options)

    def new_id(self) -> str:
        self.ids += 1
        return f"w{self.ids}"

    def forward(self) -> Position:
        self.offset += self.rng.randint(1, 50)
        return at(self.offset)

    def windows(self, *states: WindowState) -> list[Window]:
        return [window for window in self.ledger.windows.values() if window.state in states]

    # ---- happenings

    def submit(self) -> None:
        if self.requests < 4:
            self.requests += 1
            tables = [(f"db.t{n}", None) for n in self.rng.sample(range(3), self.rng.randint(1, 2))]
            via = "spark" if self.loads else None
            self.ledger.requests.submit(f"r{self.requests}", Origin.SIGNAL, tables, position=self.forward(), via=via)

    def follow(self) -> None:
        """A parent of some value is gone; what is not committed is read in the log again after a crash."""
        table, value = f"db.t{self.rng.randrange(3)}", str(self.rng.randint(1, 99))
        many = {(str(number),) for number in range(MAX_VALUES)} if self.rng.random() < 0.03 else set()
        self.parents.append((table, value, at(self.offset).text))
        rows = ChildRows(("parent",), frozenset({(value,), *many}))
        self.ledger.followed.follow(table, rows, self.clock + self.rng.random())

    def plan(self) -> None:
        task = self.ledger.turns.to_plan(self.clock)
        if task is None:
            return
        self.ledger.tasks.planning(task, 100)
        self.ledger.loads.choose(task)
        chunks = 0 if task.plan.upto is None else int(task.plan.upto[0])
        upper = (str(chunks + 1),)
        cap_low = task.plan.cap_low or self.forward()
        plan = replace(task.plan, key=(("id", "int", ""),), upto=upper, cap_low=cap_low, complete=chunks >= 5)
        self.ledger.tasks.planned(task, task.generation, KeyRange(task.plan.upto, upper), plan)

    def checkpoint(self) -> SnapshotWork:
        position = self.forward()
        work = self.ledger.prepare(position, self.clock)
        assert self.horizon <= work.horizon <= position
        for bound in (*self.writers.values(), *self.zombies.values()):
            assert work.horizon <= bound, "a window that may still write is below the horizon"
        self.horizon = work.horizon
        for key, document in work.state.items():
            if document is None:
                self.durable.pop(key, None)
            else:
                self.durable[key] = document
        for marker in work.markers:
            if marker.type == "complete":
                self.completes.append({"table": marker.table, **marker.fields})
        self.durable_parents = list(self.parents)
        self.durably_done = {key: list(chunks) for key, chunks in self.done.items()}
        self.ledger.windows.committed()
        return work

    def start_window(self) -> None:
        load = self.ledger.turns.start_next_load() if self.loads else None
        if load is not None:  # not a writer: the merge job drops what it is asked for below the horizon
            assert self.durable[load.key]["bound"] == load.bound.text, "read before it is registered"
        if len(self.windows(WindowState.RUNNING)) < READERS:
            window = self.ledger.turns.start_next_window()
            if window is not None:
                assert self.durable[window.key]["bound"] == window.bound.text, "read before it is registered"
                self.writers[window.id] = window.bound

    def low(self) -> None:
        for window in self.windows(WindowState.RUNNING):
            if window.low is None:
                window.low = max(window.bound, self.forward())

    def open(self) -> None:
        for window in self.windows(WindowState.RUNNING):
            if window.low is not None:
                self.ledger.windows.opened(window, self.forward())

    def commit_rows(self) -> None:
        for window in self.windows(WindowState.RUNNING):
            if window.opened_at is not None and not window.reread and not window.cancelled:
                if window.load is not None and window.load.asked_at is None:
                    assert window.low is not None
                    load = LoadRequest(window.low, "f", "incremental", "SELECT", "srv", 1, 2)
                    self.ledger.windows.ask_for(window, load.fields, self.clock)
                elif window.load is None or self.ledger.loads.answered(LoadAnswer(window.id, 10), self.clock):
                    self.ledger.windows.closing(window, 10, {0: 0})
                    self.writers.pop(window.id, None)
                return

    def close(self) -> None:
        for window in self.windows(WindowState.CLOSING)[:1]:
            task = self.ledger.tasks.task_of(window)
            void = window.reread
            counts = task is not None and window.chunk in task.chunks and not void
            self.ledger.tasks.close(window, self.forward())
            if task is not None and void:
                assert window.chunk in task.chunks, "a void window counts for nothing"
            if counts and task is not None:
                self.done.setdefault((task.request, task.table), []).append(window.chunk)

    def give_up(self) -> None:
        for window in self.windows(WindowState.RUNNING)[:1]:
            self.writers.pop(window.id, None)
            if window.reread or window.cancelled:
                self.ledger.tasks.release(window)
            elif window.load is not None and window.load.asked_at is not None:
                answer = LoadAnswer(window.id, error="broken", retry=self.rng.random() < 0.8)
                self.ledger.loads.refused(window, answer, self.clock)
            else:
                self.ledger.tasks.fail(window, "broken", self.clock, heals=True)

    def give_up_loads(self) -> None:
        for task in self.ledger.tasks.values():
            if task.is_loaded and not task.state.final and self.rng.random() < 0.2:
                self.ledger.loads.give_up(task, "nobody answers")

    def ddl(self) -> None:
        self.ledger.table_changed(f"db.t{self.rng.randrange(3)}", self.forward())

    def replan(self) -> None:
        for task in self.ledger.tasks.values():
            if task.state is State.RUNNING and self.rng.random() < 0.3:
                self.ledger.tasks.replan(task)
                self.done.pop((task.request, task.table), None)
                return

    def pause(self) -> None:
        self.ledger.requests.pause()

    def resume(self) -> None:
        self.ledger.requests.resume()

    def stop(self) -> None:
        if self.rng.random() < 0.2:
            self.ledger.requests.stop(lambda tables: tables[:1])

    def crash(self) -> None:
        if self.rng.random() < 0.5:
            return
        self.zombies |= self.writers
        self.writers.clear()
        self.ledger = self.new_ledger()
        assert self.ledger.restore(self.durable) in (0, READERS)
        self.done = {key: list(chunks) for key, chunks in self.durably_done.items()}
        self.parents = list(self.durable_parents)

    def fence(self) -> None:
        self.zombies.clear()
        self.ledger.windows.slots_fenced()


@pytest.mark.parametrize("loads", [False, True], ids=["kafka", "spark"])
@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(one, marks=pytest.mark.slow) for one in range(20, 60))])
def test_whatever_happens_the_horizon_is_safe_and_every_chunk_is_done_once(seed: int, loads: bool) -> None:
    world = World(seed, loads=loads)
    for _ in range(STEPS):
        world.clock += 0.1
        name = world.rng.choice(LIVELY * 3 + WILD)
        if world.zombies or name == "crash":
            getattr(world, name if name in ("crash", "checkpoint", "submit") else "fence")()
        else:
            getattr(world, name)()
    world.resume()
    for _ in range(600):
        world.clock += 10.0
        for name in ("fence", "plan", "checkpoint", "start_window", "low", "open", "commit_rows", "close"):
            getattr(world, name)()
        for window in world.windows(WindowState.RUNNING):
            if window.reread or window.cancelled:
                world.give_up()
    final = world.checkpoint()
    assert all(request.state.final for request in world.ledger.requests.values())
    assert world.ledger.windows == {}
    assert final.horizon == at(world.offset)
    assert not [key for key in world.durable if key.startswith(("window/", "children/"))]
    for parent in world.parents:
        assert any(sweeps(complete, *parent) for complete in world.completes), f"{parent} was forgotten"
    for task in world.ledger.tasks.values():
        if task.state is State.DONE:
            assert sorted(world.done[task.request, task.table]) == sorted(
                range(task.next_chunk - 6, task.next_chunk)
            )
            assert task.rows == 60
            sent = [
                one for one in world.completes if (one["request"], one["table"]) == (task.request, task.table)
            ]
            assert len(sent) == 1
            assert sent[0]["first_bound"] <= task.plan.cap_low.text  # type: ignore[union-attr]


def sweeps(complete: dict[str, Any], table: str, value: str, position: str) -> bool:
    """Whether this takes the children of a parent that went at this position."""
    found = complete.get("sweep")
    meant = complete["whole_table"] if found is None else (value,) in found.values
    return complete["table"] == table and meant and complete["first_bound"] >= position


def test_windows_of_a_dead_process_hold_the_horizon_until_its_slots_are_fenced() -> None:
    ledger = running_ledger()
    work = ledger.prepare(at(10), 0.0)
    restored = SnapshotLedger("srv", READERS, lambda: 0)
    assert restored.restore({key: value for key, value in work.state.items() if value is not None}) == READERS
    assert restored.prepare(at(50), 0.0).horizon == at(10)
    restored.windows.slots_fenced()
    assert restored.prepare(at(60), 0.0).horizon == at(50), "the chunk's new window holds it now"


def test_documents_of_another_shape_are_refused_with_a_clear_error() -> None:
    with pytest.raises(StateError, match="document window/x in the state topic"):
        SnapshotLedger("srv", READERS, lambda: 0).restore({"window/x": {"id": "x"}})
    with pytest.raises(StateError, match="document table/r/t in the state topic"):
        SnapshotLedger("srv", READERS, lambda: 0).restore(
            {"table/r/t": encode(ReadTask("r", "t")) | {"state": "lost"}}
        )
