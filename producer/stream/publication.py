"""Steps of the log into records: every rows event is encoded once and given to the handlers that its route names.

What enters: the steps of `groups`. What leaves: calls of handlers, of the metadata's records and of `Statements`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from producer.binlog import events
from producer.binlog.rowcount import count_rows, end_of_rows
from producer.stream.log_refusals import statement_dml
from producer.stream.ports import RowsEvent
from producer.stream.routes import count_event, whole_rows
from producer.stream.run_publication import RunPublication
from producer.stream.steps import (
    BeginRows,
    DataStatement,
    Definition,
    Drop,
    End,
    PartialRows,
    Release,
    Rows,
    SqlText,
    TableMapStep,
)
from rowcodec import EventContext
from schemas.errors import DecodeError, UnknownEventError

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.binlog.transaction_runs import RunFinder, TransactionRun
    from producer.catalog.statement_reach import StatementReach
    from producer.stream.ports import Route, TransactionFrame
    from producer.stream.reader_progress import LogProgress
    from producer.stream.routes import Router
    from producer.stream.statements import Statements
    from rowcodec import TableCodec
    from schemas.position import Position

log = structlog.get_logger(__name__)

_HEADER: Final = 19
_TABLE_ID_END: Final = _HEADER + 6
_FINGERPRINT: Final = _HEADER + 8  # after the table id and the flags
_DUMMY_TABLE_ID: Final = 0xFFFFFF


class LogPublication:
    """The publication of one log. Owned by the log reader's thread.

    `server_version` returns the version of the server that wrote the events.
    """

    def __init__(
        self,
        router: Router,
        statements: Statements,
        progress: LogProgress,
        server_version: Callable[[], str],
        metadata: TransactionFrame | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        reach: StatementReach | None = None,
    ) -> None:
        """Without `reach` no statement that changes data is passed over."""
        self._reach = reach
        self._router = router
        self._statements = statements
        self._progress = progress
        self._server_version = server_version
        self._version_of_routes = ""
        self._metadata = metadata
        self._now_ns = now_ns
        self._routes: dict[int, Route] = {}
        self._unmeasured: set[tuple[str, str]] = set()
        self._sql: str | None = None
        self._runs = RunPublication(router, progress, now_ns)

    def note_server_version(self) -> None:
        """Forget the routes if the log file that follows is of another server version."""
        version = self._server_version()
        if version != self._version_of_routes:
            self._version_of_routes = version
            self._router.forget_all()

    @property
    def publishes_runs(self) -> bool:
        """Whether transactions can be published as a run: none has records of its own, and none is open."""
        return self._metadata is None and self._sql is None and not self._routes

    def run(self, run: TransactionRun, finder: RunFinder, boundary: Position, file: str) -> int:
        """Publish a run of transactions (`RunPublication.publish`)."""
        return self._runs.publish(run, finder, boundary, file)

    @property
    def has_metadata(self) -> bool:
        """Whether records say where transactions begin and end: their beginning is published before their rows."""
        return self._metadata is not None

    # ---- the frame of a transaction

    def begin_rows(self, step: BeginRows) -> None:
        """Publish that the transaction begins, where metadata is asked for."""
        if self._metadata is not None:
            ts_ms = step.transaction.source_ts_us(step.batch, step.at) // 1000
            self._metadata.begin(step.transaction, step.file, step.offset, ts_ms)

    def end(self, step: End) -> None:
        """Publish that the transaction is committed, and forget what was valid only in it."""
        if self._metadata is not None:
            self._metadata.end(step.transaction, step.transaction.source_ts_us(step.batch, step.at) // 1000)
        self._routes.clear()
        self._sql = None
        self._progress.transactions += 1

    def drop(self, _: Drop) -> None:
        """Forget what was valid only in the transaction that broke off."""
        self._routes.clear()
        self._sql = None

    def release(self, _: Release) -> None:
        """Forget the SQL text: the pending rows that follow are those of several statements."""
        self._sql = None

    def sql_text(self, step: SqlText) -> None:
        """Note the SQL of the rows that follow."""
        self._sql = step.sql

    def definition(self, step: Definition) -> None:
        """Carry out a statement that is no data change."""
        self._statements.apply(step)
        if self._reach is not None:
            self._reach.forget()

    def data_statement(self, step: DataStatement) -> None:
        """Raise `UnknownEventError` for a data change that is logged as a statement, unless it concerns no captured table."""
        position, why = f"{step.file}:{step.offset}", "which tables it changes is not known"
        if self._reach is not None:
            why = self._reach.why_concerned(step.query, position)
        if why:
            raise UnknownEventError(statement_dml(step.query.sql, why), position)

    # ---- rows

    def table_map(self, step: TableMapStep) -> None:
        """Note which table an id means until the transaction ends."""
        transaction, batch, start, end = step
        view = batch.memory
        fingerprint = bytes(view[start + _FINGERPRINT : end])
        route = self._router.known(fingerprint)
        if route is None:
            route = self._new_route(view, start, end, fingerprint, transaction.position)
        if route.is_mark and not self._routes and not transaction.in_kafka:  # a part of it is published: so is the rest
            transaction.is_ignored = True
        self._routes[int.from_bytes(view[start + _HEADER : start + _TABLE_ID_END], "little")] = route

    def _new_route(self, view: memoryview, start: int, end: int, fingerprint: bytes, position: Position) -> Route:
        try:
            table = events.parse_table_map(view, start, end, server_version=self._server_version())
        except DecodeError as error:
            _, database, name = events.parse_table_name(view, start, end)
            return self._router.unreadable(fingerprint, database, name, error, position)
        return self._router.find(fingerprint, table, position)

    def rows(self, step: Rows) -> None:
        """Encode the rows of one event, call its handlers and count the rows. Of ignored transactions none becomes a record."""
        transaction, batch, index, kind, start, end, file, offset = step
        view = batch.memory
        table_id = int.from_bytes(view[start + _HEADER : start + _TABLE_ID_END], "little")
        route = self._routes.get(table_id)
        if route is None:
            self._require_dummy(table_id)
            return
        op, images, encodes, handlers, watchers = route.plans[kind]
        if transaction.is_ignored:
            handlers = tuple(one.rows for one in watchers if one.watches(route))
            if not handlers:
                return
        if route.schema is None and not handlers:  # the values of other tables are not needed
            transaction.next_ordinal += self._count(route, batch, kind, start, end)
            return
        header = events.parse_rows_header(view, start, end, kind, route.columns)
        start = header.rows_start
        if not encodes and not handlers:
            transaction.next_ordinal += count_rows(batch.buf, start, end, route.sizes, images, f"{file}:{offset}")
            return
        written_s = int(batch.timestamps[index])
        event = RowsEvent(route, op, transaction, batch.buf, start, end, written_s, header.flags)
        if not encodes or route.codec is None:
            for handle in handlers:
                handle(event)
            transaction.next_ordinal += count_rows(batch.buf, start, end, route.sizes, images, f"{file}:{offset}")
            return
        server_id = int(batch.server_ids[index])
        if transaction.next_ordinal > transaction.in_kafka:
            self._encoded(event, route.codec, handlers, server_id, file, offset)
            return
        # Another server may have divided the transaction into other events: a part of this one may be in Kafka.
        left = transaction.in_kafka - transaction.next_ordinal + 1
        event.end = middle = end_of_rows(batch.buf, start, end, route.sizes, images, left, f"{file}:{offset}")
        event.is_in_kafka = True
        self._encoded(event, route.codec, handlers, server_id, file, offset)
        if middle < end:
            event.start, event.end, event.is_in_kafka = middle, end, False
            self._encoded(event, route.codec, handlers, server_id, file, offset)

    def _count(self, route: Route, batch: EventBatch, kind: int, start: int, end: int) -> int:
        """Return how many rows an event of a table has whose values are not needed; 1 where they cannot be measured.

        Every read counts the same, so ordinals stay what they are. The log does not say how long some values are: times of MariaDB
        from before 10.1, and values of types that are not known.
        """
        try:
            return count_event(route, batch, kind, start, end)
        except DecodeError as error:
            if route.key not in self._unmeasured:
                self._unmeasured.add(route.key)
                log.warning("log.rows_not_measured", table=route.name, reason=error.reason, counted="each event as one row")
            return 1

    def _encoded(
        self,
        event: RowsEvent,
        codec: TableCodec,
        handlers: tuple[Callable[[RowsEvent], None], ...],
        server_id: int,
        file: str,
        offset: int,
    ) -> None:
        """Encode rows that are all in Kafka, or all not, and call the handlers."""
        transaction, ts_us = event.transaction, event.transaction.ts_us
        context = EventContext(
            event.op,
            transaction.position.prefix,
            transaction.next_ordinal,
            event.written_s * 1_000_000 if ts_us is None else ts_us,
            server_id,
            transaction.gtid,
            file,
            offset,
            transaction.thread,
            self._sql,
            self._now_ns(),
            checks_foreign_keys=not event.flags & events.NO_FOREIGN_KEY_CHECKS,
        )
        if self._metadata is not None:
            context = self._metadata.numbered(context, transaction, event.route.name)
        records = codec.encode_rows(event.buf, event.start, event.end, context)
        event.context, event.records = context, records
        for handle in handlers:
            handle(event)
        transaction.next_ordinal += records.rows

    def partial_rows(self, step: PartialRows) -> None:
        """Publish an update that the log has as differences of JSON documents."""
        start = int(step.batch.starts[step.at])
        table_id = int.from_bytes(step.batch.memory[start + _HEADER : start + _TABLE_ID_END], "little")
        route = self._routes.get(table_id)
        if route is None:
            self._require_dummy(table_id)
            return
        try:
            rows = whole_rows(step, route)
        except DecodeError:
            if route.schema is not None:
                raise
            step.transaction.next_ordinal += 1  # as in `_count`
            return
        self.rows(rows)

    def _require_dummy(self, table_id: int) -> None:
        """Raise unless the event is the empty one that only ends a statement."""
        if table_id != _DUMMY_TABLE_ID:
            reason = f"a rows event names table id {table_id}, which no TABLE_MAP of its transaction announced"
            raise DecodeError(reason)
