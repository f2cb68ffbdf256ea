"""The ledger as threads share it: the one lock around it, and waiting for what other threads change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.reader import AbandonedError, WindowWatch
from producer.snapshot.snapshot_state import Window, WindowState
from schemas.identity import TableId, TableName
from schemas.overriding import override
from schemas.position import Position

if TYPE_CHECKING:
    from producer.kafka.chunk_sink import ChunkReceipt
    from producer.snapshot.buffered_chunk import BufferedChunk
    from producer.snapshot.pace import ChunkCost, RowRate

POLL_S: Final = 0.25


class SharedLedger:
    """What the log reader's thread, the planner and the chunk workers share.

    `changed` is the lock and the condition: hold it to use anything here, notify it (`notify_all`) after a change, which is what
    `changing` does. It is never held during I/O. `committed` is the transaction boundary of the log reader's last checkpoint.
    `rate` is the limit on rows per second, None without one.
    """

    def __init__(
        self,
        ledger: SnapshotLedger,
        clock: Callable[[], float],
        captured: Callable[[], Iterable[TableId]],
        rate: RowRate | None = None,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.captured = captured
        self.rate = rate
        self.changed = threading.Condition()
        self.stopping = False
        self.fatal: BaseException | None = None
        self.committed: Position | None = None
        self.barriers: dict[str, bool] = {}
        self.unfenced: set[int] = set()

    def stop(self) -> None:
        """Wake every thread up to end."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    @contextmanager
    def changing(self) -> Iterator[SnapshotLedger]:
        """Give the ledger to one thread, and wake the others up when it has changed it."""
        with self.changed:
            yield self.ledger
            self.changed.notify_all()

    def is_past(self, position: Position) -> bool:
        """Return whether the log reader has read everything before `position`."""
        return self.committed is not None and self.committed >= position

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Return whether the condition became true within the time; `AbandonedError` when the process stops."""
        deadline = None if timeout_s is None else self.clock() + timeout_s
        with self.changed:
            while not condition():
                if self.stopping:
                    message = "the producer stops"
                    raise AbandonedError(message)
                if deadline is not None and self.clock() >= deadline:
                    return False
                self.changed.wait(POLL_S)
        return True

    def sleep(self, seconds: float) -> None:
        """Wait that long, or until the process stops."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopping, seconds)

    def table_id(self, name: str) -> TableId:
        """Return database and table of `database.table`; of a table that has no topics, the first dot divides the names."""
        published = self._published(name)
        database, _, table_name = name.partition(".")
        return published or (database, table_name)

    def table_name(self, table: TableId) -> str:
        """Return `database.table`, which `table_id` reads; with backticks if another table that has topics is called so."""
        plain = ".".join(table)
        return plain if self._published(plain) in (None, table) else TableName(*table).text

    def _published(self, name: str) -> TableId | None:
        return next((table for table in self.captured() if ".".join(table) == name), None)


class LedgerWatch(WindowWatch):
    """A chunk reader's view of its window, by the shared ledger."""

    def __init__(self, shared: SharedLedger, window: Window) -> None:
        self._shared = shared
        self._window = window

    @override
    def check(self) -> None:
        if self._shared.stopping or self._is_void():
            message = f"window {self._window.id} is void"
            raise AbandonedError(message)

    @override
    def low_chosen(self, low: Position, *, moves: bool) -> None:
        with self._shared.changed:
            task = self._shared.ledger.tasks.task_of(self._window)
            is_old = task is not None and task.changed_at is not None and low < task.changed_at
            if is_old or (moves and self._shared.ledger.windows.has_low(self._window, low)):
                self._window.reread = True
            self._window.low = low
        self.check()

    @override
    def count(self, rows: int) -> None:
        self._window.rows_read = rows

    @override
    def measured(self, cost: ChunkCost) -> None:
        with self._shared.changed:
            self._shared.ledger.tasks.measured(self._window, cost)

    @override
    def wait_open(self, timeout_s: float) -> bool:
        return self._wait(lambda: self._window.opened_at is not None, timeout_s)

    @override
    def wait_past(self, position: Position) -> bool:
        self._wait(lambda: self._window.opened_at is not None or self._shared.is_past(position), None)
        return self._window.opened_at is not None

    @override
    def closing(self, receipt: ChunkReceipt, closes_at: Position | None) -> None:
        with self._shared.changed:
            self._shared.ledger.windows.closing(self._window, receipt.rows, receipt.first_offsets, closes_at)

    @override
    def buffered(self, chunk: BufferedChunk, closes_at: Position | None) -> None:
        with self._shared.changed:
            self.check()
            self._shared.ledger.windows.buffered(self._window, chunk, closes_at)

    @override
    def wait_closed(self) -> None:
        self._wait(lambda: self._window.state is WindowState.ENDED, None)

    def _is_void(self) -> bool:
        return self._window.cancelled or self._window.reread

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        is_true = self._shared.wait_until(lambda: condition() or self._is_void(), timeout_s)
        self.check()
        return is_true
