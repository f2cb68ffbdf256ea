"""Requests, and the tasks that read their tables: who asked for what, how far it is, and how it ended (pure)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.scope import scope_of
from producer.snapshot.snapshot_state import Chunk, ReadTask, Request, State, TaskOwner
from schemas.documents import Origin
from schemas.notifications import (
    INCREMENTAL,
    INITIAL,
    ChunkProgress,
    Notification,
    ScanStatus,
    SnapshotNotifier,
)
from schemas.overriding import override
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.outbox import CheckpointOutbox
    from producer.snapshot.window_register import WindowRegister

log = structlog.get_logger(__name__)

STOPPED: Final = "stopped by a signal"
NOT_CAPTURED: Final = "the table is not captured any more (source.tables, source.exclude_tables)"
KEPT_REQUESTS: Final = 100
RESTART_PREFIX: Final = "anew-"
"""The prefix of the ids of requests for all tables after a stretch of the log was lost."""
_REPEAT: Final = "; ask for these tables again when the cause is gone"


class SnapshotRequests(Mapping[str, Request], TaskOwner):
    """Requests by id, in order of arrival; `tasks` are their tables, in that order too.

    It owns the tasks of its requests: it reports their progress by Debezium's notifications, and a request ends when all its tasks
    have. `aside` are the tables that are set aside, with the reason: nothing of them is read. `name` is the connector's, `merge` is
    who merges the rows of requests that do not say it.
    """

    def __init__(
        self,
        name: str,
        outbox: CheckpointOutbox,
        windows: WindowRegister,
        now_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        merge: str = "spark",
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._windows = windows
        self._now_ms = now_ms
        self._new_id = new_id
        self._merge = merge
        self._requests: dict[str, Request] = {}
        self.tasks: dict[tuple[str, str], ReadTask] = {}
        self.aside: dict[str, str] = {}
        self._has_ended = True  # a request, since old ones were last forgotten

    @override
    def __getitem__(self, request_id: str) -> Request:
        return self._requests[request_id]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._requests)

    @override
    def __len__(self) -> int:
        return len(self._requests)

    # ---- restart

    def restore(self, requests: Iterable[Request], tasks: Iterable[ReadTask]) -> None:
        """Adopt the requests and tasks of an earlier process, in order of arrival."""
        ordered = sorted(requests, key=lambda request: request.number)
        self._requests = {request.id: request for request in ordered}
        order = {
            (request.id, table): (request.number, index)
            for request in ordered
            for index, table in enumerate(request.tables)
        }
        sorted_tasks = sorted(tasks, key=lambda task: order.get((task.request, task.table), (1 << 62, 0)))
        self.tasks = {(task.request, task.table): task for task in sorted_tasks}

    def forget_old(self) -> None:
        """Forget ended requests that nobody needs any more.

        They are remembered for a while, to answer a repeated id and for lists. Those that say of a table that it had to be read
        again, and was not, are remembered until it has been: the status calls the table inexact because of them.
        """
        if not self._has_ended:
            return
        self._has_ended = False
        for request in _forgettable(self._requests, self.tasks.values()):
            for task in self.tasks_of(request):
                del self.tasks[task.request, task.table]
                self._outbox.touch(task.key)
            del self._requests[request.id]
            self._outbox.touch(request.key)

    # ---- new requests

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
        via: str | None = None,
    ) -> None:
        """Queue a request: (table, condition) each; `unknown` names tables asked for that do not exist."""
        paused = not blocking and any(request.state is State.PAUSED for request in self._requests.values())
        request = Request(
            id=request_id,
            number=1 + max((one.number for one in self._requests.values()), default=0),
            origin=origin,
            tables=tuple(table for table, _ in tables),
            state=State.PAUSED if paused else State.QUEUED,
            pause_told=paused,
            position=position,
            reason=reason,
            created_ms=self._now_ms(),
            blocking=blocking,
        )
        self._requests[request_id] = request
        self._outbox.touch(request.key)
        for table, condition in tables:
            task = ReadTask(request_id, table, condition, merge or self._merge, surrogate, asked_via=via or "")
            self.tasks[request_id, table] = task
            self._outbox.touch(task.key)
        for table in unknown:
            self._report_scan(request, request.tables, ReadTask(request_id, table), ScanStatus.UNKNOWN_SCHEMA)
        log.info("snapshot.requested", request=request_id, origin=str(origin), tables=len(tables))
        self._settle(request)

    def submit_automatic(self, table: str, reason: str, merge: str | None = None, waits_for: str = "") -> str | None:
        """Queue a whole-table snapshot unless one is queued that nobody has begun to read; return its id.

        One that a signal asked for does not count: a stop without names cancels it, and leaves those that nobody asked for.
        `waits_for` names the setting that it cannot be read without.
        """
        for task in self.tasks.values():
            request = self._requests[task.request]
            untouched = task.state is State.QUEUED and not task.plan.key and request.origin is not Origin.SIGNAL
            same = merge is None or (task.merge == merge and not request.blocking)
            if task.table == table and scope_of(task).is_whole_table and untouched and same:
                return None
        request_id = f"automatic-{self._new_id()}"
        self.submit(request_id, Origin.AUTOMATIC, [(table, None)], reason=reason, merge=merge)
        self.tasks[request_id, table].error = waits_for
        return request_id

    def stop(
        self, choose: Callable[[tuple[str, ...]], tuple[str, ...]], *, automatic: bool = True
    ) -> tuple[str, ...]:
        """Cancel the unfinished tables that `choose` picks; return those tables.

        `automatic`: also those that nobody asked for, whose sink is wrong until they are read.
        """
        tasks = [
            task
            for task in self.unfinished()
            if automatic or self._requests[task.request].origin is not Origin.AUTOMATIC
        ]
        chosen = choose(tuple(dict.fromkeys(task.table for task in tasks)))
        for task in tasks:
            if task.table in chosen:
                self.cancel(task)
        for request in list(self._requests.values()):
            self._settle(request)
        return chosen

    def pause(self) -> bool:
        """Start no more chunks; return whether there is anything to pause. Running windows end by themselves."""
        unfinished = [
            request for request in self._requests.values() if not request.state.final and not request.blocking
        ]
        for request in unfinished:
            if request.state is not State.PAUSED:
                request.state = State.PAUSED
                request.pause_told = False
                self._outbox.touch(request.key)
                for task in self.tasks_of(request):
                    self._windows.withdraw(task)
        return bool(unfinished)

    def resume(self) -> bool:
        """Continue paused requests; return whether there were any."""
        paused = [request for request in self._requests.values() if request.state is State.PAUSED]
        for request in paused:
            request.state = State.RUNNING if request.started else State.QUEUED
            self._outbox.touch(request.key)
            self._outbox.notify(self._notifier(request).resumed(self._now_ms(), self._open_tables(request)))
        return bool(paused)

    def report_pauses(self) -> None:
        """Report a pause once no window of the request is open any more."""
        for request in self._requests.values():
            if request.state is not State.PAUSED or request.pause_told or self._windows.is_reading(request.id):
                continue
            request.pause_told = True
            self._outbox.touch(request.key)
            self._outbox.notify(self._notifier(request).paused(self._now_ms(), self._open_tables(request)))

    def wait_for(self, reason: str) -> list[str]:
        """Note why each unfinished table that is read in chunks waits; return the tables."""
        tasks = [task for task in self.unfinished() if not self._requests[task.request].blocking]
        for task in tasks:
            task.error = reason
            self._outbox.touch(task.key)
        return list(dict.fromkeys(task.table for task in tasks))

    # ---- the tasks of requests

    def unfinished(self) -> list[ReadTask]:
        """Return the tasks that have not ended, in order of arrival."""
        return [task for task in self.tasks.values() if not task.state.final]

    def tasks_of(self, request: Request) -> list[ReadTask]:
        """Return the tasks of a request."""
        return [self.tasks[request.id, table] for table in dict.fromkeys(request.tables)]

    def cancel(self, task: ReadTask, reason: str = STOPPED) -> None:
        """End a task that nobody wants any more."""
        self._windows.cancel(task)
        self.finish(task, State.CANCELLED, ScanStatus.SKIPPED, reason)

    @override
    def start(self, task: ReadTask) -> None:
        """Note that a task is being read; with its first task a request starts."""
        request = self._requests[task.request]
        if task.begun_ms is None:
            task.begun_ms, task.begun_rows = self._now_ms(), task.rows
        if task.state is State.QUEUED:
            task.state = State.RUNNING
            self._outbox.touch(task.key)
        if not request.started and request.state is State.QUEUED:  # not one that was paused meanwhile
            request.started = True
            request.state = State.RUNNING
            self._outbox.touch(request.key)
            self._outbox.notify(self._notifier(request).started(self._now_ms(), request.tables))

    @override
    def report_progress(self, task: ReadTask, chunk: Chunk | None = None) -> None:
        """Report how far a task is; `chunk` was read last."""
        request = self._requests[task.request]
        progress = ChunkProgress(
            rows_done=task.rows,
            rows_estimated=task.estimate,
            eta_ms=self._eta_ms(task),
            maximum_key=task.plan.cap or (),
            last_processed_key=() if chunk is None else chunk.range.upper or (),
        )
        notifier, unfinished = self._notifier(request), self._open_tables(request)
        self._outbox.notify(notifier.in_progress(self._now_ms(), unfinished, task.table, progress))

    @override
    def complete(self, task: ReadTask) -> None:
        """End a task whose rows have all been read."""
        log.info("snapshot.table_done", request=task.request, table=task.table, rows=task.rows)
        is_empty = not task.rows and not self._requests[task.request].blocking
        self.finish(task, State.DONE, ScanStatus.EMPTY if is_empty else ScanStatus.SUCCEEDED, "")

    @override
    def fail(self, task: ReadTask, error: str) -> None:
        """End a task that no further attempt can read."""
        log.error("snapshot.table_failed", request=task.request, table=task.table, error=error)
        self._windows.cancel(task)
        self.finish(task, State.FAILED, ScanStatus.SQL_EXCEPTION, error)

    @override
    def finish(self, task: ReadTask, state: State, status: ScanStatus, error: str) -> None:
        """End a task, and its request with the last one."""
        request = self._requests[task.request]
        unfinished = self._open_tables(request)
        self._windows.withdraw(task)
        task.state = state
        task.status = str(status)
        task.error = error
        self._outbox.touch(task.key)
        self._report_scan(request, unfinished, task, status)
        self._settle(request, error or STOPPED)

    # ---- inside

    def _settle(self, request: Request, reason: str = STOPPED) -> None:
        """End the request when all its tasks have ended."""
        tasks = self.tasks_of(request)
        if request.state.final or not all(task.state.final for task in tasks):
            return
        failed = [task for task in tasks if task.state is State.FAILED and task.status == ScanStatus.SQL_EXCEPTION]
        request.error = "; ".join(f"{task.table}: {task.error}" for task in failed)
        cancelled = bool(tasks) and all(task.state is State.CANCELLED for task in tasks)
        request.state = State.FAILED if failed else State.CANCELLED if cancelled else State.DONE
        request.finished_ms = self._now_ms()
        self._has_ended = True
        self._outbox.touch(request.key)
        if request.state is State.DONE:
            self._outbox.notify(self._notifier(request).completed(self._now_ms()))
        else:
            aborted = self._notifier(request).aborted(self._now_ms(), request.tables)
            self._outbox.notify(_with_reason(aborted, request.error + _REPEAT if failed else reason))
        log.info("snapshot.request_ended", request=request.id, state=str(request.state), error=request.error)

    def _open_tables(self, request: Request) -> list[str]:
        return [task.table for task in self.tasks_of(request) if not task.state.final]

    def _notifier(self, request: Request) -> SnapshotNotifier:
        aggregate = INITIAL if request.origin is Origin.INITIAL or request.blocking else INCREMENTAL
        return SnapshotNotifier(self._name, request.id, aggregate)

    def _report_scan(self, request: Request, tables: Iterable[str], task: ReadTask, status: ScanStatus) -> None:
        """Report how the reading of a table ended."""
        scanned = self._notifier(request).table_scan_completed(self._now_ms(), tables, task.table, task.rows, status)
        self._outbox.notify(_with_reason(scanned, task.error) if task.error else scanned)

    def _eta_ms(self, task: ReadTask) -> int | None:
        """Return milliseconds till all estimated rows are read, at the speed of this process so far."""
        read = task.rows - task.begun_rows
        if task.estimate is None or task.begun_ms is None or read <= 0:
            return None
        return (self._now_ms() - task.begun_ms) * max(0, task.estimate - task.rows) // read


def used_before(known: Request) -> str:
    """Return why a second request of that id is rejected."""
    return f"the id {known.id!r} was used before, its snapshot is {known.state}; use a new id"


def _with_reason(notification: Notification, reason: str) -> Notification:
    return replace(notification, additional_data={**notification.additional_data, "reason": reason})


def _forgettable(requests: Mapping[str, Request], tasks: Iterable[ReadTask]) -> list[Request]:
    """Return the ended requests that need not be remembered; `tasks` in order of their requests."""
    ended = [request for request in requests.values() if request.state.final]
    old = ended[: max(0, len(ended) - KEPT_REQUESTS)]
    if not old:
        return []
    kept = _inexact(requests, tasks)
    return [request for request in old if request.id not in kept]


def _inexact(requests: Mapping[str, Request], tasks: Iterable[ReadTask]) -> set[str]:
    """Return requests because of which tables are inexact, and those that say of others in them that they were read since."""
    unread: dict[str, str] = {}
    read: dict[str, str] = {}
    for task in tasks:
        is_read = task.state is State.DONE and scope_of(task).is_whole_table
        if is_read or task.status == ScanStatus.UNKNOWN_SCHEMA:
            unread.pop(task.table, None)
            read[task.table] = task.request
        elif requests[task.request].origin is Origin.AUTOMATIC or task.request.startswith(RESTART_PREFIX):
            unread[task.table] = task.request
    inexact = set(unread.values())
    tables = {table for request in inexact for table in requests[request].tables}
    return inexact | {read[table] for table in tables & read.keys()}
