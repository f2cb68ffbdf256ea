"""The board: the ledger, the one lock around it, and waiting for what others write on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from producer.snapshot.documents import TableId, Window, WindowState
from producer.snapshot.ledger import SnapshotLedger
from producer.snapshot.reader import AbandonedError
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.held import HeldChunk
    from producer.snapshot.sink import ChunkReceipt

POLL_S: Final = 0.25


class Board:
    """What the log reader's thread, the planner and the slots share.

    `changed` is the lock and the bell: hold it to touch anything here, ring it (`notify_all`) after a change.
    It is never held during I/O. `committed` is the border of the log reader's last commit.
    """

    def __init__(
        self,
        ledger: SnapshotLedger,
        clock: Callable[[], float],
        captured: Callable[[], Iterable[TableId]],
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.captured = captured
        self.changed = threading.Condition()
        self.stopping = False
        self.fatal: BaseException | None = None
        self.committed: Position | None = None
        self.barriers: dict[str, bool] = {}
        self.unfenced: set[int] = set()

    def stop(self) -> None:
        """Wake everybody up to end."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def is_past(self, position: Position) -> bool:
        """Whether everything before `position` was met in the log."""
        return self.committed is not None and self.committed >= position

    def wait_until(self, met: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Whether it became so within the time; `AbandonedError` when the process stops."""
        deadline = None if timeout_s is None else self.clock() + timeout_s
        with self.changed:
            while not met():
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
        """Database and table of `database.table`, also where one of the names holds a dot."""
        for table in self.captured():
            if ".".join(table) == name:
                return table
        database, _, table_name = name.partition(".")
        return database, table_name


class BoardWatch:
    """A chunk reader's view of its window (`producer.snapshot.reader.WindowWatch`)."""

    def __init__(self, board: Board, window: Window) -> None:
        self._board = board
        self._window = window

    def check(self) -> None:
        """As the contract says."""
        if self._board.stopping or self._void():
            message = f"window {self._window.id} is void"
            raise AbandonedError(message)

    def low_taken(self, low: Position) -> None:
        """As the contract says."""
        with self._board.changed:
            task = self._board.ledger.task_of(self._window)
            if task is not None and task.changed_at is not None and low < task.changed_at:
                self._window.reread = True
            self._window.low = low
        self.check()

    def count(self, rows: int) -> None:
        """As the contract says."""
        self._window.rows_read = rows

    def wait_open(self, timeout_s: float) -> bool:
        """As the contract says."""
        return self._wait(lambda: self._window.opened_at is not None, timeout_s)

    def wait_past(self, position: Position) -> bool:
        """As the contract says."""
        self._wait(lambda: self._window.opened_at is not None or self._board.is_past(position), None)
        return self._window.opened_at is not None

    def closing(self, receipt: ChunkReceipt, closes_at: Position | None) -> None:
        """As the contract says."""
        with self._board.changed:
            self._board.ledger.closing(self._window, receipt.rows, receipt.first_offsets, closes_at)

    def holding(self, chunk: HeldChunk, closes_at: Position | None) -> None:
        """As the contract says."""
        with self._board.changed:
            self.check()
            self._board.ledger.holding(self._window, chunk, closes_at)

    def wait_closed(self) -> None:
        """As the contract says."""
        self._wait(lambda: self._window.state is WindowState.ENDED, None)

    def _void(self) -> bool:
        return self._window.cancelled or self._window.reread

    def _wait(self, met: Callable[[], bool], timeout_s: float | None) -> bool:
        answered = self._board.wait_until(lambda: met() or self._void(), timeout_s)
        self.check()
        return answered
