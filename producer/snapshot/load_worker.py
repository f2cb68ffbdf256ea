"""A load worker: one thread that has chunk after chunk read by the merge job.

The protocol is the chunk reader's (`producer.snapshot.reader`), but for who reads the rows::

    1. to 3.   as there: low watermark and open row, no prepared XA transaction, the table's columns
    4. wait until the log reader has read the open row; from now on every read view, also another process's, has every change at or
       before the low watermark
    5. hand the SELECT over, by a load marker in the log reader's Kafka transaction, and give the connection up
    6. wait until the log reader has read the answer of the merge job, a row of the signal table: the rows are in the sink
    7. commit the close row, over another connection

The rows have the low watermark as their version, whenever they are read: what changed later has a later one and wins. Nothing is
written to Kafka by this thread, so it needs neither a transactional id nor fencing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from producer.kafka.chunk_sink import ChunkReceipt
from producer.snapshot.asked_loads import LoadRequest
from producer.snapshot.reader import (
    OPEN_PATIENCE_S,
    Assignment,
    defined_table,
    require_open_row,
    shown_by_star,
)
from producer.snapshot.shared_ledger import LedgerWatch, SharedLedger
from producer.snapshot.snapshot_state import Window
from producer.snapshot.table_access import EXPECTED
from producer.snapshot.watermark import XA_PATIENCE_S, WindowRow, require_no_xa
from producer.snapshot.workers import WindowWorker
from schemas.errors import TidemarkError
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.table_access import TableAccess, TopicNames
    from producer.snapshot.windowing import RowWindowing
    from schemas.loads import LoadAnswer


class LoadRefusedError(TidemarkError):
    """The merge job could not read a chunk; `answer` says whether another attempt may help."""

    def __init__(self, answer: LoadAnswer) -> None:
        super().__init__(answer.error)
        self.answer = answer


class LoadWatch(LedgerWatch):
    """A load worker's view of its window."""

    def ask(self, request: LoadRequest) -> None:
        """Ask the merge job for the rows, with the next checkpoint; `AbandonedError` if the window is void."""
        with self._shared.changing() as ledger:
            self.check()
            ledger.windows.ask_for(self._window, request.fields, self._shared.clock())

    def wait_answer(self) -> LoadAnswer:
        """Wait until the log reader has read the answer; `AbandonedError` as `check`, also when it is not waited for any longer."""
        load = self._window.load
        assert load is not None

        def is_answered() -> bool:
            if load.answer is None:
                self._shared.ledger.loads.unanswered(self._window, self._shared.clock())
            return load.answer is not None

        self._wait(is_answered, None)
        assert load.answer is not None
        return load.answer


class LoadWorker(WindowWorker):
    """A worker without a slot; it has a connection only while it opens or closes a window. `begun` is called with each window."""

    def __init__(
        self, shared: SharedLedger, access: TableAccess, windowing: RowWindowing, names: TopicNames, begun: Callable[[], None]
    ) -> None:
        super().__init__(shared, access, names, shared.ledger.turns.start_next_load)
        self._windowing = windowing
        self._begun = begun

    @override
    def _attempt(self, window: Window) -> int:
        self._begun()
        try:
            self._have_read(self._assignment(window), LoadWatch(self._shared, window))
        except EXPECTED as error:
            self._give_up(window, error)
        finally:
            self.break_off()
        load = window.load
        is_unknown = load is not None and load.asked_at is not None and load.answer is None
        return self._reserved if is_unknown else window.rows_read

    @override
    def _other_outcome(self, window: Window, error: BaseException) -> Callable[[], None] | None:
        shared = self._shared
        if isinstance(error, LoadRefusedError):
            return partial(shared.ledger.loads.refused, window, error.answer, shared.clock())
        return None

    def _have_read(self, assignment: Assignment, watch: LoadWatch) -> None:
        """Have one chunk read as the module says; returns when its close row is committed."""
        opened = dt.datetime.now(dt.UTC)
        row = WindowRow.open(assignment.window, assignment.full_name, assignment.request, opened)
        request = self._opened(self._connected(), assignment, watch, row)
        self.break_off()
        watch.ask(request)  # 5
        answer = watch.wait_answer()  # 6
        if answer.error:
            raise LoadRefusedError(answer)
        connection = self._connected()
        self._windowing.forget_answer(connection, assignment.window)
        watch.check()
        watch.closing(ChunkReceipt(answer.rows, {}), None)
        closed = dt.datetime.now(dt.UTC)
        close = WindowRow.close(assignment.window, assignment.full_name, assignment.request, opened, closed)
        self._windowing.close(connection, close)  # 7

    def _opened(
        self, connection: Connection, assignment: Assignment, watch: LoadWatch, row: WindowRow
    ) -> LoadRequest:
        """Open the window; return the request to the merge job."""
        low = self._windowing.open(connection, row, assignment.bound)  # 1
        watch.low_chosen(low.position, moves=True)
        require_no_xa(connection, XA_PATIENCE_S)  # 2
        table = defined_table(self._access, connection, assignment)  # 3
        key_schema, value_schema = self._access.codecs.schema_ids(table)
        query = assignment.scope.query(table, assignment.bounds, shown_by_star(connection, table))
        if not watch.wait_open(OPEN_PATIENCE_S):  # 4
            require_open_row(connection, assignment, watch)
        return LoadRequest(
            low.position, low.file, assignment.snapshot, query, self._access.server, key_schema, value_schema
        )
