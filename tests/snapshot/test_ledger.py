"""The ledger alone: random lives of requests, windows, crashes and DDL, and what must hold at every cut."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any, Literal

import pytest

from producer.snapshot.child_rows import MAX_VALUES, ChildRows
from producer.snapshot.coordinator import _field_name
from producer.snapshot.documents import Origin, Plan, State, TableTask, Window, WindowState
from producer.snapshot.ledger import KEPT_REQUESTS, MAX_ATTEMPTS, CutWork, SnapshotLedger, delay_s
from producer.snapshot.ranges import KeyRange
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect import ValueModes, row_schema
from schemas.errors import StateError
from schemas.names import NameMode
from schemas.notifications import TableStatus
from schemas.position import Position
from schemas.settings import FormatSettings

READERS = 2
STEPS = 400


def at(offset: int) -> Position:
    return Position(0, 1, offset)


class World:
    """A ledger, the log before it, and what readers with a window in hand could still write."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
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
        return SnapshotLedger("srv", READERS, lambda: int(self.clock * 1000), self.new_id)

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
            self.ledger.submit(f"r{self.requests}", Origin.SIGNAL, tables, position=self.forward())

    def follow(self) -> None:
        """A parent of some value is gone; what is not committed is read in the log again after a crash."""
        table, value = f"db.t{self.rng.randrange(3)}", str(self.rng.randint(1, 99))
        many = {(str(number),) for number in range(MAX_VALUES)} if self.rng.random() < 0.03 else set()
        self.parents.append((table, value, at(self.offset).text))
        rows = ChildRows(("parent",), frozenset({(value,), *many}))
        self.ledger.follow(table, rows, self.clock + self.rng.random())

    def plan(self) -> None:
        task = self.ledger.to_plan(self.clock)
        if task is None:
            return
        self.ledger.planning(task, 100)
        chunks = 0 if task.plan.upto is None else int(task.plan.upto[0])
        upper = (str(chunks + 1),)
        cap_low = task.plan.cap_low or self.forward()
        plan = replace(task.plan, key=(("id", "int", ""),), upto=upper, cap_low=cap_low, complete=chunks >= 5)
        self.ledger.planned(task, task.generation, KeyRange(task.plan.upto, upper), plan)

    def cut(self) -> CutWork:
        position = self.forward()
        work = self.ledger.cut(position, self.clock)
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
        self.ledger.committed()
        return work

    def take(self) -> None:
        if len(self.windows(WindowState.RUNNING)) < READERS:
            window = self.ledger.take()
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
                self.ledger.opened(window, self.forward())

    def commit_rows(self) -> None:
        for window in self.windows(WindowState.RUNNING):
            if window.opened_at is not None and not window.reread and not window.cancelled:
                self.ledger.closing(window, 10, {0: 0})
                del self.writers[window.id]
                return

    def close(self) -> None:
        for window in self.windows(WindowState.CLOSING)[:1]:
            task = self.ledger.task_of(window)
            void = window.reread
            counts = task is not None and window.chunk in task.chunks and not void
            self.ledger.closed(window, self.forward())
            if task is not None and void:
                assert window.chunk in task.chunks, "a void window counts for nothing"
            if counts and task is not None:
                self.done.setdefault((task.request, task.table), []).append(window.chunk)

    def give_up(self) -> None:
        for window in self.windows(WindowState.RUNNING)[:1]:
            del self.writers[window.id]
            if window.reread or window.cancelled:
                self.ledger.released(window)
            else:
                self.ledger.failed(window, "broken", self.clock, heals=True)

    def ddl(self) -> None:
        self.ledger.table_changed(f"db.t{self.rng.randrange(3)}", self.forward())

    def replan(self) -> None:
        for task in self.ledger.tasks.values():
            if task.state is State.RUNNING and self.rng.random() < 0.3:
                self.ledger.replan(task)
                self.done.pop((task.request, task.table), None)
                return

    def pause(self) -> None:
        self.ledger.pause()

    def resume(self) -> None:
        self.ledger.resume()

    def stop(self) -> None:
        if self.rng.random() < 0.2:
            self.ledger.stop(lambda tables: tables[:1])

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
        self.ledger.slots_fenced()


LIVELY = ("submit", "follow", "plan", "cut", "take", "low", "open", "commit_rows", "close")
WILD = ("give_up", "ddl", "replan", "pause", "resume", "stop", "crash")


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_horizon_is_safe_and_every_chunk_is_done_once(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.clock += 0.1
        name = world.rng.choice(LIVELY * 3 + WILD)
        if world.zombies or name == "crash":
            getattr(world, name if name in ("crash", "cut", "submit") else "fence")()
        else:
            getattr(world, name)()
    world.resume()
    for _ in range(600):
        world.clock += 10.0
        for name in ("fence", "plan", "cut", "take", "low", "open", "commit_rows", "close"):
            getattr(world, name)()
        for window in world.windows(WindowState.RUNNING):
            if window.reread or window.cancelled:
                world.give_up()
    final = world.cut()
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
            told = [
                one for one in world.completes if (one["request"], one["table"]) == (task.request, task.table)
            ]
            assert len(told) == 1
            assert told[0]["first_bound"] <= task.plan.cap_low.text  # type: ignore[union-attr]


def sweeps(complete: dict[str, Any], table: str, value: str, position: str) -> bool:
    """Whether this takes the children of a parent that went at this position."""
    found = complete.get("sweep")
    meant = complete["whole_table"] if found is None else (value,) in found.values
    return complete["table"] == table and meant and complete["first_bound"] >= position


def test_children_of_one_foreign_key_are_read_together_until_a_window_is_registered() -> None:
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    rows = [ChildRows(("a",), frozenset({(str(number),)})) for number in range(3)]
    ledger.follow("db.t", rows[0])
    ledger.follow("db.t", rows[1])
    ledger.follow("db.t", ChildRows(("b",), frozenset({("0",)})))
    assert [task.children.old for task in ledger.children.values() if task.children] == [
        {("0",), ("1",)},
        {("0",)},
    ]
    ledger.cut(at(10), 0.0)
    ledger.follow("db.t", rows[2])
    assert len(ledger.children) == 3, "its parent stands behind the bound of the others"


def test_a_child_that_is_read_whole_again_and_again_rests_in_between() -> None:
    now_ms = 0
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    key = (("id", "int", ""),)
    begun = []
    for _ in range(3):
        ledger.follow_whole("db.t", "a tree")
        while (task := ledger.to_plan(0.0)) is None:
            now_ms += 100
        begun.append(now_ms)
        ledger.planning(task, None)
        ledger.planned(task, 0, KeyRange(), Plan(key=key, complete=True))
        ledger.cut(at(10), 0.0)
        ledger.committed()
        window = ledger.take()
        assert window is not None
        now_ms += 1000
        ledger.closing(window, 1, {})
        ledger.closed(window, at(20))
    assert begun == [0, 4000, 8000]


def test_a_child_that_rests_keeps_nobody_else_from_its_table() -> None:
    now_ms = 0
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    key = (("id", "int", ""),)
    planned: list[str] = []

    def read(*, complete: bool) -> None:
        nonlocal now_ms
        task = ledger.to_plan(0.0)
        assert task is not None
        planned.append(task.request)
        ledger.planning(task, None)
        borders = (None, None) if complete else (None, ("5",))
        ledger.planned(task, 0, KeyRange(*borders), Plan(key=key, upto=borders[1], complete=complete))
        ledger.cut(at(10), 0.0)
        ledger.committed()
        window = ledger.take()
        assert window is not None
        now_ms += 1000
        ledger.closing(window, 1, {})
        ledger.closed(window, at(20))

    ledger.follow_whole("db.t", "a tree")
    read(complete=True)
    ledger.follow_whole("db.t", "a tree")
    assert ledger.to_plan(0.0) is None, "it rests"
    ledger.submit("asked", Origin.SIGNAL, [("db.t", "id < 9")])
    read(complete=False)
    now_ms += 100_000
    read(complete=True)
    read(complete=True)
    first, *others, last = planned
    assert others == ["asked", "asked"]
    assert first != last
    assert ledger.to_plan(0.0) is None


def test_a_child_that_rested_before_a_restart_keeps_nobody_else_from_its_table() -> None:
    """The rest is forgotten then, and the child, asked for first, comes first; the other one is half planned."""
    now_ms = 0
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    key = (("id", "int", ""),)
    durable: dict[str, Any] = {}

    def cut(position: int) -> None:
        durable.update(ledger.cut(at(position), 0.0).state)
        ledger.committed()

    def read_whole(position: int) -> None:
        task = ledger.to_plan(0.0)
        assert task is not None
        ledger.planning(task, None)
        ledger.planned(task, task.generation, KeyRange(), Plan(key=key, complete=True))
        cut(position)
        window = ledger.take()
        assert window is not None
        ledger.closing(window, 1, {})
        ledger.closed(window, at(position))

    ledger.follow_whole("db.t", "a tree")
    task = ledger.to_plan(0.0)
    assert task is not None
    ledger.planning(task, None)
    now_ms += 1000
    read_whole(20)
    ledger.follow_whole("db.t", "a tree")
    ledger.submit("asked", Origin.SIGNAL, [("db.t", "id < 999")])
    while (task := ledger.to_plan(0.0)) is not None:
        assert task.request == "asked"
        ledger.planning(task, None)
        upto = (str(task.next_chunk),)
        ledger.planned(task, 0, KeyRange(task.plan.upto, upto), Plan(key=key, upto=upto, cap=("999",)))
    cut(30)
    ledger = SnapshotLedger("srv", READERS, lambda: now_ms, lambda: f"w{next(ids)}")
    ledger.restore({name: document for name, document in durable.items() if document is not None})
    ledger.slots_fenced()
    read_whole(40)
    assert ledger.requests["asked"].state is State.RUNNING
    cut(50)
    assert ledger.take() is not None, "nobody reads any more"


def test_what_has_to_be_read_again_is_not_left_to_a_request_that_a_person_may_stop() -> None:
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    ledger.submit("asked", Origin.SIGNAL, [("db.t", None), ("db.u", None)], surrogate="misspelt")
    automatic = ledger.submit_automatic("db.t", "DDL changed stored values")
    assert ledger.stop(everything, automatic=False) == ("db.t", "db.u")
    unfinished = [task.request for task in ledger.tasks.values() if not task.state.final]
    assert unfinished == [automatic], "a sink that is wrong stays so, and nobody is told"
    assert ledger.submit_automatic("db.t", "and again") is None
    ledger.submit("start", Origin.INITIAL, [("db.v", None)])
    assert ledger.submit_automatic("db.v", "its first rows are not read yet") is None


def test_a_registration_is_not_given_to_a_reader_before_it_is_durable() -> None:
    ledger = running_ledger()
    ledger.cut(at(10), 0.0)
    assert ledger.take() is None
    ledger.committed()
    window = ledger.take()
    assert window is not None
    assert window.bound == at(10)


def running_ledger() -> SnapshotLedger:
    ids = iter(range(1000))
    ledger = SnapshotLedger("srv", READERS, lambda: 0, lambda: f"w{next(ids)}")
    ledger.submit("r", Origin.SIGNAL, [("db.t", None)])
    task = ledger.to_plan(0.0)
    assert task is not None
    ledger.planned(task, 0, KeyRange(), Plan(key=(("id", "int", ""),), complete=True))
    return ledger


def test_a_chunk_is_tried_again_later_and_later_and_then_its_table_fails() -> None:
    ledger = running_ledger()
    now, waits = 0.0, []
    for _ in range(MAX_ATTEMPTS):
        ledger.cut(at(10), now)
        ledger.committed()
        window = ledger.take()
        if window is None:
            pytest.fail("the chunk was not given out again")
        ledger.failed(window, "no such column", now, heals=False)
        waits.append(delay_s(len(waits) + 1))
        assert not ledger.wants_cut(now + waits[-1] - 0.1) or ledger.cut(at(11), now) is not None
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
        ledger.cut(at(10), now)
        ledger.committed()
        window = ledger.take()
        assert window is not None, f"given up after {number} failures"
        ledger.failed(window, "prepared XA transactions", now, **failure)
        now += 31.0
    (task,) = ledger.tasks.values()
    assert task.state is State.FAILED
    ledger.submit("planned", Origin.SIGNAL, [("db.u", None)])
    task = ledger.to_plan(now)
    assert task is not None
    for failure in failures[:-1]:
        ledger.planning_failed(task, "prepared XA transactions", now, **failure)
    assert task.state is State.QUEUED
    ledger.submit("blocking", Origin.SIGNAL, [("db.v", None)], blocking=True)
    blocking = ledger.requests["blocking"]
    for _ in range(500):
        ledger.blocking_failed(blocking, "prepared XA transactions", now, heals=True, waits=True)
    assert blocking.state is State.QUEUED


def test_what_was_paused_or_stopped_while_its_table_was_looked_at_does_not_begin() -> None:
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    ledger.submit("paused", Origin.SIGNAL, [("db.t", None)])
    task = ledger.to_plan(0.0)
    assert task is not None
    assert ledger.pause()
    ledger.planning(task, 5)
    ledger.planned(task, 0, KeyRange(), Plan(key=(("id", "int", ""),), complete=True))
    told = ledger.cut(at(10), 0.0).notifications
    assert (ledger.requests["paused"].state, [one.type for one in told]) == (State.PAUSED, ["PAUSED"])
    ledger.committed()
    assert ledger.take() is None
    assert ledger.resume()
    told = ledger.cut(at(20), 0.0).notifications
    ledger.committed()
    window = ledger.take()
    assert window is not None
    told = [*told, *ledger.cut(at(30), 0.0).notifications]
    assert (ledger.requests["paused"].state, [one.type for one in told]) == (State.RUNNING, ["RESUMED", "STARTED"])

    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    ledger.submit("stopped", Origin.SIGNAL, [("db.t", None)])
    task = ledger.to_plan(0.0)
    assert task is not None
    assert ledger.stop(everything)
    ledger.cut(at(10), 0.0)
    ledger.planning(task, 5)
    assert not ledger.cut(at(20), 0.0).notifications
    assert ledger.requests["stopped"].state is State.CANCELLED
    assert not ledger.pause(), "a request that was stopped runs for ever"


def test_planning_that_fails_once_more_after_a_stop_changes_nothing() -> None:
    ledger = SnapshotLedger("srv", 2, lambda: 5)
    ledger.submit("r", Origin.SIGNAL, [("db.t", None)])
    task = ledger.to_plan(0.0)
    assert task is not None
    for _ in range(MAX_ATTEMPTS - 1):
        ledger.planning_failed(task, "no such index", 0.0, heals=False)
    assert ledger.stop(everything) == ("db.t",)
    ledger.cut(at(10), 1.0)
    ledger.planning_failed(task, "no such index", 0.0, heals=False)
    assert (task.state, ledger.requests["r"].state) == (State.CANCELLED, State.CANCELLED)
    assert not ledger.cut(at(20), 2.0).notifications, "a table that was stopped is told to have failed"


def test_windows_of_a_dead_process_hold_the_horizon_until_its_slots_are_fenced() -> None:
    ledger = running_ledger()
    work = ledger.cut(at(10), 0.0)
    restored = SnapshotLedger("srv", READERS, lambda: 0)
    assert restored.restore({key: value for key, value in work.state.items() if value is not None}) == READERS
    assert restored.cut(at(50), 0.0).horizon == at(10)
    restored.slots_fenced()
    assert restored.cut(at(60), 0.0).horizon == at(50), "the chunk's new window holds it now"


def test_a_table_that_could_not_be_read_again_is_remembered_until_it_was() -> None:
    """The status calls it inexact by its request; a hundred others come soon where parents change."""
    ledger = SnapshotLedger("srv", 2, lambda: 5)

    def ended(request: str | None, *, fails: bool = False) -> str:
        assert request is not None
        (task,) = (task for task in ledger.tasks.values() if task.request == request)
        if fails:
            ledger.refuse(task, TableStatus.SQL_EXCEPTION, "no such index")
        else:
            ledger.blocking_read(task, at(5))
        ledger.cut(at(10), 0.0)
        return request

    def others() -> None:
        for number in range(KEPT_REQUESTS + 20):
            ledger.submit(f"r{number}", Origin.SIGNAL, [("db.u", None)])
            ended(f"r{number}")

    failed = ended(ledger.submit_automatic("db.t", "a DDL"), fails=True)
    ended(ledger.submit_automatic("db.v", "a DDL"))
    others()
    assert failed in ledger.requests
    assert len(ledger.requests) == KEPT_REQUESTS + 1
    ledger.submit("again", Origin.SIGNAL, [("db.t", "id > 5")])
    ended("again")
    others()
    assert failed in ledger.requests, "some of its rows were read"
    ledger.submit("whole", Origin.SIGNAL, [("db.t", None)])
    ended("whole")
    others()
    assert failed not in ledger.requests


def test_of_many_tables_that_could_not_be_read_again_those_that_were_since_stay_so() -> None:
    ledger = SnapshotLedger("srv", 2, lambda: 5)
    ledger.submit("anew-1", Origin.INITIAL, [("db.t", None), ("db.u", None)])
    for task in ledger.tasks.values():
        ledger.refuse(task, TableStatus.SQL_EXCEPTION, "no such index")
    ledger.cut(at(10), 0.0)
    for number in range(KEPT_REQUESTS + 20):
        ledger.submit(f"r{number}", Origin.SIGNAL, [("db.v" if number else "db.t", None)])
        ledger.blocking_read(ledger.tasks[f"r{number}", "db.v" if number else "db.t"], at(5))
        ledger.cut(at(10), 0.0)
    assert {"anew-1", "r0"} <= ledger.requests.keys()


def test_documents_of_another_shape_are_refused_in_words() -> None:
    with pytest.raises(StateError, match="document window/x in the state topic"):
        SnapshotLedger("srv", READERS, lambda: 0).restore({"window/x": {"id": "x"}})
    with pytest.raises(StateError, match="document table/r/t in the state topic"):
        SnapshotLedger("srv", READERS, lambda: 0).restore(
            {"table/r/t": TableTask("r", "t").document() | {"state": "lost"}}
        )


@pytest.mark.parametrize("mode", ["none", "avro", "avro_unicode"])
@pytest.mark.parametrize("wire", ["avro", "json"])
def test_a_sweep_calls_columns_what_records_call_them(wire: Literal["avro", "json"], mode: NameMode) -> None:
    """Else the sink knows no such columns, and children that are gone stay in it."""
    names = ("id", "1: ré", "a-b", "x.y", "表", "plain")
    columns = tuple(Column(name, ColumnType.INT, nullable=name != "id") for name in names)
    row = row_schema(TableSchema("db", "c", columns, ("id",)), "srv", ValueModes(field_names=mode))
    fields = [field.name for field in row.fields]
    if wire == "avro":
        (record,) = (branch for branch in json.loads(to_avro(row)) if branch != "null")
        fields = [field["name"] for field in record["fields"]]
    assert [_field_name(name, FormatSettings(type=wire, field_names=mode)) for name in names] == fields


def everything(tables: tuple[str, ...]) -> tuple[str, ...]:
    return tables


def test_a_stop_without_names_leaves_what_nobody_asked_for() -> None:
    """Its sink is wrong until it is read; a stop that names the table takes it as well."""
    ledger = SnapshotLedger("srv", READERS, lambda: 0)
    wrong = ledger.submit_automatic("db.t", "its columns are not known")
    ledger.submit("start", Origin.INITIAL, [("db.v", None)])
    ledger.submit("asked", Origin.SIGNAL, [("db.t", None), ("db.u", None)])
    assert set(ledger.stop(everything, automatic=False)) == {"db.t", "db.u", "db.v"}
    states = {request.id: request.state for request in ledger.requests.values()}
    assert states == {wrong: State.QUEUED, "start": State.CANCELLED, "asked": State.CANCELLED}
    assert [task.request for task in ledger.tasks.values() if not task.state.final] == [wrong]
    assert ledger.stop(everything, automatic=False) == ()
    assert ledger.stop(everything) == ("db.t",)
    assert all(request.state is State.CANCELLED for request in ledger.requests.values())


@pytest.mark.parametrize("cuts", [0, 1], ids=["quick_readers", "slow_readers"])
def test_children_and_requests_share_the_readers_while_both_have_ever_more_to_read(cuts: int) -> None:
    """Parents that change all the time must not keep a table from being read, nor a large table the sink from following.

    A window is read within so many cuts.
    """
    ids = iter(range(10_000))
    ledger = SnapshotLedger("srv", READERS, lambda: 0, lambda: f"w{next(ids)}")
    ledger.submit("r", Origin.SIGNAL, [("db.large", None)])
    taken: list[Window] = []
    for number in range(60):
        while (task := ledger.to_plan(0.0)) is not None:
            bounds = KeyRange((str(task.next_chunk),), (str(task.next_chunk + 1),))
            ledger.planned(task, 0, bounds, Plan(key=(("id", "int", ""),)))
        for child in range(2 * READERS):  # another table each: they are not read together
            ledger.follow(f"db.child{number}_{child}", ChildRows(("parent",), frozenset({("1",)})))
        ledger.cut(at(10 * number + 10), 0.0)
        ledger.committed()
        for _ in range(READERS):
            window = ledger.take()
            assert window is not None
            taken.append(window)
            if len(taken) > cuts * READERS:
                done = taken[-1 - cuts * READERS]
                ledger.closing(done, 1, {})
                ledger.closed(done, at(10 * number + 15))
    of_requests = [window.table == "db.large" for window in taken]
    assert not of_requests[0], "children come first"
    assert min(of_requests.count(True), of_requests.count(False)) > 0.4 * len(taken)
    oldest = min(window.bound for window in ledger.windows.values())
    assert oldest > at(10 * 50), "a window that is never read holds the horizon"
