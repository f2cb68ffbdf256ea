"""The window register: every window that may still be written, and the horizon that follows from them (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from producer.snapshot.snapshot_state import Chunk, ReadTask, Window, WindowState
from schemas.markers import MarkerType
from schemas.overriding import override
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.buffered_chunk import BufferedChunk
    from producer.snapshot.outbox import CheckpointOutbox

log = structlog.get_logger(__name__)

_UNSTARTED: Final = frozenset({WindowState.REGISTERING, WindowState.READY})
_BUSY: Final = frozenset({WindowState.RUNNING, WindowState.CLOSING})


class WindowRegister(Mapping[str, Window]):
    """Windows by id. A window is one attempt at one chunk.

    Its life: `register` creates it with a checkpoint's position as bound, `committed` makes it ready, `start` gives it to a
    reader, `closing` or `buffered` says that its rows are read, and `end` ends it. An ended window leaves the register,
    and the horizon, with the next checkpoint (`forget_ended`).
    """

    def __init__(self, outbox: CheckpointOutbox, readers: int, new_id: Callable[[], str]) -> None:
        self._outbox = outbox
        self._readers = readers
        self._new_id = new_id
        self._windows: dict[str, Window] = {}

    @override
    def __getitem__(self, window_id: str) -> Window:
        return self._windows[window_id]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._windows)

    @override
    def __len__(self) -> int:
        return len(self._windows)

    # ---- restart

    def restore(self, window: Window) -> None:
        """Adopt a window of an earlier process."""
        window.state = WindowState.ORPHAN
        self._windows[window.id] = window

    def slots_fenced(self) -> None:
        """End the windows of the earlier process: none of its producers can write any more."""
        for window in self._windows.values():
            if window.state is WindowState.ORPHAN:
                self.end(window)

    # ---- the life of a window

    def register(self, task: ReadTask, chunk: Chunk, bound: Position) -> None:
        """Create the window of a chunk; `bound` is the transaction boundary of the checkpoint."""
        window = Window(
            id=self._new_id(),
            request=task.request,
            table=task.table,
            chunk=chunk.id,
            bound=bound,
            readers=self._readers,
            generation=task.generation,
        )
        chunk.window = window
        self._windows[window.id] = window
        self._outbox.touch(window.key)

    def committed(self) -> list[Window]:
        """Make the windows ready whose registration is durable by now; return them."""
        ready = [window for window in self._windows.values() if window.state is WindowState.REGISTERING]
        for window in ready:
            window.state = WindowState.READY
        return ready

    def opened(self, window: Window, position: Position) -> None:
        """Mark the window as open: its open row was read in the log."""
        if window.opened_at is None:
            window.opened_at = position
            self._outbox.mark(window.table, MarkerType.OPEN, _fields(window, position))

    def closing(
        self, window: Window, rows: int, first_offsets: Mapping[int, int], closes_at: Position | None = None
    ) -> None:
        """Note that the window's rows are visible in Kafka. `closes_at`: no close row comes."""
        window.rows = rows
        window.first_offsets = first_offsets
        window.closes_at = closes_at
        window.state = WindowState.CLOSING

    def ask_for(self, window: Window, fields: Mapping[str, Any], now_s: float) -> None:
        """Ask the merge job for the rows of a window whose open row was read; `fields` of the marker have the query."""
        assert window.opened_at is not None
        assert window.load is not None
        window.load.asked_at = now_s
        plan = {"generation": window.generation}
        self._outbox.mark(window.table, MarkerType.LOAD, {**_fields(window, window.opened_at), **fields, **plan})

    def buffered(self, window: Window, chunk: BufferedChunk, closes_at: Position | None = None) -> None:
        """Keep the rows until the window closes: at its close row, or at `closes_at` if no row comes."""
        window.rows = chunk.rows
        window.buffered = chunk
        window.closes_at = closes_at
        window.state = WindowState.CLOSING

    def closed(self, window: Window, position: Position) -> bool:
        """Mark the window as closed and end it; return False for one whose rows are not complete."""
        if window.state is not WindowState.CLOSING:
            return False
        counts: dict[str, Any] = {"rows": {}, "first_offsets": dict(window.first_offsets)}
        if window.load is not None:
            counts["loaded"] = True
        self._outbox.mark(window.table, MarkerType.CLOSE, _fields(window, position) | counts)
        self.end(window)
        return True

    def end(self, window: Window) -> None:
        """End the window: its rows are committed, or its slot can write no more of it."""
        window.state = WindowState.ENDED
        window.buffered = None
        self._outbox.touch(window.key)

    # ---- windows of a task

    def withdraw(self, task: ReadTask) -> None:
        """End the windows that no reader has started; their chunks have none then."""
        for chunk in task.chunks.values():
            if chunk.window is not None and chunk.window.state in _UNSTARTED:
                self.end(chunk.window)
                chunk.window = None

    def cancel(self, task: ReadTask) -> None:
        """Void the windows of a task, and withdraw those that no reader has started."""
        void(task)
        self.withdraw(task)

    # ---- void windows

    def table_changed(self, table: str, position: Position) -> None:
        """Void the windows of a table that are open across a DDL statement at `position`."""
        for window in self._windows.values():
            crosses = window.low is not None and window.low < position
            if window.table == table and window.state in _BUSY and crosses:
                window.reread = True

    def lost(self, windows: Iterable[str]) -> None:
        """Void windows whose changed keys can no longer be remembered: their chunks are read again."""
        for window in (self._windows[name] for name in windows if name in self._windows):
            log.info("snapshot.window_lost", table=window.table, chunk=window.chunk)
            window.reread = True

    def give_back(self, task: ReadTask) -> None:
        """Void the windows of a task that the merge job has not read; those it has read are about to be closed."""
        for chunk in task.chunks.values():
            window, load = chunk.window, None if chunk.window is None else chunk.window.load
            if window is None or load is None or window.state is not WindowState.RUNNING:
                continue
            window.reread = load.answer is None or bool(load.answer.error)

    # ---- queries

    @property
    def unstarted(self) -> list[Window]:
        """The windows that are registered and not started."""
        return [window for window in self._windows.values() if window.state in _UNSTARTED]

    def has_low(self, window: Window, low: Position) -> bool:
        """Return whether another request's window of the same table has that low watermark."""
        return any(
            other.low == low and other.table == window.table and other.request != window.request
            for other in self._windows.values()
        )

    def is_reading(self, request_id: str) -> bool:
        """Return whether a reader has a window of that request."""
        return any(window.request == request_id and window.state in _BUSY for window in self._windows.values())

    def closable(self, position: Position) -> list[Window]:
        """Return the windows without a close row that close at this transaction boundary."""
        return [
            window
            for window in self._windows.values()
            if window.state is WindowState.CLOSING and window.closes_at is not None and window.closes_at <= position
        ]

    def horizon(self, position: Position) -> Position:
        """Return the smallest bound of all windows, else the position of the log reader."""
        bounds = [window.bound for window in self._windows.values()]
        return min(bounds, default=position)

    def forget_ended(self) -> None:
        """Remove the ended windows; the checkpoint that is being prepared deletes their documents."""
        for window in [window for window in self._windows.values() if window.state is WindowState.ENDED]:
            del self._windows[window.id]


def is_read_now(chunk: Chunk) -> bool:
    """Return whether a reader has the chunk."""
    return chunk.window is not None and chunk.window.state in _BUSY


def void(task: ReadTask) -> None:
    """Void the windows of a task: what their readers read counts for nothing."""
    for chunk in task.chunks.values():
        if chunk.window is not None:
            chunk.window.cancelled = True


def _fields(window: Window, position: Position) -> dict[str, Any]:
    return {
        "position": position.text,
        "window": window.id,
        "request": window.request,
        "chunk": window.chunk,
    }
