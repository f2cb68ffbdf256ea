"""Turns: which task is planned next, which chunks get windows, and which window is read next (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from producer.snapshot.snapshot_state import Chunk, LoadAttempt, ReadTask, State, Window, WindowState
from producer.snapshot.window_register import is_read_now
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.followed_rows import FollowedRows
    from producer.snapshot.requests import SnapshotRequests
    from producer.snapshot.tasks import TableTasks
    from producer.snapshot.window_register import WindowRegister


class Turns:
    """The order of reading: requests by arrival, and key rows in turn with them.

    `readers` bounds how far registration and planning run ahead of reading, `loads` the same of tables that the merge job reads;
    without any, there is neither. While `waits_because` says why, nothing is planned, registered or started.
    """

    def __init__(
        self,
        tasks: TableTasks,
        requests: SnapshotRequests,
        followed: FollowedRows,
        windows: WindowRegister,
        readers: int,
        loads: int = 0,
    ) -> None:
        self.tasks = tasks
        self._requests = requests
        self._followed = followed
        self._windows = windows
        self._workers = {False: readers, True: loads}  # by whether the merge job reads the task
        self._followed_last = False
        self.waits_because = ""

    # ---- the planner

    def to_plan(self, now_s: float) -> ReadTask | None:
        """Return the task to plan a chunk of: the first in order of arrival whose readers are not far behind.

        Chunks of a table whose turn it is not are not waited for: they may come after all of the one to be planned. Of a
        table of which none was read yet, one chunk per reader is planned: the others get the size that those suggest.
        """
        if self.waits_because:
            return None
        active = list(self._active())
        waiting = Counter(task.is_loaded for task in active for chunk in task.chunks.values() if not is_read_now(chunk))
        for task in active:
            workers = self._workers[task.is_loaded]
            is_far_ahead = waiting[task.is_loaded] >= 4 * workers
            is_unmeasured = not (task.is_loaded or task.chunk_rows or task.chunks_done) and len(task.chunks) >= workers
            if not (task.plan.complete or is_far_ahead or is_unmeasured) and task.plan_not_before <= now_s:
                return task
        return None

    # ---- the register

    def needs_windows(self, now_s: float) -> bool:
        """Return whether a chunk waits to be registered."""
        return any(True for _ in self._to_register(now_s))

    def register(self, bound: Position, now_s: float) -> None:
        """Create windows for the chunks that readers can soon use."""
        for task, chunk in list(self._to_register(now_s)):
            self._windows.register(task, chunk, bound)

    def _to_register(self, now_s: float) -> Iterable[tuple[ReadTask, Chunk]]:
        """Return chunks that need a window, as many as readers can soon use; first the ones that have fewer waiting windows."""
        unstarted = self._windows.unstarted
        of_followed = sum(1 for window in unstarted if window.request in self._followed)
        if self.waits_because:
            return
        used = Counter(task.is_loaded for window in unstarted if (task := self.tasks.task_of(window)) is not None)
        room = {False: 2 * self._workers[False] - used[False], True: self._workers[True] - used[True]}
        for task in self._all_active(followed_first=2 * of_followed <= len(unstarted)):
            for chunk in task.chunks.values():
                if room[task.is_loaded] <= 0:
                    break
                if chunk.window is None and chunk.not_before <= now_s:
                    room[task.is_loaded] -= 1
                    yield task, chunk

    # ---- the readers

    def start_next_window(self) -> Window | None:
        """Start a registered window for a free reader, in order of arrival, if any.

        Key rows and requests take turns: parents that change all the time must not keep everything else from being read,
        nor a window that waits from releasing the horizon.
        """
        if self.waits_because:
            return None
        for task in self._all_active(followed_first=not self._followed_last):
            window = None if task.is_loaded else self._start_window(task)
            if window is not None:
                self._followed_last = task.request in self._followed
                return window
        return None

    def start_next_load(self) -> Window | None:
        """Start a registered window of a table that the merge job reads, if any."""
        if self.waits_because:
            return None
        for task in self._active():
            window = self._start_window(task) if task.is_loaded else None
            if window is not None:
                window.load = LoadAttempt()
                return window
        return None

    def _start_window(self, task: ReadTask) -> Window | None:
        for chunk in task.chunks.values():
            if chunk.window is not None and chunk.window.state is WindowState.READY:
                chunk.window.state = WindowState.RUNNING
                self.tasks.owner(task).start(task)
                return chunk.window
        return None

    def has_work(self) -> bool:
        """Return whether there is a task to plan or to read, now or when the source is less loaded."""
        return any(True for _ in self._all_active(followed_first=False))

    # ---- inside

    def _active(self) -> Iterable[ReadTask]:
        """Return the tasks of requests that may be read now: of one table only the task of the oldest unfinished request."""
        seen: set[str] = set()
        for task in list(self._requests.tasks.values()):
            request = self._requests[task.request]
            if task.state.final or request.blocking or task.table in seen or self._followed.is_resting(task):
                continue
            if task.table in self._requests.aside:
                continue
            seen.add(task.table)
            if request.state is not State.PAUSED:
                yield task

    def _all_active(self, *, followed_first: bool) -> Iterable[ReadTask]:
        """Return the same and the tasks of key rows, which are read beside them."""
        followed = list(self._followed.values())
        return chain(followed, self._active()) if followed_first else chain(self._active(), followed)
