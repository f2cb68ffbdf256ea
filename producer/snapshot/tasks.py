"""Tasks and their chunks: how a table is planned and read, and the meaning of each outcome of an attempt (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from producer.snapshot.ranges import Key, KeyRange
from producer.snapshot.scope import scope_of
from producer.snapshot.snapshot_state import Chunk, ReadTask, State, TaskOwner, Tries, Window, WindowState
from schemas.documents import PlanDocument
from schemas.markers import MarkerType
from schemas.notifications import ScanStatus
from schemas.overriding import override
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.buffered_chunk import BufferedChunk
    from producer.snapshot.followed_rows import FollowedRows
    from producer.snapshot.outbox import CheckpointOutbox
    from producer.snapshot.pace import ChunkCost, ChunkSizes
    from producer.snapshot.requests import SnapshotRequests
    from producer.snapshot.window_register import WindowRegister

log = structlog.get_logger(__name__)


class TableTasks(Mapping[tuple[str, str], ReadTask]):
    """The life of tasks: planned, read chunk by chunk, retried, complete or failed.

    As a mapping it has the tasks of requests, by request and table; tasks of key rows are in `FollowedRows`. It has
    no state of its own: tasks belong to their owners, windows to the register. `field_name` returns a column's name in records.
    `sizes` says how large a table's next chunks are, by the cost of one.
    """

    def __init__(
        self,
        requests: SnapshotRequests,
        followed: FollowedRows,
        windows: WindowRegister,
        outbox: CheckpointOutbox,
        field_name: Callable[[str], str] = str,
        sizes: ChunkSizes | None = None,
    ) -> None:
        self._requests = requests
        self._followed = followed
        self._windows = windows
        self._outbox = outbox
        self._field_name = field_name
        self._sizes = sizes

    @override
    def __getitem__(self, key: tuple[str, str]) -> ReadTask:
        return self._requests.tasks[key]

    @override
    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._requests.tasks)

    @override
    def __len__(self) -> int:
        return len(self._requests.tasks)

    # ---- which task, which chunk

    def all(self) -> list[ReadTask]:
        """Return the tasks of requests, then the tasks of key rows."""
        return [*self._requests.tasks.values(), *self._followed.values()]

    def owner(self, task: ReadTask) -> TaskOwner:
        """Return who wanted the rows of the task."""
        return self._followed if task.request in self._followed else self._requests

    def task_of(self, window: Window) -> ReadTask | None:
        """Return the unfinished task a window reads for; None when it was stopped, or its plan was thrown away."""
        task = self._requests.tasks.get((window.request, window.table)) or self._followed.get(window.request)
        if task is None or task.state.final or task.generation != window.generation:
            return None
        return task

    def merge_of(self, window: Window) -> str:
        """Return who merges the window's rows with the log: "spark" or "producer"."""
        task = self.task_of(window)
        return "spark" if task is None else task.merge

    # ---- planning

    def planning(self, task: ReadTask, estimate: int | None) -> None:
        """Start a task whose table was looked at; nothing when it was stopped meanwhile."""
        if task.state.final:
            return
        task.estimate = estimate if estimate is not None else task.estimate
        if task.state is State.QUEUED:
            task.error = ""
        self.owner(task).start(task)

    def planned(self, task: ReadTask, generation: int, bounds: KeyRange, plan: PlanDocument, rows: int = 0) -> None:
        """Add a chunk of that range, of about `rows` rows (0: as the plan says); ignored when the plan was thrown away."""
        if task.generation != generation or task.state.final:
            return
        task.plan = plan
        task.plan_tries = Tries()
        if plan.cap_low is not None:
            task.first_bound = min(task.first_bound or plan.cap_low, plan.cap_low)
        _add_chunk(task, bounds).planned_rows = rows or plan.rows_per_chunk
        self._outbox.touch(task.key)

    def planning_failed(self, task: ReadTask, error: str, now_s: float, *, heals: bool, waits: bool = False) -> None:
        """Plan again later, a few times, or while it `waits` for ever."""
        if task.state.final:
            return
        task.plan_tries.count(heals=heals, waits=waits)
        task.error = error
        if task.plan_tries.are_exhausted:
            self.owner(task).fail(task, error)
        else:
            task.plan_not_before = now_s + task.plan_tries.delay_s
        self._outbox.touch(task.key)

    def refuse(self, task: ReadTask, status: ScanStatus, reason: str) -> None:
        """End a task whose table cannot be read at all; the rest of its request continues."""
        self.owner(task).finish(task, State.FAILED, status, reason)

    def replan(self, task: ReadTask) -> None:
        """Throw the plan away and start over: its key ranges mean nothing any more."""
        log.info("snapshot.table_replanned", request=task.request, table=task.table)
        task.generation += 1
        self._windows.withdraw(task)
        task.chunks.clear()
        task.plan = PlanDocument()
        task.rows = task.chunks_done = 0
        task.first_bound = task.last_close = None
        self._outbox.touch(task.key)

    # ---- the log

    def table_changed(self, table: str, position: Position) -> None:
        """Remember a DDL statement at `position`: low watermarks before it are void."""
        for task in self.all():
            if task.table == table and not task.state.final:
                task.changed_at = position

    def close(self, window: Window, position: Position) -> None:
        """Close the window: its chunk is done, unless the window is void."""
        if not self._windows.closed(window, position):
            return
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
        self._outbox.touch(task.key)
        self.owner(task).report_progress(task, chunk)
        self.complete_if_done(task)

    def rows_at_close(self, window: Window) -> BufferedChunk | None:
        """Return the rows to write at the end of the window; None if nothing is to be written."""
        rows, window.buffered = window.buffered, None
        task, chunk = self._chunk_of(window)
        if window.state is not WindowState.CLOSING or window.reread or task is None or chunk is None:
            return None
        window.written = rows is not None
        return rows

    def complete_if_done(self, task: ReadTask) -> None:
        """Mark the table complete once every chunk is planned and done, and end the task."""
        if not task.complete or task.state.final:
            return
        assert task.first_bound is not None
        assert task.last_close is not None
        fields = {
            "position": task.last_close.text,
            "request": task.request,
            "first_bound": task.first_bound.text,
            "rows": task.rows,
            **scope_of(task).completion(self._field_name),
        }
        self._outbox.mark(task.table, MarkerType.COMPLETE, fields)
        self._followed.note_read(task)
        self.owner(task).complete(task)

    # ---- attempts of readers

    def expected_rows(self, window: Window) -> int:
        """Return about how many rows a window's chunk has; 0 if nobody knows."""
        task, chunk = self._chunk_of(window)
        if task is None or chunk is None:
            return 0
        planned = chunk.planned_rows or task.chunk_rows or task.plan.rows_per_chunk
        return planned if task.estimate is None else min(planned, task.estimate)

    def measured(self, window: Window, cost: ChunkCost) -> None:
        """Let the size of the table's next chunks follow the cost of this one's SELECT."""
        task, chunk = self._chunk_of(window)
        if self._sizes is None or task is None or chunk is None or task.children is not None:
            return
        before = task.chunk_rows or chunk.planned_rows or task.plan.rows_per_chunk
        task.chunk_rows = self._sizes.next(before, chunk.planned_rows, cost)

    def release(self, window: Window) -> None:
        """End a window whose slot can write no more of it; the chunk is read again, and nobody is to blame."""
        self._windows.end(window)
        _, chunk = self._chunk_of(window)
        if chunk is not None:
            chunk.window = None

    def fail(self, window: Window, error: str, now_s: float, *, heals: bool, waits: bool = False) -> None:
        """Release the window and count the attempt unless it `waits`: after too many the task has failed."""
        task, chunk = self._chunk_of(window)
        self.release(window)
        if task is None or chunk is None:
            return
        chunk.tries.count(heals=heals, waits=waits)
        chunk.error = error
        task.error = error
        chunk.not_before = now_s + chunk.tries.delay_s
        if chunk.tries.are_exhausted:
            self.owner(task).fail(task, error)
        self._outbox.touch(task.key)

    def split(self, window: Window, bounds: Sequence[Key]) -> None:
        """Replace a chunk that does not fit into memory by smaller ones, none of them begun."""
        task, chunk = self._chunk_of(window)
        self.release(window)
        if task is None or chunk is None:
            return
        log.info("snapshot.chunk_split", table=task.table, chunk=chunk.id, pieces=len(bounds) + 1)
        del task.chunks[chunk.id]
        lower: Key | None = chunk.range.lower
        for upper in (*bounds, chunk.range.upper):
            _add_chunk(task, KeyRange(lower, upper))
            lower = upper
        self._outbox.touch(task.key)

    def unreadable(self, window: Window, error: str) -> None:
        """Release a window that no attempt can read; its task has failed."""
        task, _ = self._chunk_of(window)
        self.release(window)
        if task is not None:
            self.owner(task).fail(task, error)

    def dropped(self, window: Window) -> None:
        """Release the window of a table that does not exist any more; its task ends."""
        task, _ = self._chunk_of(window)
        self.release(window)
        if task is not None:
            self.refuse(task, ScanStatus.UNKNOWN_SCHEMA, f"{task.table} was dropped while it was read")

    # ---- inside

    def _chunk_of(self, window: Window) -> tuple[ReadTask | None, Chunk | None]:
        task = self.task_of(window)
        if task is None:
            return None, None
        chunk = task.chunks.get(window.chunk)
        return task, chunk if chunk is not None and chunk.window is window else None


def _add_chunk(task: ReadTask, bounds: KeyRange) -> Chunk:
    chunk = task.chunks[task.next_chunk] = Chunk(task.next_chunk, bounds)
    task.next_chunk += 1
    return chunk
