"""From a rows event to records: in the topic of its table, in the sets of what a chunk must not overwrite, in the outbox."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from producer.binlog import events
from producer.binlog.rowcount import count_partial_rows, count_rows, end_of_rows
from producer.codec import EventContext
from producer.control.signal_row import decode_signal_row
from producer.snapshot.buffered_chunk import record_keys
from producer.stream.cascades import followed_at
from schemas.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.binlog import EventBatch
    from producer.catalog.foreign_keys import Trigger
    from producer.codec import Records, TableCodec
    from producer.kafka.publisher import TransactionalPublisher
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.stream.cascades import Cascades
    from producer.stream.commits import Commits
    from producer.stream.metadata import TransactionMetadata
    from producer.stream.outbox import OutboxTopics
    from producer.stream.routes import Route, Router
    from producer.stream.transaction import OpenTransaction
    from schemas.position import Position
    from schemas.settings import RecordSettings

Op = Literal["c", "u", "d"]

OPS: Final[dict[int, Op]] = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
"""What each type of rows event does."""
_HEADER: Final = 19
_TABLE_ID_AND_FLAGS: Final = 8
_DUMMY_TABLE_ID: Final = 0xFFFFFF
_UPDATE_ROWS_V2: Final = 31


class _Followed(NamedTuple):
    """What an event of a parent sets off."""

    cascades: Cascades
    triggers: Sequence[Trigger]


class RowPublisher:
    """Publishes the rows of one log. Owned by the log reader's thread.

    `statement` is the SQL of the rows that follow, where it is wanted and the log tells it.
    """

    def __init__(
        self,
        *,
        router: Router,
        coordinator: SnapshotCoordinator,
        publisher: TransactionalPublisher,
        commits: Commits,
        records: RecordSettings,
        metadata: TransactionMetadata | None = None,
        outbox: OutboxTopics | None = None,
        cascades: Cascades | None = None,
    ) -> None:
        self._router = router
        self._coordinator = coordinator
        self._publisher = publisher
        self._commits = commits
        self._progress = commits.progress
        self._metadata = metadata
        self._outbox = outbox
        self._cascades = cascades
        self._skipped_kinds = frozenset(kind for kind, op in OPS.items() if records.skips(op))
        self._skips_unchanged = records.skip_messages_without_change
        self._routes: dict[int, Route] = {}
        self.statement: str | None = None

    def end_transaction(self) -> None:
        """Table ids and the statement were of the transaction that has ended."""
        self._routes.clear()
        self.statement = None

    def table_map(self, view: memoryview, start: int, end: int, server_version: str, position: Position) -> None:
        """Take a TABLE_MAP event, which that server wrote: which table an id means until the transaction at `position` ends."""
        table_id = int.from_bytes(view[start + _HEADER : start + _HEADER + 6], "little")
        fingerprint = bytes(view[start + _HEADER + _TABLE_ID_AND_FLAGS : end])
        route = self._router.known(fingerprint)
        if route is None:
            table = events.parse_table_map(view, start, end, server_version=server_version)
            route = self._router.find(fingerprint, table, position)
        self._routes[table_id] = route

    def rows(
        self,
        transaction: OpenTransaction,
        batch: EventBatch,
        index: int,
        kind: int,
        start: int,
        end: int,
        file: str,
        offset: int,
    ) -> None:
        """Publish the rows of event `index` of `batch`, which stands in the log at `offset` of `file`."""
        route = self._route_of(batch, start)
        if route is None:
            return
        whole = route.schema is not None  # nobody needs the values of other tables
        header = events.parse_rows_header(batch.memory, start, end, kind, route.columns, whole=whole)
        start, op = header.rows_start, OPS[kind]
        images = 2 if op == "u" else 1
        where = f"{file}:{offset}"
        if header.present:
            transaction.take(count_partial_rows(batch.memory, start, end, route.sizes, header.present))
            return
        cascades = followed_at(self._cascades, int(batch.timestamps[index]))
        triggers = cascades.triggers(route, op, header.flags) if cascades is not None else ()
        if route.codec is None or (kind in self._skipped_kinds and not route.is_signal):
            if cascades is not None and triggers:
                cascades.take(triggers, route, op, batch.buf, start, end)
            transaction.take(count_rows(batch.buf, start, end, route.sizes, images, where))
            return
        followed = _Followed(cascades, triggers) if cascades is not None and triggers else None
        if transaction.is_in_kafka:  # another server may have divided the transaction into other events
            left = transaction.in_kafka - transaction.next_ordinal + 1
            middle = end_of_rows(batch.buf, start, end, route.sizes, images, left, where)
            self._captured(transaction, batch, index, op, start, middle, file, offset, route, route.codec, followed)
            start = middle
        if start < end:
            self._captured(transaction, batch, index, op, start, end, file, offset, route, route.codec, followed)

    def _captured(
        self,
        transaction: OpenTransaction,
        batch: EventBatch,
        index: int,
        op: Op,
        start: int,
        end: int,
        file: str,
        offset: int,
        route: Route,
        codec: TableCodec,
        followed: _Followed | None,
    ) -> None:
        """Rows of an event that all are in Kafka, or all are not."""
        context = EventContext(
            op=op,
            position_prefix=transaction.position.prefix,
            first_ordinal=transaction.next_ordinal,
            ts_us=transaction.source_ts_us(batch, index),
            server_id=int(batch.server_ids[index]),
            gtid=transaction.gtid,
            file=file,
            pos=offset,
            thread=transaction.thread,
            query=self.statement,
            now_ns=time.time_ns(),
        )
        if self._metadata is not None:
            context = self._metadata.placed(context, transaction, f"{route.database}.{route.table}")
        records = codec.encode_rows(batch.buf, start, end, context)
        if followed is not None and not (op == "u" and self._keeps_keys(route, records, followed.triggers)):
            followed.cascades.take(followed.triggers, route, op, batch.buf, start, end)
        if route.is_signal:
            self._signals(batch, start, end, route, context, transaction.position)
        elif self._coordinator.watches(f"{route.database}.{route.table}"):
            self._touched(batch, start, end, route, context, records)
        is_in_kafka = transaction.is_in_kafka
        transaction.take(records.rows)
        if self._metadata is not None:
            self._metadata.count(transaction, f"{route.database}.{route.table}", records)
        if not is_in_kafka:
            self._publish(batch, start, end, route, context, records)

    def whole_update(self, batch: EventBatch, index: int) -> EventBatch | None:
        """The UPDATE_ROWS event that a PARTIAL_UPDATE_ROWS event means; None for the empty one that ends a statement."""
        start, end = int(batch.starts[index]), int(batch.ends[index])
        route = self._route_of(batch, start)
        if route is None:
            return None
        header = events.parse_rows_header(batch.memory, start, end, _UPDATE_ROWS_V2, route.columns)
        return events.whole_update(
            batch.memory, start, header.rows_start, end, route.sizes.tolist(), route.json_columns
        )

    def _route_of(self, batch: EventBatch, start: int) -> Route | None:
        """The route of a rows event; None for the empty one that only ends a statement."""
        table_id = int.from_bytes(batch.memory[start + _HEADER : start + _HEADER + 6], "little")
        route = self._routes.get(table_id)
        if route is None and table_id != _DUMMY_TABLE_ID:
            reason = (
                f"a rows event names table id {table_id}, which no TABLE_MAP of its transaction announced"
            )
            raise DecodeError(reason)
        return route

    def _publish(
        self, batch: EventBatch, start: int, end: int, route: Route, context: EventContext, records: Records
    ) -> None:
        self._publisher.write(route.topic, records, route.key_text)
        self._commits.note_rows(route.database, route.table)
        if self._outbox is not None and route.outbox is not None and context.op == "c":
            rows = route.outbox.codec.encode_rows(batch.buf, start, end, context)
            self._outbox.write(route.outbox, rows)
        self._progress.rows += records.rows
        self._progress.records += records.count
        self._progress.source_ts_ms = context.ts_us // 1000

    def _keeps_keys(self, route: Route, records: Records, triggers: Sequence[Trigger]) -> bool:
        """Whether an update plainly changed no referenced value: they are in the key, and a changed key is more records."""
        if route.codec is None or self._skips_unchanged or records.count != records.rows:
            return False
        key = {name.lower() for name in route.codec.table.record_key}
        return all(name.lower() in key for trigger in triggers for name in trigger.columns)

    def _signals(
        self,
        batch: EventBatch,
        start: int,
        end: int,
        route: Route,
        context: EventContext,
        position: Position,
    ) -> None:
        if route.layout is None:
            return
        for row in decode_signal_row(batch.buf, start, end, route.layout, context.op):
            closed = self._coordinator.closed_chunk(row, context.op)
            if closed is not None:
                self._commits.write_chunk(closed, context)
            self._coordinator.on_signal(row, context.op, position)

    def _touched(
        self,
        batch: EventBatch,
        start: int,
        end: int,
        route: Route,
        context: EventContext,
        records: Records,
    ) -> None:
        """Tell which rows of a table this event changes, while chunks of the table wait for their close rows."""
        identity = self._router.identity(route)
        if identity.codec is not None:
            records = identity.codec.encode_rows(batch.buf, start, end, context)
        table = f"{route.database}.{route.table}"
        self._coordinator.on_touched(table, record_keys(records, identity.skip))
