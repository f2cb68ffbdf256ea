"""Rows that changes of their parents may have changed without a log event: they are read and swept by themselves (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import Chunk, ReadTask, State, TaskOwner
from schemas.documents import PlanDocument
from schemas.notifications import ScanStatus
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.snapshot.child_rows import ChildRows
    from producer.snapshot.outbox import CheckpointOutbox
    from producer.snapshot.requests import SnapshotRequests
    from producer.snapshot.window_register import WindowRegister

log = structlog.get_logger(__name__)

MANY_PARENTS: Final = "more parents changed than are followed one by one: foreign keys changed rows without logging them"
GATHER_S: Final = 1.0  # rows of one foreign key are gathered so long, to be read together
REST: Final = 3  # a table read whole again and again is read a quarter of the time


class FollowedRows(Mapping[str, ReadTask], TaskOwner):
    """Tasks of key rows by id; they are of no request. Too many rows, or unreadable ones, become a whole-table request.

    It owns its tasks: one that ends is forgotten, and nobody is notified. It also
    knows which children were read whole, and lets them rest before they are read so again.
    """

    def __init__(
        self,
        requests: SnapshotRequests,
        windows: WindowRegister,
        outbox: CheckpointOutbox,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._requests = requests
        self._windows = windows
        self._outbox = outbox
        self._now_ms = now_ms
        self._new_id = new_id
        self._tasks: dict[str, ReadTask] = {}
        self._whole: dict[str, int] = {}  # request → when it may begin, by now_ms
        self._rests: dict[str, int] = {}

    @override
    def __getitem__(self, task_id: str) -> ReadTask:
        return self._tasks[task_id]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    @override
    def __len__(self) -> int:
        return len(self._tasks)

    def restore(self, task: ReadTask) -> None:
        """Adopt a task of an earlier process."""
        self._tasks[task.request] = task

    # ---- followed rows

    def follow(self, table: str, rows: ChildRows, not_before: float = 0.0) -> None:
        """Read these rows of a child and sweep the others: a parent changed, and the log says no more.

        Not before then, on the process's clock: every reading costs two rows in the signal table. They join the rows of the
        same foreign key that nobody has begun to read; too many are read as a whole table.
        """
        if table in self._requests.aside:  # it is read whole when it is taken up
            return
        joined = next((task for task in self._tasks.values() if _accepts(task, table, rows)), None)
        if joined is not None and joined.children is not None:
            rows = joined.children.united(rows)
        if rows.is_large:
            if joined is not None:
                self.forget(joined)
            self.follow_whole(table, MANY_PARENTS)
            return
        task = joined or ReadTask(
            self._new_id(),
            table,
            merge="spark",
            plan=PlanDocument(complete=True),
            chunks={0: Chunk(0, KeyRange(), not_before=not_before)},
        )
        task.children = rows
        self._tasks[task.request] = task
        self._outbox.touch(task.key)

    def follow_whole(self, table: str, reason: str) -> None:
        """Read a child whole and sweep it. If it was only just read so, it rests for some time first."""
        if table in self._requests.aside:
            return
        request_id = self._requests.submit_automatic(table, reason, merge="spark")
        if request_id is not None:
            self._whole[request_id] = self._rests.get(table, 0)

    def forget(self, task: ReadTask) -> None:
        """End a task: its rows were read, or nobody wants them any more."""
        self._windows.withdraw(task)
        task.state = State.DONE
        self._tasks.pop(task.request, None)
        self._outbox.touch(task.key)

    def restart(self) -> None:
        """Read the rows of every task in a new window."""
        for task in self._tasks.values():
            for chunk in task.chunks.values():
                chunk.window = None

    # ---- children that are read whole

    def is_resting(self, task: ReadTask) -> bool:
        """Return whether a child is not read whole yet: it rests, or another task that reads its table has to end first."""
        until_ms = self._whole.get(task.request)
        if until_ms is None or task.state is not State.QUEUED:
            return False
        others = self._requests.tasks.values()
        is_read = any(other.table == task.table and other.state is State.RUNNING for other in others)
        return until_ms > self._now_ms() or is_read

    def note_read(self, task: ReadTask) -> None:
        """Let a child rest that was read whole: three times as long as that took."""
        if self._whole.pop(task.request, None) is not None and task.begun_ms is not None:
            now_ms = self._now_ms()
            self._rests[task.table] = now_ms + REST * (now_ms - task.begun_ms)

    # ---- the owner of its tasks

    @override
    def start(self, task: ReadTask) -> None:
        """Do nothing: nobody is notified of key rows."""

    @override
    def report_progress(self, task: ReadTask, chunk: Chunk | None = None) -> None:
        """Do nothing: nobody is notified of key rows."""

    @override
    def complete(self, task: ReadTask) -> None:
        """Forget a task whose rows have been read."""
        parents = 0 if task.children is None else len(task.children.old)
        log.debug("snapshot.children_read", table=task.table, parents=parents, rows=task.rows)
        self.forget(task)

    @override
    def fail(self, task: ReadTask, error: str) -> None:
        """Read the whole table instead."""
        log.warning("snapshot.children_failed", table=task.table, error=error)
        self.forget(task)
        self.follow_whole(task.table, f"the children of a changed parent could not be read: {error}")

    @override
    def finish(self, task: ReadTask, state: State, status: ScanStatus, error: str) -> None:
        """Forget a task that cannot be read: its table is gone, or set aside."""
        self.forget(task)


def _accepts(task: ReadTask, table: str, rows: ChildRows) -> bool:
    """Return whether rows can join a task: the same foreign key, and no window of it has a bound yet."""
    unread = all(chunk.window is None for chunk in task.chunks.values())
    return task.table == table and unread and task.children is not None and task.children.fits(rows)
