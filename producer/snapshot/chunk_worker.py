"""A chunk worker: one thread with one connection and one slot (transactional id), reading chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pymysql
import structlog

from mysqlio.connection import close_quietly
from producer.snapshot.buffered_chunk import ChunkTooLargeError
from producer.snapshot.child_rows import ChildrenUnreadableError
from producer.snapshot.failures import EXPECTED, described, heals_by_itself
from producer.snapshot.filters import FilterRefusedError
from producer.snapshot.planner import split_bounds
from producer.snapshot.ranges import Key
from producer.snapshot.reader import (
    AbandonedError,
    ChunkReader,
    KeyChangedError,
    TableGoneError,
)
from producer.snapshot.shared_ledger import POLL_S, LedgerWatch, SharedLedger
from producer.snapshot.snapshot_state import Window, WindowState
from producer.snapshot.window_attempts import TopicNames, WindowAttempts
from schemas.errors import PreparedXaError

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.chunk_writer import ChunkWriter
    from producer.snapshot.table_access import TableAccess

log = structlog.get_logger(__name__)

_MAX_FENCE_DELAY_S: Final = 10.0


class ChunkWorker:
    """The worker of slot `number`. Where it does not `reads`, the slot was an earlier process's and is only fenced."""

    def __init__(
        self,
        number: int,
        shared: SharedLedger,
        access: TableAccess,
        writer: Callable[[int], ChunkWriter],
        reader: Callable[[ChunkWriter], ChunkReader],
        names: TopicNames,
        *,
        reads: bool,
    ) -> None:
        self._number = number
        self._shared = shared
        self._access = access
        self._make_writer = writer
        self._make_reader = reader
        self._reads = reads
        self._connection: Connection | None = None
        self._attempts = WindowAttempts(shared, names, shared.ledger.turns.start_next_window)

    def run(self) -> None:
        """Fence the slot, then read until the process stops."""
        writer = self._make_writer(self._number)
        try:
            if not self._fence(writer):
                return
            self._note_fenced()
            if not self._reads:
                return
            reader = self._make_reader(writer)
            while (window := self._attempts.next_window()) is not None:
                self._read(writer, reader, window)
        finally:
            self.break_off()
            writer.close()

    def break_off(self) -> None:
        """Close the connection, also under a reader that waits for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    def _fence(self, writer: ChunkWriter) -> bool:
        """Take the slot over, however long it takes; return False when the process stops meanwhile."""
        delay = POLL_S
        while not self._shared.stopping:
            try:
                writer.fence()
            except EXPECTED as error:
                log.warning("snapshot.slot_not_fenced", slot=self._number, error=str(error))
                self._shared.sleep(delay)
                delay = min(2 * delay, _MAX_FENCE_DELAY_S)
            else:
                return True
        return False

    def _note_fenced(self) -> None:
        """Once the last slot is fenced, nothing of the earlier process can write any more."""
        shared = self._shared
        with shared.changed:
            shared.unfenced.discard(self._number)
            if not shared.unfenced:
                shared.ledger.windows.slots_fenced()
            shared.changed.notify_all()

    def _read(self, writer: ChunkWriter, reader: ChunkReader, window: Window) -> None:
        """Make one attempt at one chunk, and note what its end means."""
        try:
            assignment = self._attempts.assignment(window)
            reader.read(self._connected(), assignment, LedgerWatch(self._shared, window))
        except EXPECTED as error:
            self.break_off()
            visible = window.state is WindowState.CLOSING
            with suppress(*EXPECTED):
                writer.abort()
            if visible or self._fence(writer):
                self._give_up(window, error)
        finally:
            self._attempts.settle(window.rows_read)

    def _give_up(self, window: Window, error: BaseException) -> None:
        shared, tasks = self._shared, self._shared.ledger.tasks
        bounds = self._split(window, error) if isinstance(error, ChunkTooLargeError) else ()
        refused = self._refused_filter(window, error)
        with shared.changed:
            task = tasks.task_of(window)
            if isinstance(error, TableGoneError):
                tasks.dropped(window)
            elif isinstance(error, KeyChangedError) and task is not None:
                tasks.release(window)
                tasks.replan(task)
            elif isinstance(error, AbandonedError):
                tasks.release(window)
            elif bounds:
                tasks.split(window, bounds)
            elif isinstance(error, ChildrenUnreadableError):
                tasks.unreadable(window, str(error))
            elif refused:
                log.warning("snapshot.filter_refused", table=window.table, chunk=window.chunk, error=refused)
                tasks.unreadable(window, refused)
            else:
                words = described(error)
                log.warning("snapshot.chunk_failed", table=window.table, chunk=window.chunk, error=words)
                heals, waits = heals_by_itself(error), isinstance(error, PreparedXaError)
                tasks.fail(window, words, shared.clock(), heals=heals, waits=waits)
            shared.changed.notify_all()

    def _split(self, window: Window, error: ChunkTooLargeError) -> Sequence[Key]:
        """Return where to divide a chunk whose rows do not fit into memory; nothing when that can't be known."""
        try:
            assignment = self._attempts.assignment(window)
            connection = self._connected()
            table = self._access.schemas(connection, *assignment.table)
            if table is None:
                return ()
            rows, scope = max(1, error.rows * 4 // 5), assignment.scope
            return split_bounds(connection, table, assignment.bounds, rows, scope.condition, scope.surrogate)
        except EXPECTED as failure:
            self.break_off()
            log.warning("snapshot.chunk_not_split", table=window.table, error=described(failure))
            return ()

    def _refused_filter(self, window: Window, error: BaseException) -> str:
        """Return why no attempt can read the table by its filter, "" where one may."""
        if not isinstance(error, pymysql.MySQLError) or heals_by_itself(error):
            return ""
        try:
            assignment = self._attempts.assignment(window)
            refusal = assignment.scope.refusal(assignment.full_name, error)
            if refusal or assignment.scope.condition is None:
                return refusal
            connection = self._connected()
            table = self._access.schemas(connection, *assignment.table)
            if table is not None:
                assignment.scope.require_readable(connection, table)
        except FilterRefusedError as refused:
            return str(refused)
        except EXPECTED:
            self.break_off()
        return ""

    def _connected(self) -> Connection:
        connection = self._connection = self._connection or self._access.connect()
        return connection
