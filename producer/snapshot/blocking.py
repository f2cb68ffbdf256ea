"""Blocking snapshots: all tables of a request in one view, while the log reader waits at the position of the view.

For `snapshot.consistency: one_transaction` and signals of type BLOCKING. The course of one::

    1. the log reader continues until it is near the end of the log (`approach`): no lock waits for a backlog
    2. a view is opened (`view`); the log reader continues to its very position, and stops there
    3. the rows of each table, one SELECT after the other, are published there, as versions of that position
    4. the log reader continues

So whatever the log has before that position is published before the rows, and whatever it has behind it after them. Per
key the order of records is the order of the source, with nothing to compare and nothing kept in memory. At a first start the
view is opened before the log is read, and the rows come first of all. `producer.snapshot.windowing` says why this is not a
windowing strategy.

After a failure or a crash the request starts over, with a new view further on in the log. Rows published by then were true
at the first position, and what became of them since is in the log between the two: no record is wrong, and rows that were
deleted meanwhile have their deletes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from mysqlio.binary_query import DEFAULT_BUFFER_BYTES, PACKET_HEADER, BinaryQuery, Block, Buffer, last_row
from mysqlio.result_columns import require_columns
from mysqlio.server_errors import ServerCode, ServerError, described, server_code
from producer.snapshot.buffered_chunk import WrittenRows
from producer.snapshot.planner import estimated_rows
from producer.snapshot.planning_worker import no_primary_key
from producer.snapshot.reader import shown_by_star
from producer.snapshot.scope import FilterRefusedError, scope_of
from producer.snapshot.snapshot_state import ReadTask, Request, State
from producer.snapshot.table_access import EXPECTED, heals_by_itself
from producer.snapshot.view import View, open_view
from producer.snapshot.watermark import end_of_binlog
from rowcodec import ChunkContext
from schemas.documents import PlanDocument
from schemas.errors import PreparedXaError, RetriableSourceError, TidemarkError, UnsupportedTypeError
from schemas.notifications import ScanStatus
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mysqlio.connection import Connection
    from mysqlio.signal_table import SignalTable
    from producer.snapshot.ledger import SnapshotLedger
    from producer.snapshot.shared_ledger import SharedLedger
    from producer.snapshot.table_access import TableAccess, TopicNames
    from rowcodec import Records
    from rowcodec.types import SnapshotMark
    from schemas.columns import TableSchema
    from schemas.settings import SnapshotSettings

log = structlog.get_logger(__name__)

ASK_INTERVAL_S: Final = 0.1
NEAR_S: Final = 5.0
"""The log reader is near the end of the log when it needed no longer to get to the end as it was then."""


class ViewRequests:
    """Blocking requests of a ledger: begun, read, retried as a whole (pure). Planner and chunk readers leave them alone."""

    def __init__(self, ledger: SnapshotLedger) -> None:
        self._requests = ledger.requests
        self._tasks = ledger.tasks
        self._outbox = ledger.outbox

    def next_request(self, now_s: float) -> Request | None:
        """Return the oldest request that is to be read in one view now."""
        for request in self._requests.values():
            if not request.blocking or request.state.final or request.not_before > now_s:
                continue
            if not any(self._is_set_aside(task) for task in self._requests.tasks_of(request)):
                return request
        return None

    def begin(self, request: Request) -> list[ReadTask]:
        """Return its tasks, from their first rows on: an earlier attempt read them in another view."""
        tasks = [
            task for task in self._requests.tasks_of(request) if task.state not in (State.FAILED, State.CANCELLED)
        ]
        for task in tasks:
            task.state, task.status, task.error = State.QUEUED, "", ""
            task.rows = task.chunks_done = task.begun_rows = 0
            task.begun_ms = None
            self._outbox.touch(task.key)
        return tasks

    def add_rows(self, task: ReadTask, rows: int, *, report: bool) -> None:
        """Count rows of a table that were read."""
        task.rows += rows
        if report:
            self._outbox.touch(task.key)
            self._requests.report_progress(task)

    def complete(self, task: ReadTask, position: Position) -> None:
        """End a task all of whose rows were written, as versions of `position`."""
        if task.state.final:
            return
        task.plan = PlanDocument(complete=True)
        task.chunks_done = 1
        task.first_bound = task.last_close = position
        self._tasks.complete_if_done(task)

    def failed(self, request: Request, error: str, now_s: float, *, heals: bool, waits: bool = False) -> None:
        """Start the request over later, a few times if that may help, or while it `waits`: it had no view, or lost it."""
        if request.state.final:
            return
        request.tries.count(heals=heals, waits=waits)
        request.not_before = now_s + request.tries.delay_s
        unfinished = [task for task in self._requests.tasks_of(request) if not task.state.final]
        for task in unfinished:
            task.error = error
            self._outbox.touch(task.key)
        if not heals or request.tries.are_exhausted:
            for task in unfinished:
                self._requests.fail(task, error)

    def _is_set_aside(self, task: ReadTask) -> bool:
        return not task.state.final and task.table in self._requests.aside


class BlockingSnapshots:
    """Views of requests, one after the other. Owned by the log reader's thread; `close` is for its end.

    `on_rows` gets to know of rows that are to be published among the changes, before they are.
    """

    def __init__(
        self,
        shared: SharedLedger,
        access: TableAccess,
        signal_table: SignalTable | None,
        names: TopicNames,
        snapshot: SnapshotSettings,
    ) -> None:
        self._shared = shared
        self._requests = ViewRequests(shared.ledger)
        self._access = access
        self._signal_table = signal_table
        self._names = names
        self._snapshot = snapshot
        self.on_rows: Callable[[WrittenRows], None] | None = None
        self._asked_at = float("-inf")
        self._end: tuple[Position, float] | None = None
        self._open: tuple[Request, View] | None = None
        self._buffer: Buffer = np.empty(DEFAULT_BUFFER_BYTES, np.uint8)

    @property
    def position(self) -> Position | None:
        """The position of the open view: the log reader is to stop at that transaction boundary. None without a view."""
        if self._open is None:
            return None
        at = self._open[1].position
        return Position(self._access.epoch, file_number(at.file), at.pos, 0)

    def adopt(self, view: View) -> None:
        """Use the view of a first start for the request that was submitted."""
        with self._shared.changed:
            request = self._requests.next_request(self._shared.clock())
        if request is None:
            view.close()
        else:
            self._open = (request, view)

    def approach(self, read: Position) -> Position | None:
        """Open the next view once the log was read, up to `read`, until near its end; return its position, never before that.

        A view of MariaDB may be before the end of the log: such a one is given up, and another opened later.
        """
        now = self._shared.clock()
        if self._open is not None or now < self._asked_at + ASK_INTERVAL_S:
            return self.position
        self._asked_at = now
        with self._shared.changed:
            request = self._requests.next_request(now)
        if request is None:
            self._end = None
            return None
        try:
            if self._is_near(read, now):
                tables = [self._shared.table_id(table) for table in request.tables]
                schemas = partial(self._described, request)
                view = open_view(self._access.connect, tables, self._snapshot, self._signal_table, schemas)
                self._open = (request, view)
        except EXPECTED as error:
            self._failed(request, error)
        if self.position is not None and self.position < read:
            self.close()
        return self.position

    def rows(self, boundary: Position) -> Generator[tuple[str, Records], None, None]:
        """Yield the rows of the open view, as (topic, records), to be published at `boundary` before anything behind it.

        Where the generator is closed before its end, the request starts over at the next start.
        """
        if self._open is None:
            return
        request, view = self._open
        try:
            with self._shared.changed:
                tasks = self._requests.begin(request)
            for index, task in enumerate(tasks):
                is_last = index == len(tasks) - 1
                yield from self._rows(view, task, boundary, first_table=index == 0, last_table=is_last)
        except EXPECTED as error:
            self._failed(request, error)
        finally:
            self._open = self._end = None
            view.close()

    def close(self) -> None:
        """Give up a view whose position was not reached."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    # ---- inside

    def _is_near(self, read: Position, now: float) -> bool:
        """Return whether the log reader reached, within a short time, the end of the log as the server last reported it."""
        if self._end is not None and read >= self._end[0] and now <= self._end[1] + NEAR_S:
            return True
        if self._end is None or read >= self._end[0]:
            with closing(self._access.connect()) as connection:
                self._end = (end_of_binlog(connection, self._access.epoch).position, now)
        return read >= self._end[0]

    def _described(self, request: Request, connection: Connection, database: str, table: str) -> TableSchema | None:
        """Return a table of the request; None for one that is not to be read, as it cannot be published."""
        try:
            return self._access.schemas(connection, database, table)
        except UnsupportedTypeError as error:
            with self._shared.changed:
                task = self._shared.ledger.tasks.get((request.id, f"{database}.{table}"))
                if task is None or not self._shared.ledger.cannot_publish(task, error, described(error)):
                    raise
            return None

    def _table(
        self, view: View, task: ReadTask, boundary: Position, **ends: bool
    ) -> Iterator[tuple[str, Records]]:
        """Yield one table's rows; `ends` are the arguments of `marked`."""
        table = self._begin(view, task)
        if table is None:
            return
        try:
            codec = self._access.codecs.codec(table)
        except TidemarkError as error:
            with self._shared.changed:
                if not self._shared.ledger.cannot_publish(task, error, described(error)):
                    raise
            view.release()
            return
        topic = self._names.of((table.database, table.name), task.merge)
        unreported = 0
        sql = scope_of(task).query_all(table, shown_by_star(view.reader, table))
        with BinaryQuery(view.reader, sql) as query:
            require_columns(table, query.columns)
            for (buf, start, end), mark in marked(query.blocks(self._buffer), **ends):
                context = ChunkContext(
                    position=boundary.text,
                    snapshot=mark,
                    ts_us=view.opened_us,
                    file=view.position.file,
                    pos=view.position.pos,
                    gtid=None,
                    now_ns=time.time_ns(),
                )
                records = codec.encode_resultset(buf, start, end, context)
                with self._shared.changed:
                    if task.state.final:  # stopped meanwhile
                        return
                    unreported += records.rows
                    is_news = unreported >= self._snapshot.chunk_rows
                    self._requests.add_rows(task, records.rows, report=is_news)
                if is_news:
                    unreported = 0
                    view.check_lock()
                if self.on_rows is not None and task.merge == "producer":
                    at = view.position
                    self.on_rows(WrittenRows(task.request, task.table, at.file, at.pos, boundary, None, records.rows))
                yield topic, records
        view.release()
        view.check_lock()
        with self._shared.changed:
            self._requests.complete(task, boundary)

    def _rows(self, view: View, task: ReadTask, boundary: Position, **ends: bool) -> Iterator[tuple[str, Records]]:
        """Yield one table's rows, up to the first at whose values its filter fails: the other tables are read all the same."""
        try:
            yield from self._table(view, task, boundary, **ends)
        except ServerError as error:
            refusal = scope_of(task).refusal(task.table, error)
            if not refusal:
                raise
            with self._shared.changed:
                self._shared.ledger.tasks.refuse(task, ScanStatus.SQL_EXCEPTION, refusal)

    def _begin(self, view: View, task: ReadTask) -> TableSchema | None:
        """Return the table as it is in the view; None if it is not to be read, which is reported."""
        name = self._shared.table_id(task.table)
        table, rows = view.tables.get(name), 0
        refused, scope = "", scope_of(task)
        if table is not None:
            view.pin(table)
            with closing(self._access.connect()) as connection:
                if self._access.schemas(connection, *name) != table:
                    message = f"{task.table} was altered after the view was opened: the snapshot starts over"
                    raise RetriableSourceError(message)
                rows, _ = estimated_rows(connection, table)
                try:
                    scope.require_readable(connection, table)
                except FilterRefusedError as error:
                    refused = str(error)
        with self._shared.changed:
            ledger = self._shared.ledger
            if task.state.final:
                return None
            if table is None:
                ledger.tasks.refuse(task, ScanStatus.UNKNOWN_SCHEMA, f"{task.table} does not exist")
            elif task.merge != "producer" and not table.record_key:
                ledger.tasks.refuse(task, ScanStatus.NO_PRIMARY_KEY, no_primary_key(task.table))
                table = None
            elif refused:
                ledger.tasks.refuse(task, ScanStatus.SQL_EXCEPTION, refused)
                table = None
            else:
                ledger.tasks.planning(task, scope.estimate(rows))
                self._requests.add_rows(task, 0, report=True)
        return table

    def _failed(self, request: Request, error: BaseException) -> None:
        words = described(error)
        heals = heals_by_itself(error) or _was_altered(error)
        log.warning("snapshot.view_failed", request=request.id, error=words, retried=heals)
        with self._shared.changed:
            waits = isinstance(error, PreparedXaError)
            self._requests.failed(request, words, self._shared.clock(), heals=heals, waits=waits)


def _was_altered(error: BaseException) -> bool:
    """Return whether a DDL statement came between the view and its reading: the next view is behind it."""
    return isinstance(error, ServerError) and server_code(error) in _ALTERED


_ALTERED: Final = frozenset({ServerCode.TABLE_CHANGED, ServerCode.NO_SUCH_TABLE, ServerCode.LOCK_WAIT_TIMEOUT})


def marked(
    blocks: Iterable[Block], *, first_table: bool, last_table: bool
) -> Iterator[tuple[Block, SnapshotMark]]:
    """Yield blocks of a table's rows with Debezium's mark; the first and the last row are blocks of their own."""
    first: SnapshotMark = "first" if first_table else "first_in_data_collection"
    kept: Buffer | None = None
    is_first = True
    for buf, begin, end in blocks:
        start, at = begin, last_row(buf, begin, end)
        if kept is not None:
            yield (kept, 0, kept.size), first if is_first else "true"
            is_first = False
        if is_first and at > start:
            start += PACKET_HEADER + int.from_bytes(buf[start : start + 3].tobytes(), "little")
            yield (buf, begin, start), first
            is_first = False
        if at > start:
            yield (buf, start, at), "true"
        kept = buf[at:end].copy()
    if kept is not None:
        last: SnapshotMark = "last" if last_table else "last_in_data_collection"
        yield (kept, 0, kept.size), "first" if is_first and first_table and not last_table else last
