"""The ledger: everything the snapshot side knows, and what each happening changes (pure).

Happenings come from three sides: the log (signals, window rows, DDL, cuts), the planner and the chunk
readers. What must become durable or public collects here and leaves with the next cut (`cut`): documents
that changed, markers, notifications, the horizon. Nothing here blocks, sleeps or does I/O.

A window's life: `cut` makes it with the cut's position as bound, `committed` makes it ready, `take` gives it
to a reader, `closing` says its rows are visible, `closed` (the log) ends it and its chunk is done; or
`released` ends it and the chunk is read again in a new window. Ended windows leave the register, and the
horizon, with the next cut.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import structlog

from producer.snapshot.documents import (
    CHILDREN,
    Chunk,
    Origin,
    Plan,
    Request,
    State,
    TableTask,
    Tries,
    Window,
    WindowState,
)
from producer.snapshot.ranges import Key, KeyRange
from schemas.errors import SignalError, is_of_one_table
from schemas.markers import MarkerType
from schemas.notifications import (
    INCREMENTAL,
    INITIAL,
    ChunkProgress,
    Notification,
    SnapshotNotifier,
    TableStatus,
)
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.child_rows import ChildRows
    from producer.snapshot.held import HeldChunk

log = structlog.get_logger(__name__)

MAX_ATTEMPTS: Final = 8
MAX_OUTAGE_ATTEMPTS: Final = 60
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 30.0
KEPT_REQUESTS: Final = 100
ANEW: Final = "anew-"
"""What the ids of requests for all tables begin with where a stretch of the log was lost."""
DOCUMENTS_DELAY_S: Final = 0.25
MANY_PARENTS: Final = "more parents changed than are followed one by one: foreign keys changed rows without logging them"
REST: Final = 3  # a table read whole again and again is read a quarter of the time
STOPPED: Final = "stopped by a signal"
NOT_CAPTURED: Final = "the table is not captured any more (source.tables, source.exclude_tables)"
_UNSTARTED: Final = frozenset({WindowState.REGISTERING, WindowState.READY})
_BUSY: Final = frozenset({WindowState.RUNNING, WindowState.CLOSING})


@dataclass(frozen=True, slots=True)
class MarkerDraft:
    """A marker without what only the log reader knows; positions in `fields` are texts."""

    table: str
    type: MarkerType
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CutWork:
    """What the log reader writes into the Kafka transaction it is about to commit. `state`: None deletes."""

    state: Mapping[str, Mapping[str, Any] | None]
    markers: Sequence[MarkerDraft]
    notifications: Sequence[Notification]
    horizon: Position


@dataclass(slots=True)
class _Outbox:
    dirty: dict[str, None] = field(default_factory=dict)
    markers: list[MarkerDraft] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)


class SnapshotLedger:
    """See the module. `readers` bounds how far registration and planning run ahead of reading; without any, there is neither.

    `merge` is who merges the rows of requests that do not say it; `field_name` tells what a column is called in records.
    `aside` are the tables that are set aside, and why: they are not read. `unpublishable` are those that reading has found
    to be so, where that is to happen to them (`sets_aside`), until the log reader has set them aside.
    """

    def __init__(
        self,
        name: str,
        readers: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        merge: str = "spark",
        field_name: Callable[[str], str] = str,
        *,
        sets_aside: bool = False,
    ) -> None:
        self._name = name
        self._sets_aside = sets_aside
        self.aside: dict[str, str] = {}
        self.unpublishable: dict[str, str] = {}
        self._field_name = field_name
        self._merge = merge
        self._readers = readers
        self._now_ms = now_ms
        self._new_id = new_id
        self._outbox = _Outbox()
        self._cut_at = float("-inf")
        self.requests: dict[str, Request] = {}
        self.tasks: dict[tuple[str, str], TableTask] = {}
        self.children: dict[str, TableTask] = {}
        self._took_children = False
        self._followed_whole: dict[str, int] = {}  # request → when it may begin, by now_ms
        self._rests: dict[str, int] = {}
        self.windows: dict[str, Window] = {}
        self._has_ended = True  # a request, since old ones were last forgotten

    # ---- restart

    def restore(self, documents: Mapping[str, Any]) -> int:
        """Take an earlier process's documents over; how many slots it may have had."""
        slots = 0
        for key, document in documents.items():
            kind = key.partition("/")[0]
            if kind == "request":
                request = Request.parse(document)
                self.requests[request.id] = request
            elif kind == "table":
                task = TableTask.parse(document)
                self.tasks[task.request, task.table] = task
            elif key.startswith(CHILDREN):
                task = TableTask.parse(document)
                self.children[task.request] = task
            elif kind == "window":
                window = Window.parse(document)
                self.windows[window.id] = window
                slots = max(slots, int(document.get("readers", 0)))
        self.requests = dict(sorted(self.requests.items(), key=lambda item: item[1].number))
        order = {
            (request.id, table): (request.number, index)
            for request in self.requests.values()
            for index, table in enumerate(request.tables)
        }
        self.tasks = dict(sorted(self.tasks.items(), key=lambda item: order.get(item[0], (1 << 62, 0))))
        return slots

    def slots_fenced(self) -> None:
        """No producer of the dead process can write any more: its windows leave the register."""
        for window in self.windows.values():
            if window.state is WindowState.ORPHAN:
                self._end(window)

    def wait_for(self, what: str) -> list[str]:
        """Nothing is read in chunks: what is unfinished says so; its tables."""
        tasks = [
            task for task in self.tasks.values() if not task.state.final and not self.requests[task.request].blocking
        ]
        for task in tasks:
            task.error = what
            self._touch(task.key)
        return list(dict.fromkeys(task.table for task in tasks))

    # ---- requests

    def submit(
        self,
        request_id: str,
        origin: Origin,
        tables: Sequence[tuple[str, str | None]],
        *,
        position: Position | None = None,
        reason: str = "",
        unknown: Iterable[str] = (),
        merge: str | None = None,
        surrogate: str | None = None,
        blocking: bool = False,
    ) -> None:
        """Queue a request: (table, condition) each; `unknown` names tables asked for that do not exist."""
        paused = not blocking and any(request.state is State.PAUSED for request in self.requests.values())
        request = Request(
            id=request_id,
            number=1 + max((known.number for known in self.requests.values()), default=0),
            origin=origin,
            tables=tuple(table for table, _ in tables),
            state=State.PAUSED if paused else State.QUEUED,
            pause_told=paused,
            position=position,
            reason=reason,
            created_ms=self._now_ms(),
            blocking=blocking,
        )
        self.requests[request_id] = request
        self._touch(request.key)
        for table, condition in tables:
            task = TableTask(request_id, table, condition, merge or self._merge, surrogate)
            self.tasks[request_id, table] = task
            self._touch(task.key)
        for table in unknown:
            self._tell_scanned(
                request, request.tables, TableTask(request_id, table), TableStatus.UNKNOWN_SCHEMA
            )
        log.info("snapshot.requested", request=request_id, origin=str(origin), tables=len(tables))
        self._settle(request)

    def submit_automatic(self, table: str, reason: str, merge: str | None = None, waits_for: str = "") -> str | None:
        """Queue a whole-table snapshot unless one is queued that nobody has begun to read; its id.

        One that a signal asked for does not count: a stop without names takes it, and leaves those that nobody asked for.
        `waits_for` says what it cannot be read without.
        """
        for task in self.tasks.values():
            request = self.requests[task.request]
            untouched = task.state is State.QUEUED and not task.plan.key and request.origin is not Origin.SIGNAL
            same = merge is None or (task.merge == merge and not request.blocking)
            if task.table == table and task.condition is None and untouched and same:
                return None
        request_id = f"automatic-{self._new_id()}"
        self.submit(request_id, Origin.AUTOMATIC, [(table, None)], reason=reason, merge=merge)
        self.tasks[request_id, table].error = waits_for
        return request_id

    def follow_whole(self, table: str, reason: str) -> None:
        """Read a child whole and sweep it. If it was only just read so, it is left alone for some time first."""
        if table in self.aside:
            return
        request_id = self.submit_automatic(table, reason, merge="spark")
        if request_id is not None:
            self._followed_whole[request_id] = self._rests.get(table, 0)

    def follow(self, table: str, rows: ChildRows, not_before: float = 0.0) -> None:
        """Read these rows of a child and sweep the others: a parent changed, and the log tells no more.

        Not before then, on the process's clock: every reading costs two rows in the signal table.

        They join those of the same foreign key that nobody has begun to read; too many are read as a whole table.
        """
        if table in self.aside:  # it is read whole when it is taken up
            return
        known = next((task for task in self.children.values() if _takes(task, table, rows)), None)
        if known is not None and known.children is not None:
            rows = known.children.united(rows)
        if rows.is_large:
            if known is not None:
                self._forget_children(known)
            self.follow_whole(table, MANY_PARENTS)
            return
        task = known or TableTask(
            self._new_id(),
            table,
            merge="spark",
            plan=Plan(complete=True),
            chunks={0: Chunk(0, KeyRange(), not_before=not_before)},
        )
        task.children = rows
        self.children[task.request] = task
        self._touch(task.key)

    def _forget_children(self, task: TableTask) -> None:
        self._withdraw(task)
        task.state = State.DONE
        self.children.pop(task.request, None)
        self._touch(task.key)

    def stop(
        self, choose: Callable[[tuple[str, ...]], tuple[str, ...]], *, automatic: bool = True
    ) -> tuple[str, ...]:
        """Cancel the unfinished tables that `choose` picks; those tables.

        `automatic`: also those that nobody asked for, whose sink is wrong until they are read.
        """
        tasks = [
            task
            for task in self.tasks.values()
            if not task.state.final and (automatic or self.requests[task.request].origin is not Origin.AUTOMATIC)
        ]
        chosen = choose(tuple(dict.fromkeys(task.table for task in tasks)))
        for task in tasks:
            if task.table in chosen:
                self._cancel(task)
        for request in list(self.requests.values()):
            self._settle(request)
        return chosen

    def abandon(self, reason: str) -> None:
        """Cancel everything unfinished: the log does not go on where it was."""
        for task in self.tasks.values():
            if not task.state.final:
                self._cancel(task, reason)
        for task in list(self.children.values()):
            self._forget_children(task)

    def set_aside(self, table: str, reason: str) -> None:
        """Read nothing of a table until it is taken up: its changes are not published meanwhile, and it is read whole then."""
        self.aside[table] = reason
        self.refuse_aside(table)

    def refuse_aside(self, table: str) -> None:
        """It still cannot be published: whoever asked for it is answered."""
        reason = f"{table} is set aside: {self.aside[table]}"
        for task in [task for task in self.tasks.values() if task.table == table and not task.state.final]:
            for chunk in task.chunks.values():
                if chunk.window is not None:
                    chunk.window.cancelled = True
            self._finish(task, State.FAILED, TableStatus.SKIPPED, reason)
        for task in [task for task in self.children.values() if task.table == table]:
            self._forget_children(task)

    def take_up(self, table: str) -> None:
        """It can be published again."""
        self.aside.pop(table, None)

    def asked_for_aside(self) -> set[str]:
        """The tables set aside that somebody wants to have read: whether they can be has to be found out."""
        return {task.table for task in self.tasks.values() if task.table in self.aside and not task.state.final}

    def cannot_publish(self, task: TableTask, error: BaseException, words: str) -> bool:
        """Whether the error is one for which a table is set aside; it was met when the table was to be read."""
        if not (self._sets_aside and is_of_one_table(error)):
            return False
        self.unpublishable[task.table] = words
        if not task.state.final:
            self._finish(task, State.FAILED, TableStatus.SKIPPED, words)
        return True

    def leave_out_others(self, is_captured: Callable[[str], bool]) -> None:
        """Cancel what is unfinished of tables that are not captured any more."""
        for task in self.tasks.values():
            if not task.state.final and not is_captured(task.table):
                self._cancel(task, NOT_CAPTURED)
        for task in list(self.children.values()):
            if not is_captured(task.table):
                self._forget_children(task)

    def restart_unfinished(self) -> None:
        """Read every unfinished table from its beginning.

        The log goes on at another server, which may lack the last commits of the former one: chunks that were read and
        not closed may have rows that never were. Only a whole snapshot in the new epoch sweeps them (DESIGN §4).
        """
        for task in self.tasks.values():
            if not task.state.final:
                self.replan(task)
        for task in self.children.values():
            for chunk in task.chunks.values():
                chunk.window = None

    def pause(self) -> bool:
        """Start no more chunks; whether there is anything to pause. Running windows end by themselves."""
        requests = self.requests.values()
        unfinished = [request for request in requests if not request.state.final and not request.blocking]
        for request in unfinished:
            if request.state is not State.PAUSED:
                request.state = State.PAUSED
                request.pause_told = False
                self._touch(request.key)
                for task in self._tasks_of(request):
                    self._withdraw(task)
        return bool(unfinished)

    def resume(self) -> bool:
        """Go on; whether anything was paused."""
        paused = [request for request in self.requests.values() if request.state is State.PAUSED]
        for request in paused:
            request.state = State.RUNNING if request.started else State.QUEUED
            self._touch(request.key)
            self._notify(self._notifier(request).resumed(self._now_ms(), self._open_tables(request)))
        return bool(paused)

    # ---- the log

    def table_changed(self, table: str, position: Position) -> None:
        """A DDL of the table stands at `position`: windows across it are void."""
        for task in (*self.tasks.values(), *self.children.values()):
            if task.table == table and not task.state.final:
                task.changed_at = position
        for window in self.windows.values():
            crosses = window.low is not None and window.low < position
            if window.table == table and window.state in _BUSY and crosses:
                window.reread = True

    def opened(self, window: Window, position: Position) -> None:
        """The open row was met."""
        if window.opened_at is None:
            window.opened_at = position
            self._mark(window.table, MarkerType.OPEN, self._window_fields(window, position))

    def closed(self, window: Window, position: Position) -> None:
        """The close row was met: the chunk is done, unless the window is void."""
        if window.state is not WindowState.CLOSING:
            return
        counts = {"rows": {}, "first_offsets": dict(window.first_offsets)}
        self._mark(window.table, MarkerType.CLOSE, self._window_fields(window, position) | counts)
        self._end(window)
        task, chunk = self._chunk_of(window)
        if task is None or chunk is None:
            return
        if window.reread or (task.merge == "producer" and not window.written):
            chunk.window = None
            return
        del task.chunks[chunk.id]
        task.chunks_done += 1
        task.rows += window.rows
        task.first_bound = min(task.first_bound or window.bound, window.bound)
        task.last_close = max(task.last_close or position, position)
        self._touch(task.key)
        if task.children is None:
            self._tell_progress(task, chunk)
        self._complete_if_done(task)

    def cut(self, position: Position, now: float) -> CutWork:
        """What goes into the log reader's Kafka transaction; `position` is the border it commits."""
        self._cut_at = now
        for window in self.closable(position):
            if window.held is None:  # else its rows are not written yet
                self.opened(window, position)
                self.closed(window, position)
        self._register(position, now)
        self._tell_pauses()
        for window in [window for window in self.windows.values() if window.state is WindowState.ENDED]:
            del self.windows[window.id]
        self._forget_old_requests()
        outbox, self._outbox = self._outbox, _Outbox()
        bounds = [window.bound for window in self.windows.values()]
        tables = {task.key: task for task in (*self.tasks.values(), *self.children.values())}
        state = {key: self._document(key, tables) for key in outbox.dirty}
        return CutWork(state, outbox.markers, outbox.notifications, min(bounds, default=position))

    def committed(self) -> list[Window]:
        """The cut's transaction is committed: its registrations are durable; these windows."""
        ready = [window for window in self.windows.values() if window.state is WindowState.REGISTERING]
        for window in ready:
            window.state = WindowState.READY
        return ready

    def wants_cut(self, now: float, position: Position | None = None) -> bool:
        """Whether somebody waits for what only a cut gives; `position` is the border it would commit."""
        outbox = self._outbox
        if position is not None and self.closable(position):
            return True
        if self.unpublishable or (self.aside and self.asked_for_aside()):
            return True
        if outbox.notifications or outbox.markers or any(True for _ in self._to_register(now)):
            return True
        return bool(outbox.dirty) and now >= self._cut_at + DOCUMENTS_DELAY_S

    # ---- the planner

    def to_plan(self, now: float) -> TableTask | None:
        """The table to plan a chunk of: the first in order of arrival, while readers are not far behind.

        Chunks of a table whose turn it is not are not waited for: they may come after all of the one to be planned.
        """
        active = list(self._active_tasks())
        waiting = sum(
            1
            for task in active
            for chunk in task.chunks.values()
            if chunk.window is None or chunk.window.state not in _BUSY
        )
        if waiting >= 4 * self._readers:
            return None
        for task in active:
            if not task.plan.complete and task.plan_not_before <= now:
                return task
        return None

    def planning(self, task: TableTask, estimate: int | None) -> None:
        """A table is about to be cut; nothing when it was stopped while it was looked at."""
        if task.state.final:
            return
        task.estimate = estimate if estimate is not None else task.estimate
        if task.state is State.QUEUED:
            task.error = ""
        self._start(task)

    def planned(self, task: TableTask, generation: int, bounds: KeyRange, plan: Plan) -> None:
        """A range was cut off; ignored when the plan was thrown away meanwhile."""
        if task.generation != generation or task.state.final:
            return
        task.plan = plan
        task.plan_tries = Tries()
        if plan.cap_low is not None:
            task.first_bound = min(task.first_bound or plan.cap_low, plan.cap_low)
        task.chunks[task.next_chunk] = Chunk(task.next_chunk, bounds)
        task.next_chunk += 1
        self._touch(task.key)

    def planning_failed(self, task: TableTask, error: str, now: float, *, heals: bool, waits: bool = False) -> None:
        """Planning did not work; tried again later, a few times, or while it `waits` for ever."""
        if task.state.final:
            return
        task.plan_tries.count(heals=heals, waits=waits)
        task.error = error
        if too_many(task.plan_tries):
            self._fail(task, error)
        else:
            task.plan_not_before = now + delay_s(task.plan_tries.all)
        self._touch(task.key)

    def refuse(self, task: TableTask, status: TableStatus, reason: str) -> None:
        """The table can't be read in chunks at all; the rest of the request goes on."""
        self._finish(task, State.FAILED, status, reason)

    def replan(self, task: TableTask) -> None:
        """Throw the plan away and begin anew: its borders mean nothing any more."""
        if task.children is not None:
            return
        log.info("snapshot.table_planned_anew", request=task.request, table=task.table)
        task.generation += 1
        self._withdraw(task)
        task.chunks.clear()
        task.plan = Plan()
        task.rows = task.chunks_done = 0
        task.first_bound = task.last_close = None
        self._touch(task.key)

    # ---- the readers

    def take(self) -> Window | None:
        """A registered window for a free reader, in order of arrival; None when there is none.

        Children and requests take turns: parents that change all the time must not keep everything else from being
        read, nor a window that waits from letting go of the horizon.
        """
        for task in self._with_children(first=not self._took_children):
            for chunk in task.chunks.values():
                if chunk.window is not None and chunk.window.state is WindowState.READY:
                    chunk.window.state = WindowState.RUNNING
                    self._took_children = task.children is not None
                    self._start(task)
                    return chunk.window
        return None

    def closing(
        self,
        window: Window,
        rows: int,
        first_offsets: Mapping[int, int],
        closes_at: Position | None = None,
    ) -> None:
        """The window's rows are visible in Kafka. `closes_at`: no close row comes."""
        window.rows = rows
        window.first_offsets = first_offsets
        window.closes_at = closes_at
        window.state = WindowState.CLOSING

    def holding(self, window: Window, chunk: HeldChunk, closes_at: Position | None = None) -> None:
        """The window's rows wait in memory for its close row, or for the place where it closes without one."""
        window.rows = chunk.rows
        window.held = chunk
        window.closes_at = closes_at
        window.state = WindowState.CLOSING

    def closable(self, position: Position) -> list[Window]:
        """The windows without a close row that close at this border."""
        return [
            window
            for window in self.windows.values()
            if window.state is WindowState.CLOSING and window.closes_at is not None and window.closes_at <= position
        ]

    def held_at_close(self, window: Window) -> HeldChunk | None:
        """The rows to write where the close row stands; None where there are none to write, or not these."""
        held, window.held = window.held, None
        task, chunk = self._chunk_of(window)
        if window.state is not WindowState.CLOSING or window.reread or task is None or chunk is None:
            return None
        window.written = held is not None
        return held

    def lost(self, windows: Iterable[str]) -> None:
        """What the log touches can't be remembered any longer for these windows: their chunks are read again."""
        for window in (self.windows[name] for name in windows if name in self.windows):
            log.info("snapshot.window_lost", table=window.table, chunk=window.chunk)
            window.reread = True

    def merge_of(self, window: Window) -> str:
        """Who merges the window's rows with the log."""
        task = self.task_of(window)
        return "spark" if task is None else task.merge

    def released(self, window: Window) -> None:
        """The reader gave the window up and its slot can write no more of it; nobody is to blame."""
        self._end(window)
        _, chunk = self._chunk_of(window)
        if chunk is not None:
            chunk.window = None

    def split(self, window: Window, borders: Sequence[Key]) -> None:
        """The chunk's rows do not fit into memory: smaller chunks take its place, none of them begun."""
        task, chunk = self._chunk_of(window)
        self.released(window)
        if task is None or chunk is None:
            return
        log.info("snapshot.chunk_split", table=task.table, chunk=chunk.id, pieces=len(borders) + 1)
        del task.chunks[chunk.id]
        lower: Key | None = chunk.range.lower
        for upper in (*borders, chunk.range.upper):
            task.chunks[task.next_chunk] = Chunk(task.next_chunk, KeyRange(lower, upper))
            task.next_chunk += 1
            lower = upper
        self._touch(task.key)

    def failed(self, window: Window, error: str, now: float, *, heals: bool, waits: bool = False) -> None:
        """As `released`, and the attempt counts unless it `waits`: after too many the chunk, and its table, is failed."""
        task, chunk = self._chunk_of(window)
        self.released(window)
        if task is None or chunk is None:
            return
        chunk.tries.count(heals=heals, waits=waits)
        chunk.error = error
        task.error = error
        chunk.not_before = now + delay_s(chunk.tries.all)
        if too_many(chunk.tries):
            self._fail(task, error)
        self._touch(task.key)

    def unreadable(self, window: Window, error: str) -> None:
        """No attempt can read the chunk: its table is failed, and where it is children of changed parents read whole."""
        task, _ = self._chunk_of(window)
        self.released(window)
        if task is not None:
            self._fail(task, error)

    def gone(self, window: Window) -> None:
        """The table does not exist any more."""
        task, _ = self._chunk_of(window)
        self.released(window)
        if task is not None:
            self.refuse(task, TableStatus.UNKNOWN_SCHEMA, f"{task.table} was dropped while it was read")

    def task_of(self, window: Window) -> TableTask | None:
        """The unfinished table a window reads for; None when it was stopped or planned anew."""
        task = self.tasks.get((window.request, window.table)) or self.children.get(window.request)
        if task is None or task.state.final or task.generation != window.generation:
            return None
        return task

    # ---- blocking requests

    def next_blocking(self, now: float) -> Request | None:
        """The oldest request that is to be read in one view."""
        for request in self.requests.values():
            waits = any(not task.state.final and task.table in self.aside for task in self._tasks_of(request))
            if request.blocking and not request.state.final and request.not_before <= now and not waits:
                return request
        return None

    def begin_blocking(self, request: Request) -> list[TableTask]:
        """Its tables, from their first rows on: what an earlier attempt read was read in another view."""
        tasks = [task for task in self._tasks_of(request) if task.state not in (State.FAILED, State.CANCELLED)]
        for task in tasks:
            task.state, task.status, task.error = State.QUEUED, "", ""
            task.rows = task.chunks_done = task.begun_rows = 0
            task.begun_ms = None
            self._touch(task.key)
        return tasks

    def blocking_rows(self, task: TableTask, rows: int, *, tell: bool) -> None:
        """So many more rows of a table were read."""
        task.rows += rows
        if tell:
            self._touch(task.key)
            self._tell_progress(task)

    def blocking_read(self, task: TableTask, position: Position) -> None:
        """All rows of a table were written, as versions of `position`."""
        if task.state.final:
            return
        task.plan = Plan(complete=True)
        task.chunks_done = 1
        task.first_bound = task.last_close = position
        self._complete_if_done(task)

    def blocking_failed(self, request: Request, error: str, now: float, *, heals: bool, waits: bool = False) -> None:
        """The view was not to be had, or broke: begun anew later, a few times where that may help, or while it `waits`."""
        if request.state.final:
            return
        request.tries.count(heals=heals, waits=waits)
        request.not_before = now + delay_s(request.tries.all)
        unfinished = [task for task in self._tasks_of(request) if not task.state.final]
        for task in unfinished:
            task.error = error
            self._touch(task.key)
        if not heals or too_many(request.tries):
            for task in unfinished:
                self._fail(task, error)

    # ---- answers

    def notify(self, notification: Notification) -> None:
        """Send a notification with the next cut."""
        self._notify(notification)

    @property
    def has_news(self) -> bool:
        """Whether something waits to be written with the next cut."""
        outbox = self._outbox
        return bool(outbox.dirty or outbox.markers or outbox.notifications)

    @property
    def notifications_waiting(self) -> int:
        """How many notifications wait for the next cut."""
        return len(self._outbox.notifications)

    def notify_at(self, index: int, notification: Notification) -> None:
        """Send a notification before those that came after the first `index` waiting ones."""
        self._outbox.notifications.insert(index, notification)

    # ---- inside

    def _active_tasks(self) -> Iterable[TableTask]:
        """Tables that may be read now: of one table only the oldest unfinished request."""
        taken: set[str] = set()
        for task in list(self.tasks.values()):
            request = self.requests[task.request]
            if task.state.final or request.blocking or task.table in taken or self._rests_now(task):
                continue
            if task.table in self.aside:
                continue
            taken.add(task.table)
            if request.state is not State.PAUSED:
                yield task

    def _with_children(self, *, first: bool) -> Iterable[TableTask]:
        """The same, and the children of changed parents, which are read beside them."""
        children = list(self.children.values())
        return chain(children, self._active_tasks()) if first else chain(self._active_tasks(), children)

    def _rests_now(self, task: TableTask) -> bool:
        """Whether a child that was read whole is left alone: for its time, and until another who began meanwhile is done."""
        until_ms = self._followed_whole.get(task.request)
        if until_ms is None or task.state is not State.QUEUED:
            return False
        others = (other for other in self.tasks.values() if other.table == task.table and other.state is State.RUNNING)
        return until_ms > self._now_ms() or any(others)

    def _to_register(self, now: float) -> Iterable[tuple[TableTask, Chunk]]:
        """Chunks that need a window, as many as readers can soon use; those of whom fewer windows wait come first."""
        unstarted = [window for window in self.windows.values() if window.state in _UNSTARTED]
        of_children = sum(1 for window in unstarted if window.request in self.children)
        room = 2 * self._readers - len(unstarted)
        for task in self._with_children(first=2 * of_children <= len(unstarted)):
            for chunk in task.chunks.values():
                if room <= 0:
                    return
                if chunk.window is None and chunk.not_before <= now:
                    room -= 1
                    yield task, chunk

    def _register(self, position: Position, now: float) -> None:
        for task, chunk in list(self._to_register(now)):
            window = Window(
                id=self._new_id(),
                request=task.request,
                table=task.table,
                chunk=chunk.id,
                bound=position,
                generation=task.generation,
            )
            chunk.window = window
            self.windows[window.id] = window
            self._touch(window.key)

    def _chunk_of(self, window: Window) -> tuple[TableTask | None, Chunk | None]:
        task = self.task_of(window)
        if task is None:
            return None, None
        chunk = task.chunks.get(window.chunk)
        return task, chunk if chunk is not None and chunk.window is window else None

    def _end(self, window: Window) -> None:
        window.state = WindowState.ENDED
        window.held = None
        self._touch(window.key)

    def _withdraw(self, task: TableTask) -> None:
        """Unregister the windows no reader has touched; void the others' claim on a thrown-away plan."""
        for chunk in task.chunks.values():
            if chunk.window is not None and chunk.window.state in _UNSTARTED:
                self._end(chunk.window)
                chunk.window = None

    def _cancel(self, task: TableTask, reason: str = STOPPED) -> None:
        for chunk in task.chunks.values():
            if chunk.window is not None:
                chunk.window.cancelled = True
        self._withdraw(task)
        self._finish(task, State.CANCELLED, TableStatus.SKIPPED, reason)

    def _fail(self, task: TableTask, error: str) -> None:
        if task.children is not None:
            log.warning("snapshot.children_failed", table=task.table, error=error)
            self._forget_children(task)
            self.follow_whole(task.table, f"the children of a changed parent could not be read: {error}")
            return
        log.error("snapshot.table_failed", request=task.request, table=task.table, error=error)
        for chunk in task.chunks.values():
            if chunk.window is not None:
                chunk.window.cancelled = True
        self._finish(task, State.FAILED, TableStatus.SQL_EXCEPTION, error)

    def _finish(self, task: TableTask, state: State, status: TableStatus, error: str) -> None:
        if task.children is not None:
            self._forget_children(task)
            return
        request = self.requests[task.request]
        collections = self._open_tables(request)
        self._withdraw(task)
        task.state = state
        task.status = str(status)
        task.error = error
        self._touch(task.key)
        self._tell_scanned(request, collections, task, status)
        self._settle(request, error or STOPPED)

    def _start(self, task: TableTask) -> None:
        if task.children is not None:
            return
        request = self.requests[task.request]
        if task.begun_ms is None:
            task.begun_ms, task.begun_rows = self._now_ms(), task.rows
        if task.state is State.QUEUED:
            task.state = State.RUNNING
            self._touch(task.key)
        if not request.started and request.state is State.QUEUED:  # not one that was paused meanwhile
            request.started = True
            request.state = State.RUNNING
            self._touch(request.key)
            self._notify(self._notifier(request).started(self._now_ms(), request.tables))

    def _complete_if_done(self, task: TableTask) -> None:
        if not task.complete or task.state.final:
            return
        assert task.first_bound is not None
        assert task.last_close is not None
        fields = {
            "position": task.last_close.text,
            "request": task.request,
            "first_bound": task.first_bound.text,
            "whole_table": task.condition is None,
            "rows": task.rows,
        }
        if task.children is not None:
            names = [self._field_name(name) for name in task.children.columns]
            self._mark(
                task.table,
                MarkerType.COMPLETE,
                fields | {"whole_table": False, "sweep": task.children.sweep(names)},
            )
            log.info("snapshot.children_read", table=task.table, parents=len(task.children.old), rows=task.rows)
            self._forget_children(task)
            return
        self._mark(task.table, MarkerType.COMPLETE, fields)
        log.info("snapshot.table_done", request=task.request, table=task.table, rows=task.rows)
        if self._followed_whole.pop(task.request, None) is not None and task.begun_ms is not None:
            now_ms = self._now_ms()
            self._rests[task.table] = now_ms + REST * (now_ms - task.begun_ms)
        is_empty = not task.rows and not self.requests[task.request].blocking
        self._finish(task, State.DONE, TableStatus.EMPTY if is_empty else TableStatus.SUCCEEDED, "")

    def _settle(self, request: Request, reason: str = STOPPED) -> None:
        """End the request when all its tables ended."""
        tasks = self._tasks_of(request)
        if request.state.final or not all(task.state.final for task in tasks):
            return
        blocking = [
            task for task in tasks if task.state is State.FAILED and task.status == TableStatus.SQL_EXCEPTION
        ]
        request.error = "; ".join(f"{task.table}: {task.error}" for task in blocking)
        cancelled = bool(tasks) and all(task.state is State.CANCELLED for task in tasks)
        request.state = State.FAILED if blocking else State.CANCELLED if cancelled else State.DONE
        request.finished_ms = self._now_ms()
        self._has_ended = True
        self._touch(request.key)
        notifier = self._notifier(request)
        if request.state is State.DONE:
            self._notify(notifier.completed(self._now_ms()))
        else:
            aborted = notifier.aborted(self._now_ms(), request.tables)
            again = "; ask for these tables again when the cause is gone"
            self._notify(_with(aborted, reason=request.error + again if blocking else reason))
        log.info("snapshot.request_ended", request=request.id, state=str(request.state), error=request.error)

    def _tell_progress(self, task: TableTask, chunk: Chunk | None = None) -> None:
        request = self.requests[task.request]
        progress = ChunkProgress(
            rows_done=task.rows,
            rows_estimated=task.estimate,
            eta_ms=self._eta_ms(task),
            maximum_key=task.plan.cap or (),
            last_processed_key=() if chunk is None else chunk.range.upper or (),
        )
        notifier = self._notifier(request)
        self._notify(notifier.in_progress(self._now_ms(), self._open_tables(request), task.table, progress))

    def _eta_ms(self, task: TableTask) -> int | None:
        """Milliseconds till all estimated rows are read, at the speed of this process so far."""
        read = task.rows - task.begun_rows
        if task.estimate is None or task.begun_ms is None or read <= 0:
            return None
        return (self._now_ms() - task.begun_ms) * max(0, task.estimate - task.rows) // read

    def _tell_pauses(self) -> None:
        """PAUSED is told once no window of the request is open any more."""
        for request in self.requests.values():
            if request.state is not State.PAUSED or request.pause_told:
                continue
            busy = any(
                window.request == request.id and window.state in _BUSY for window in self.windows.values()
            )
            if not busy:
                request.pause_told = True
                self._touch(request.key)
                self._notify(self._notifier(request).paused(self._now_ms(), self._open_tables(request)))

    def _tell_scanned(
        self, request: Request, collections: Iterable[str], task: TableTask, status: TableStatus
    ) -> None:
        notifier = self._notifier(request)
        told = notifier.table_scan_completed(self._now_ms(), collections, task.table, task.rows, status)
        self._notify(_with(told, reason=task.error) if task.error else told)

    def _notifier(self, request: Request) -> SnapshotNotifier:
        aggregate = INITIAL if request.origin is Origin.INITIAL or request.blocking else INCREMENTAL
        return SnapshotNotifier(self._name, request.id, aggregate)

    def _tasks_of(self, request: Request) -> list[TableTask]:
        return [self.tasks[request.id, table] for table in dict.fromkeys(request.tables)]

    def _open_tables(self, request: Request) -> list[str]:
        return [task.table for task in self._tasks_of(request) if not task.state.final]

    def _window_fields(self, window: Window, position: Position) -> dict[str, Any]:
        return {
            "position": position.text,
            "window": window.id,
            "request": window.request,
            "chunk": window.chunk,
        }

    def _mark(self, table: str, kind: MarkerType, fields: Mapping[str, Any]) -> None:
        self._outbox.markers.append(MarkerDraft(table, kind, fields))

    def _notify(self, notification: Notification) -> None:
        self._outbox.notifications.append(notification)

    def _touch(self, key: str) -> None:
        self._outbox.dirty[key] = None

    def _document(self, key: str, tables: Mapping[str, TableTask]) -> Mapping[str, Any] | None:
        kind, _, rest = key.partition("/")
        if kind == "window":
            window = self.windows.get(rest)
            return None if window is None else window.document(self._readers)
        if kind == "request":
            request = self.requests.get(rest)
            return None if request is None else request.document()
        task = tables.get(key)
        return None if task is None else task.document()

    def _forget_old_requests(self) -> None:
        """Finished requests are remembered for a while: to answer a repeated id, and for lists.

        Longer are those that say of a table that it had to be read again, and was not.
        """
        if not self._has_ended:
            return
        self._has_ended = False
        finished = [request for request in self.requests.values() if request.state.final]
        old = finished[: max(0, len(finished) - KEPT_REQUESTS)]
        kept = self._last_words() if old else set()
        for request in old:
            if request.id in kept:
                continue
            for task in self._tasks_of(request):
                del self.tasks[task.request, task.table]
                self._touch(task.key)
            del self.requests[request.id]
            self._touch(request.key)

    def _last_words(self) -> set[str]:
        """Requests by which tables are inexact, and those that say of others in them that they were read since."""
        unread: dict[str, str] = {}
        read: dict[str, str] = {}
        for task in self.tasks.values():
            is_read = task.state is State.DONE and task.condition is None
            if is_read or task.status == TableStatus.UNKNOWN_SCHEMA:
                unread.pop(task.table, None)
                read[task.table] = task.request
            elif self.requests[task.request].origin is Origin.AUTOMATIC or task.request.startswith(ANEW):
                unread[task.table] = task.request
        inexact = set(unread.values())
        tables = {table for request in inexact for table in self.requests[request].tables}
        return inexact | {read[table] for table in tables & read.keys()}


def _takes(task: TableTask, table: str, rows: ChildRows) -> bool:
    """Whether rows can join a task: the same foreign key, and no window of it has a bound yet."""
    unread = all(chunk.window is None for chunk in task.chunks.values())
    return task.table == table and unread and task.children is not None and task.children.fits(rows)


def too_many(tries: Tries) -> bool:
    """Whether trying again is given up."""
    return tries.faults >= MAX_ATTEMPTS or tries.outages >= MAX_OUTAGE_ATTEMPTS


def delay_s(attempts: int) -> float:
    """Back-off before the next attempt."""
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempts - 1, 20))


def _with(notification: Notification, **data: str) -> Notification:
    return replace(notification, additional_data={**notification.additional_data, **data})


def require_new(ledger: SnapshotLedger, request_id: str, position: Position) -> bool:
    """Whether a request is to be carried out; False for the same row met again after a restart.

    Raises `SignalError` for an id that was used before, by another row.
    """
    known = ledger.requests.get(request_id)
    if known is None:
        return True
    if known.position == position:
        return False
    raise SignalError(used_before(known))


def used_before(known: Request) -> str:
    """Why a second request of that id is rejected."""
    return f"the id {known.id!r} was used before, its snapshot is {known.state}; use a new id"
