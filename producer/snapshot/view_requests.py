"""Requests that are read in one view: begun, read, retried as a whole (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.snapshot.snapshot_state import Request, State, TableTask
from schemas.documents import PlanDocument
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.outbox import Outbox
    from producer.snapshot.requests import SnapshotRequests
    from producer.snapshot.tasks import TableTasks


class ViewRequests:
    """Blocking requests. Planner and chunk readers leave them alone; it has no state of its own."""

    def __init__(
        self, requests: SnapshotRequests, tasks: TableTasks, outbox: Outbox
    ) -> None:
        self._requests = requests
        self._tasks = tasks
        self._outbox = outbox

    def next_request(self, now_s: float) -> Request | None:
        """Return the oldest request that is to be read in one view now."""
        for request in self._requests.values():
            if not request.blocking or request.state.final or request.not_before > now_s:
                continue
            if not any(self._is_set_aside(task) for task in self._requests.tasks_of(request)):
                return request
        return None

    def begin(self, request: Request) -> list[TableTask]:
        """Return its tasks, from their first rows on: what an earlier attempt read was read in another view."""
        tasks = [
            task for task in self._requests.tasks_of(request) if task.state not in (State.FAILED, State.CANCELLED)
        ]
        for task in tasks:
            task.state, task.status, task.error = State.QUEUED, "", ""
            task.rows = task.chunks_done = task.begun_rows = 0
            task.begun_ms = None
            self._outbox.touch(task.key)
        return tasks

    def add_rows(self, task: TableTask, rows: int, *, report: bool) -> None:
        """Count rows of a table that were read."""
        task.rows += rows
        if report:
            self._outbox.touch(task.key)
            self._requests.report_progress(task)

    def complete(self, task: TableTask, position: Position) -> None:
        """End a task all of whose rows were written, as versions of `position`."""
        if task.state.final:
            return
        task.plan = PlanDocument(complete=True)
        task.chunks_done = 1
        task.first_bound = task.last_close = position
        self._tasks.complete_if_done(task)

    def failed(self, request: Request, error: str, now_s: float, *, heals: bool, waits: bool = False) -> None:
        """Start the request over later, a few times where that may help, or while it `waits`: there was no view, or it broke."""
        if request.state.final:
            return
        request.tries.count(heals=heals, waits=waits)
        request.not_before = now_s + request.tries.delay_s
        unfinished = [task for task in self._requests.tasks_of(request) if not task.state.final]
        for task in unfinished:
            task.error = error
            self._outbox.touch(task.key)
        if not heals or request.tries.are_exhausted:
            for task in unfinished:
                self._requests.fail(task, error)

    def _is_set_aside(self, task: TableTask) -> bool:
        return not task.state.final and task.table in self._requests.aside
