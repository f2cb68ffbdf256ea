"""A chunk worker: one thread with one connection and one slot (transactional id), reading chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_errors import ServerError, described
from producer.snapshot.buffered_chunk import ChunkTooLargeError
from producer.snapshot.child_rows import ChildrenUnreadableError
from producer.snapshot.planner import split_bounds
from producer.snapshot.ranges import Key
from producer.snapshot.reader import ChunkReader
from producer.snapshot.scope import FilterRefusedError
from producer.snapshot.shared_ledger import POLL_S, LedgerWatch, SharedLedger
from producer.snapshot.snapshot_state import Window, WindowState
from producer.snapshot.table_access import EXPECTED, heals_by_itself
from producer.snapshot.workers import WindowWorker
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.snapshot.reader import ChunkWriter
    from producer.snapshot.table_access import TableAccess, TopicNames
    from producer.snapshot.windowing import Windowing

log = structlog.get_logger(__name__)

_MAX_FENCE_DELAY_S: Final = 10.0


class ChunkWorker(WindowWorker):
    """The worker of slot `number`, whose writer is opened by `writer`.

    Without a `windowing` the slot is only fenced: an earlier process had it.
    """

    _writer: ChunkWriter
    _reader: ChunkReader

    def __init__(
        self,
        number: int,
        shared: SharedLedger,
        access: TableAccess,
        writer: Callable[[int], ChunkWriter],
        windowing: Windowing | None,
        names: TopicNames,
        chunk_bytes: int,
    ) -> None:
        super().__init__(shared, access, names, shared.ledger.turns.start_next_window)
        self._number = number
        self._make_writer = writer
        self._windowing = windowing
        self._chunk_bytes = chunk_bytes

    @override
    def _work(self) -> None:
        """Fence the slot, then read until the process stops."""
        writer = self._writer = self._make_writer(self._number)
        try:
            if not self._fence():
                return
            self._note_fenced()
            if self._windowing is not None:
                self._reader = ChunkReader(writer, self._windowing, self._access, self._chunk_bytes)
                super()._work()
        finally:
            self.break_off()
            writer.close()

    def _fence(self) -> bool:
        """Take the slot over, however long it takes; return False when the process stops meanwhile."""
        delay = POLL_S
        while not self._shared.stopping:
            try:
                self._writer.fence()
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
        with shared.changing() as ledger:
            shared.unfenced.discard(self._number)
            if not shared.unfenced:
                ledger.windows.slots_fenced()

    @override
    def _attempt(self, window: Window) -> int:
        try:
            assignment = self._assignment(window)
            self._reader.read(self._connected(), assignment, LedgerWatch(self._shared, window))
        except EXPECTED as error:
            self.break_off()
            visible = window.state is WindowState.CLOSING
            with suppress(*EXPECTED):
                self._writer.abort()
            if visible or self._fence():
                self._give_up(window, error)
        return window.rows_read

    @override
    def _other_outcome(self, window: Window, error: BaseException) -> Callable[[], None] | None:
        tasks = self._shared.ledger.tasks
        if isinstance(error, ChunkTooLargeError):
            bounds = self._split(window, error)
            return partial(tasks.split, window, bounds) if bounds else None
        if isinstance(error, ChildrenUnreadableError):
            return partial(tasks.unreadable, window, str(error))
        refused = self._refused_filter(window, error)
        if not refused:
            return None
        log.warning("snapshot.filter_refused", table=window.table, chunk=window.chunk, error=refused)
        return partial(tasks.unreadable, window, refused)

    def _split(self, window: Window, error: ChunkTooLargeError) -> Sequence[Key]:
        """Return the keys that divide a chunk whose rows do not fit into memory; nothing when that can't be known."""
        try:
            assignment = self._assignment(window)
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
        """Return why no attempt can read the table by its filter, "" if one may."""
        if not isinstance(error, ServerError) or heals_by_itself(error):
            return ""
        try:
            assignment = self._assignment(window)
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
