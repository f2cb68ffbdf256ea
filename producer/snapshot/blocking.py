"""Blocking snapshots: all tables of a request in one view, while the log reader stands still where the view stands.

For `snapshot.consistency: one_transaction` and signals of type BLOCKING. The course of one::

    1. the log reader goes on until it is near the end of the log (`approach`): no lock waits for a backlog
    2. a view is opened (`view`); the log reader goes on to its very place, and stops there
    3. the rows of each table, one SELECT after the other, are published there, as versions of that place
    4. the log reader goes on

So whatever the log says before that place is published before the rows, and whatever it says behind it after them: per
key the order of records is that of the source, with nothing to compare and nothing held in memory. At a first start the
view is opened before the log is read, and the rows come first of all.

A failure or a crash has the request begun anew, with a new view further on in the log. Rows published by then were true at
the first place, and what became of them since is in the log between the two: no record is wrong, and what was deleted
meanwhile has its delete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pymysql
import structlog
from pymysql.constants import ER

from producer.codec import ChunkContext
from producer.snapshot.filters import FilterRefusedError, is_of_values, refusal, require_filter
from producer.snapshot.planner import estimated_rows
from producer.snapshot.planning import no_primary_key
from producer.snapshot.ranges import KeyRange, chunk_query
from producer.snapshot.reader import shown_by_star
from producer.snapshot.resultset import require_columns
from producer.snapshot.slots import EXPECTED, heals_by_itself, in_words
from producer.snapshot.view import View, open_view
from producer.snapshot.watermark import end_of_binlog
from producer.source.query import DEFAULT_BUFFER_BYTES, PACKET_HEADER, BinaryQuery, Block, Buffer, last_row
from schemas import topics
from schemas.errors import PreparedXaError, RetriableSourceError, TidemarkError, UnsupportedTypeError
from schemas.notifications import TableStatus
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from producer.codec import Records
    from producer.codec.types import SnapshotMark
    from producer.snapshot.board import Board
    from producer.snapshot.documents import Request, TableTask
    from producer.snapshot.reader import CodecSource, SchemaReader
    from producer.snapshot.watermark import SignalTable
    from producer.source.connection import Connection
    from schemas.columns import TableSchema
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

ASK_INTERVAL_S: Final = 0.1
NEAR_S: Final = 5.0
"""The log reader is near the end of the log when it needed no longer to get to where that was."""


class BlockingSnapshots:
    """Views of requests, one after the other. Owned by the log reader's thread; `close` is for its end."""

    def __init__(
        self,
        board: Board,
        source: Callable[[], Connection],
        signal_table: SignalTable | None,
        schemas: SchemaReader,
        codecs: CodecSource,
        settings: Settings,
        epoch: int,
    ) -> None:
        self._board = board
        self._source = source
        self._signal_table = signal_table
        self._schemas = schemas
        self._codecs = codecs
        self._name = settings.name
        self._delimiter = settings.kafka.topic_delimiter
        self._snapshot = settings.snapshot
        self._epoch = epoch
        self._asked_at = float("-inf")
        self._end: tuple[Position, float] | None = None
        self._open: tuple[Request, View] | None = None
        self._buffer: Buffer = np.empty(DEFAULT_BUFFER_BYTES, np.uint8)

    @property
    def stands_at(self) -> Position | None:
        """Where the open view stands: the log reader is to stop at that border. None without one."""
        if self._open is None:
            return None
        place = self._open[1].place
        return Position(self._epoch, file_number(place.file), place.pos, 0)

    def adopt(self, view: View) -> None:
        """The view of a first start, for the request that was submitted."""
        with self._board.changed:
            request = self._board.ledger.next_blocking(self._board.clock())
        if request is None:
            view.close()
        else:
            self._open = (request, view)

    def approach(self, read: Position) -> Position | None:
        """Open the next view once the log was read, up to `read`, until near its end; `stands_at`, never before that.

        MariaDB's views may stand before what is in the log already: such a one is given up, and another opened later.
        """
        now = self._board.clock()
        if self._open is not None or now < self._asked_at + ASK_INTERVAL_S:
            return self.stands_at
        self._asked_at = now
        with self._board.changed:
            request = self._board.ledger.next_blocking(now)
        if request is None:
            self._end = None
            return None
        try:
            if self._is_near(read, now):
                tables = [self._board.table_id(table) for table in request.tables]
                schemas = partial(self._described, request)
                view = open_view(self._source, tables, self._snapshot, self._signal_table, schemas)
                self._open = (request, view)
        except EXPECTED as error:
            self._failed(request, error)
        if self.stands_at is not None and self.stands_at < read:
            self.close()
        return self.stands_at

    def rows(self, border: Position) -> Generator[tuple[str, Records], None, None]:
        """The rows of the open view, as (topic, records), to be published at `border` before anything behind it.

        A generator: closed before its end, the request is begun anew at the next start.
        """
        if self._open is None:
            return
        request, view = self._open
        try:
            with self._board.changed:
                tasks = self._board.ledger.begin_blocking(request)
            for index, task in enumerate(tasks):
                is_last = index == len(tasks) - 1
                yield from self._rows(view, task, border, first_table=index == 0, last_table=is_last)
        except EXPECTED as error:
            self._failed(request, error)
        finally:
            self._open = self._end = None
            view.close()

    def close(self) -> None:
        """Give up a view whose place was not reached."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    # ---- inside

    def _is_near(self, read: Position, now: float) -> bool:
        """Whether where the log ended when it was last asked was reached within a short time."""
        if self._end is not None and read >= self._end[0] and now <= self._end[1] + NEAR_S:
            return True
        if self._end is None or read >= self._end[0]:
            with closing(self._source()) as connection:
                self._end = (end_of_binlog(connection, self._epoch).position, now)
        return read >= self._end[0]

    def _described(self, request: Request, connection: Connection, database: str, table: str) -> TableSchema | None:
        """A table of the request; None for one that is not to be read, as it cannot be published."""
        try:
            return self._schemas(connection, database, table)
        except UnsupportedTypeError as error:
            with self._board.changed:
                task = self._board.ledger.tasks.get((request.id, f"{database}.{table}"))
                if task is None or not self._board.ledger.cannot_publish(task, error, in_words(error)):
                    raise
            return None

    def _table(
        self, view: View, task: TableTask, border: Position, **ends: bool
    ) -> Iterator[tuple[str, Records]]:
        """One table's rows; `ends` are those of `marked`."""
        table = self._begin(view, task)
        if table is None:
            return
        try:
            codec = self._codecs.codec(table)
        except TidemarkError as error:
            with self._board.changed:
                if not self._board.ledger.cannot_publish(task, error, in_words(error)):
                    raise
            view.let_go()
            return
        topic_of = topics.change_topic if task.merge == "producer" else topics.snapshot_topic
        topic = topic_of(self._name, table.database, table.name, self._delimiter)
        told = 0
        sql = chunk_query(table, KeyRange(), task.condition, shown=shown_by_star(view.reader, table))
        with BinaryQuery(view.reader, sql) as query:
            require_columns(table, query.columns)
            for (buf, start, end), mark in marked(query.blocks(self._buffer), **ends):
                context = ChunkContext(
                    position=border.text,
                    snapshot=mark,
                    ts_us=view.opened_us,
                    file=view.place.file,
                    pos=view.place.pos,
                    gtid=None,
                    now_ns=time.time_ns(),
                )
                records = codec.encode_resultset(buf, start, end, context)
                with self._board.changed:
                    if task.state.final:  # stopped meanwhile
                        return
                    told += records.rows
                    is_news = told >= self._snapshot.chunk_rows
                    self._board.ledger.blocking_rows(task, records.rows, tell=is_news)
                if is_news:
                    told = 0
                    view.keep()
                yield topic, records
        view.let_go()
        view.keep()
        with self._board.changed:
            self._board.ledger.blocking_read(task, border)

    def _rows(self, view: View, task: TableTask, border: Position, **ends: bool) -> Iterator[tuple[str, Records]]:
        """One table's rows, up to the first at whose values its filter fails: the other tables are read all the same."""
        try:
            yield from self._table(view, task, border, **ends)
        except pymysql.MySQLError as error:
            if task.condition is None or not is_of_values(error):
                raise
            with self._board.changed:
                words = refusal(task.table, task.condition, error)
                self._board.ledger.refuse(task, TableStatus.SQL_EXCEPTION, words)

    def _begin(self, view: View, task: TableTask) -> TableSchema | None:
        """The table as it is in the view; None where it is not to be read, which is told."""
        name = self._board.table_id(task.table)
        table, rows = view.tables.get(name), None
        refused = ""
        if table is not None:
            view.hold(table)
            with closing(self._source()) as connection:
                if self._schemas(connection, *name) != table:
                    message = f"{task.table} was altered after the view was opened: the snapshot is begun anew"
                    raise RetriableSourceError(message)
                rows, _ = estimated_rows(connection, table)
                try:
                    require_filter(connection, table, task.condition)
                except FilterRefusedError as error:
                    refused = str(error)
        with self._board.changed:
            ledger = self._board.ledger
            if task.state.final:
                return None
            if table is None:
                ledger.refuse(task, TableStatus.UNKNOWN_SCHEMA, f"{task.table} does not exist")
            elif task.merge != "producer" and not table.record_key:
                ledger.refuse(task, TableStatus.NO_PRIMARY_KEY, no_primary_key(task.table))
                table = None
            elif refused:
                ledger.refuse(task, TableStatus.SQL_EXCEPTION, refused)
                table = None
            else:
                ledger.planning(task, None if task.condition else rows)
                ledger.blocking_rows(task, 0, tell=True)
        return table

    def _failed(self, request: Request, error: BaseException) -> None:
        words = in_words(error)
        heals = heals_by_itself(error) or _was_altered(error)
        log.warning("snapshot.view_failed", request=request.id, error=words, again=heals)
        with self._board.changed:
            waits = isinstance(error, PreparedXaError)
            self._board.ledger.blocking_failed(request, words, self._board.clock(), heals=heals, waits=waits)


def _was_altered(error: BaseException) -> bool:
    """Whether a DDL came between the view and its reading: the next view is behind it."""
    return isinstance(error, pymysql.MySQLError) and error.args[:1] in _ALTERED


_ALTERED: Final = frozenset({(ER.TABLE_DEF_CHANGED,), (ER.NO_SUCH_TABLE,), (ER.LOCK_WAIT_TIMEOUT,)})


def marked(
    blocks: Iterable[Block], *, first_table: bool, last_table: bool
) -> Iterator[tuple[Block, SnapshotMark]]:
    """Blocks of a table's rows with Debezium's mark; the first and the last row stand alone."""
    first: SnapshotMark = "first" if first_table else "first_in_data_collection"
    held: Buffer | None = None
    is_first = True
    for buf, begin, end in blocks:
        start, at = begin, last_row(buf, begin, end)
        if held is not None:
            yield (held, 0, held.size), first if is_first else "true"
            is_first = False
        if is_first and at > start:
            start += PACKET_HEADER + int.from_bytes(buf[start : start + 3].tobytes(), "little")
            yield (buf, begin, start), first
            is_first = False
        if at > start:
            yield (buf, start, at), "true"
        held = buf[at:end].copy()
    if held is not None:
        last: SnapshotMark = "last" if last_table else "last_in_data_collection"
        yield (held, 0, held.size), "first" if is_first and first_table and not last_table else last
