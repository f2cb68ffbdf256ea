"""Windows as the log shows them: their open and close rows, the keys and columns that change while they are open, and signals.

Every method is called by the log reader's thread. With `merge: producer` the rows of a chunk are written at the end of its window,
without those that the log changed in between (`schemas.windows`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.buffered_chunk import ClosedChunk
from producer.snapshot.snapshot_state import Window, WindowState
from producer.snapshot.watermark import CLOSE_SUFFIX, OPEN_SUFFIX, window_of
from schemas.errors import DecodeError
from schemas.loads import LOAD_ANSWER, LoadAnswer
from schemas.signals import WINDOW_TYPES
from schemas.windows import OpenWindows

if TYPE_CHECKING:
    from producer.control.command_registry import CommandRegistry
    from producer.control.signal_row import SignalRow
    from producer.snapshot.shared_ledger import SharedLedger
    from producer.snapshot.watermark import Watermarking
    from schemas.position import Position

log = structlog.get_logger(__name__)

# What the keys of one table may take that the log changes while its windows are open.
TOUCHED_BYTES: Final = 64 << 20
DOUBTFUL: Final = (
    "rows changed while they were read, in a table without a key (equal rows can't be distinguished) or one whose record "
    "key is not its primary key (with skip_messages_without_change): it is read again. Ask when it is quiet"
)


class LogWindows:
    """Rows of the signal table, and changes in tables with open windows. `commands` carries out signals.

    `writes_rows`: windows open and close by rows in the log; else the log reader closes them at a transaction boundary.
    """

    def __init__(
        self, shared: SharedLedger, commands: CommandRegistry, watermarking: Watermarking, *, writes_rows: bool
    ) -> None:
        self._shared = shared
        self._commands = commands
        self._deletes = watermarking == "insert_delete"
        self._writes_rows = writes_rows
        self.keys = OpenWindows(TOUCHED_BYTES)

    # ---- rows of the signal table

    def on_signal(self, row: SignalRow, op: str, position: Position) -> None:
        """Handle a row change of the signal table, ours included; `position` is its transaction's."""
        suffix = "" if row.type == LOAD_ANSWER else self._suffix(row, op)
        if op != "c" and not suffix:
            return
        with self._shared.changing() as ledger:
            if row.type == LOAD_ANSWER:
                self._answer_read(row)
            elif suffix and (op != "c" or self._is_of_a_reader(row.id, suffix)):
                self._row_read(row.id, suffix, position)
            else:
                self._commands.answer(row, position, ledger.outbox.notifications)

    def _suffix(self, row: SignalRow, op: str) -> str:
        """Return `OPEN_SUFFIX` or `CLOSE_SUFFIX` for a row that opens or closes a window, "" for all others."""
        window = window_of(row.id)
        if row.type not in WINDOW_TYPES or window is None:
            return ""
        if op == "c":
            return window[1]
        return CLOSE_SUFFIX if op == "d" and self._deletes and window[1] == OPEN_SUFFIX else ""

    def _is_of_a_reader(self, row_id: str, suffix: str) -> bool:
        """Return whether a window row is ours or of another producer at the same table, Debezium included: they have UUIDs."""
        window_id, shared = row_id.removesuffix(suffix), self._shared
        if window_id in shared.ledger.windows or window_id in shared.barriers:
            return True
        try:
            uuid.UUID(window_id)
        except ValueError:
            return False
        return True

    def _row_read(self, row_id: str, suffix: str, position: Position) -> None:
        """Open or close the window of a row that was read in the log; `position` is its transaction's. Under the lock."""
        window_id = row_id.removesuffix(OPEN_SUFFIX).removesuffix(CLOSE_SUFFIX)
        shared = self._shared
        if window_id in shared.barriers:
            shared.barriers[window_id] = True
        window = shared.ledger.windows.get(window_id)
        if window is None or window.state is WindowState.ORPHAN:
            return
        if suffix == OPEN_SUFFIX:
            shared.ledger.windows.opened(window, position)
            self._watch(window)
        else:
            shared.ledger.tasks.close(window, position)

    def _answer_read(self, row: SignalRow) -> None:
        """Give the answer of a row of the merge job to the window that waits for it. Under the lock."""
        shared = self._shared
        try:
            answer = LoadAnswer.parse(row.id, row.data or "")
        except DecodeError as error:
            log.warning("snapshot.answer_unreadable", id=row.id, error=str(error))
            return
        if not shared.ledger.loads.answered(answer, shared.clock()):
            log.info("snapshot.answer_ignored", window=answer.window)

    # ---- chunks that are written at the end of their window

    def closed_chunk(self, row: SignalRow, op: str) -> ClosedChunk | None:
        """Return the rows to be written at this row of the signal table, None for all others.

        To be asked before the row itself is handled.
        """
        if self._suffix(row, op) != CLOSE_SUFFIX:
            return None
        ended = window_of(row.id)
        with self._shared.changed:
            window = None if ended is None else self._shared.ledger.windows.get(ended[0])
            return None if window is None else self._closed(window)

    def closed_chunks(self, boundary: Position) -> list[ClosedChunk]:
        """Return the rows to be written at this boundary, the end of windows without a close row; before each checkpoint."""
        if self._writes_rows:
            return []
        with self._shared.changed:
            chunks = [self._closed(window) for window in self._shared.ledger.windows.closable(boundary)]
        return [chunk for chunk in chunks if chunk is not None]

    def _closed(self, window: Window) -> ClosedChunk | None:
        if window.buffered is None:
            return None
        shared = self._shared
        touched = self.keys.close(window.id, window.table)
        chunk = shared.ledger.tasks.rows_at_close(window)
        if chunk is not None and touched is not None and chunk.is_doubtful(touched):
            shared.ledger.tasks.fail(window, DOUBTFUL, shared.clock(), heals=False)
            return None
        return None if chunk is None or touched is None else ClosedChunk(chunk, touched, window.request, window.table)

    # ---- changed rows and columns

    def watches(self, table: str) -> bool:
        """Return whether the keys of the table's changed rows are wanted (`touched`)."""
        return self.keys.watches(table)

    def touched(self, table: str, keys: Iterable[bytes]) -> None:
        """Remember rows that the log changed in a table with open windows; windows that remember too much are void."""
        self._lose(self.keys.touch(table, keys))

    def children_changed(self, table: str) -> None:
        """Have chunks with open windows read again: a foreign key has changed rows of the table that the log does not name."""
        self._lose(self.keys.lose(table))

    def _lose(self, windows: Sequence[str]) -> None:
        if windows:
            with self._shared.changing() as ledger:
                ledger.windows.lost(windows)

    def table_changed(self, table: str, position: Position) -> None:
        """Have chunks read again that were read across a DDL statement of the table."""
        with self._shared.changing() as ledger:
            ledger.table_changed(table, position)

    def forget_ended(self) -> None:
        """Forget the keys of windows that nobody will ask for. Under the lock."""
        windows = self._shared.ledger.windows.values()
        self.keys.retain({window.id for window in windows if window.is_watched})

    def registered(self, ready: Iterable[Window]) -> None:
        """Remember keys from the registration of these windows on, if they get no open row. Under the lock."""
        if not self._writes_rows:
            for window in ready:
                self._watch(window)

    def _watch(self, window: Window) -> None:
        """Remember which of its rows the log changes from here on, if the producer merges them."""
        if self._shared.ledger.tasks.merge_of(window) == "producer":
            self.keys.open(window.id, window.table)
