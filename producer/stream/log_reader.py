"""The log reader: one binlog connection, one thread, one stream of Kafka transactions.

The protocol of a cut, the only place where anything becomes durable::

    1. every record of whole source transactions is produced (a cut never lies inside one)
    2. flush: all acknowledged, so the change topics' end offsets are final
    3. the coordinator is asked what to write: window registrations (their bound is this border), window
       markers, state documents, notifications, the horizon
    4. markers (one per partition of the snapshot topic, with change_offsets), documents and the offset record
       are produced, last in the same Kafka transaction
    5. commit; then the coordinator is told, and whoever waited for durability goes on

Guarantee: after a crash anywhere, reading resumes at the committed offset and what was produced after it was
never visible to `read_committed` readers. Log events are never held back for a window.

Rows of an XA transaction stand in the log before its PREPARE and are published at its XA COMMIT, with the
position, GTID and time of that: only then are they visible to a SELECT. While one is open, the offset also holds
where its PREPARE group begins; a restart reads from there and drops whatever else was published before. So
it is with transactions that an earlier epoch published and that stand behind the border on another server.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import structlog

from producer.binlog import events
from producer.binlog.rowcount import count_rows, end_of_rows
from producer.catalog import ddl
from producer.codec import EventContext
from producer.control.signal_row import decode_signal_row
from producer.snapshot.held import record_keys
from producer.source.gtid import parse_gtid_set
from producer.source.lineage import Begun
from producer.stream import transaction as transactions
from producer.stream.beats import TableBeats
from producer.stream.held import DroppedRows, HeldRows, Holding, PreparedGroup, PreparedGroups
from producer.stream.offset import Part, ResumePoint
from schemas import markers, topics
from schemas.errors import DecodeError, LogTornError, RetriableSourceError, UnknownEventError
from schemas.position import Position, file_number
from schemas.schema_changes import ChangePlace

if TYPE_CHECKING:
    from threading import Event

    from producer.binlog import EventBatch
    from producer.catalog import Catalog
    from producer.catalog.foreign_keys import Trigger
    from producer.codec import Records, TableCodec
    from producer.kafka.client import TopicAdmin
    from producer.kafka.publisher import TransactionalPublisher
    from producer.kafka.state_topic import StateTopic
    from producer.kafka.tables import TableTopics
    from producer.snapshot.coordinator import CutWork, SnapshotCoordinator
    from producer.snapshot.held import ClosedChunk
    from producer.source.dump import BinlogStream
    from producer.source.gtid import GtidSet
    from producer.stream.cascades import Cascades
    from producer.stream.heartbeat import Heartbeat
    from producer.stream.metadata import TransactionMetadata
    from producer.stream.offset import LogOffset
    from producer.stream.outbox import OutboxTopics
    from producer.stream.routes import CapturedTables, Route, Router
    from producer.stream.schema_changes import SchemaChanges
    from schemas.settings import RecordSettings

log = structlog.get_logger(__name__)

Op = Literal["c", "u", "d"]

CUT_INTERVAL_S: Final = 0.25
URGENT_CUT_INTERVAL_S: Final = 0.01
CUT_RECORDS: Final = 200_000
IDLE_READ_S: Final = 0.1
VIEW_CUT_INTERVAL_S: Final = 1.0
_HEADER: Final = 19
_OPS: Final[dict[int, Op]] = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
_STATEMENTS: Final = {
    events.ROWS_QUERY_EVENT: events.parse_rows_query,
    events.MARIADB_ANNOTATE_EVENT: events.parse_annotate,
}
_TABLE_ID_AND_FLAGS: Final = 8
_FIRST_OFFSET: Final = 4
_UPDATE_ROWS_V2: Final = 31
_DUMMY_TABLE_ID: Final = 0xFFFFFF
_CTAS_SUFFIX: Final = "START TRANSACTION"
_POSITION_FIELDS: Final = frozenset({"position", "first_bound"})
_FLOOR_REASON: Final = "the table was emptied, dropped, renamed or replaced"
_MARKERS: Final = {
    "heartbeat": markers.HeartbeatMarker,
    "open": markers.OpenMarker,
    "close": markers.CloseMarker,
    "complete": markers.CompleteMarker,
    "floor": markers.FloorMarker,
}


@dataclass(slots=True)
class LogProgress:
    """Live figures of the log reader, for status and the demo; `alive_s` is its clock when it last read."""

    position: Position
    source_ts_ms: int = 0
    committed_ms: int = 0
    transactions: int = 0
    rows: int = 0
    records: int = 0
    cuts: int = 0
    alive_s: float = 0.0


class MetTransaction(NamedTuple):
    """A transaction that an attempt has begun to publish, and that the next one has to treat otherwise from its beginning on.

    With `next_file` it breaks off where that begins: the server died while it wrote it, and rolled it back. Else it takes too
    long for one Kafka transaction. In another epoch the place is another one.
    """

    epoch: int
    file: str
    pos: int
    next_file: str = ""


class MetTransactionError(RetriableSourceError):
    """A part of `met` was produced, and only the whole Kafka transaction can be taken back: that is begun anew."""

    def __init__(self, met: MetTransaction) -> None:
        place = f"the transaction at {met.file}:{met.pos}"
        super().__init__(
            f"the log breaks off inside {place}, which the server was writing when it died, and has rolled back: the log is "
            f"read again without it"
            if met.next_file
            else f"{place} takes too long for one transaction of Kafka: it is read again, and published in parts"
        )
        self.met = met


class LogReader:
    """Reads one source's log from an offset and publishes it. Owned by one thread.

    `documents` are written to the state topic with the first commit.
    """

    def __init__(
        self,
        *,
        prefix: str,
        stream: BinlogStream,
        offset: LogOffset,
        gtids: GtidSet,
        flavour: str,
        lower_case_names: bool,
        publisher: TransactionalPublisher,
        state: StateTopic,
        admin: TopicAdmin,
        router: Router,
        catalog: Catalog,
        captured: CapturedTables,
        coordinator: SnapshotCoordinator,
        table_topics: TableTopics,
        records: RecordSettings,
        metadata: TransactionMetadata | None = None,
        heartbeat: Heartbeat | None = None,
        schema_changes: SchemaChanges | None = None,
        outbox: OutboxTopics | None = None,
        cascades: Cascades | None = None,
        documents: Mapping[str, Mapping[str, Any] | None] | None = None,
        delimiter: str = topics.DELIMITER,
        met: MetTransaction | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = prefix
        self._delimiter = delimiter
        self._stream = stream
        self._flavour = flavour
        self._lower_case_names = lower_case_names
        self._publisher = publisher
        self._state = state
        self._admin = admin
        self._router = router
        self._catalog = catalog
        self._captured = captured
        self._coordinator = coordinator
        self._table_topics = table_topics
        self._skipped_kinds = frozenset(kind for kind, op in _OPS.items() if records.skips(op))
        self._metadata = metadata
        self._include_query = records.include_query
        self._skips_unchanged = records.skip_messages_without_change
        self._statement: str | None = None
        self._heartbeat = heartbeat
        self._schema_changes = schema_changes
        self._outbox = outbox
        self._cascades = cascades
        self._documents = dict(documents or {})
        self._met = met
        self._part = offset.part
        self._publishes_truncates = not records.skips("t")
        self._clock = clock
        self._gtids = gtids
        self._committed = offset
        self._file = offset.start.file
        self._border_pos = offset.start.pos
        self._border_file = offset.start.file
        self._published = offset.position if offset.resume else None
        self._inherited = parse_gtid_set(offset.inherited, flavour)
        self._began: Begun | None = None
        self._last = offset.last
        self._holding = Holding()
        self._dropped = DroppedRows(self._holding)
        self._prepared = PreparedGroups()
        self._transaction: transactions.OpenTransaction | None = None
        self._routes: dict[int, Route] = {}
        self._floors: list[tuple[str, str, Position]] = []
        self._cut_at = clock()
        self._beats = TableBeats(clock)
        self._dirty = False
        self._has_cut = False
        self._stop: Event | None = None
        self._view_at: Position | None = None
        self.progress = LogProgress(offset.position, alive_s=clock())

    @property
    def committed(self) -> LogOffset:
        """The offset of the last commit: everything before it is in Kafka."""
        return self._committed

    def place(self) -> ResumePoint:
        """Where reading stands: at the border, or where the open transaction begins."""
        if self._transaction is None:
            return ResumePoint(self._border_file, self._border_pos, str(self._gtids))
        return ResumePoint(self._file, self._transaction.position.offset, str(self._gtids))

    def run(self, stop: Event) -> None:
        """Read and publish until `stop` is set; ends at the last whole transaction read, committed.

        Raises the errors of source, Kafka and decoding; nothing after `committed` is then visible.
        """
        self._stop = stop
        try:
            while not stop.is_set():
                self._look_for_view()
                try:
                    self._read()
                except LogTornError as error:
                    self._go_on_in(error)
                if self._cut_is_due():
                    self._cut()
            if self._transaction is None and self._border_file and self._published is None:
                self._cut()
            else:
                self._publisher.abort()
        finally:
            if self._transaction is not None and self._transaction.held is not None:
                self._transaction.held.close()
            self._prepared.close()

    def _read(self) -> None:
        batch = self._stream.read(self._read_timeout())
        self.progress.alive_s = self._clock()
        if batch is not None:
            self._take(batch)

    def _break_off(self, next_file: str) -> None:
        """Forget the open transaction, which has no end; where rows of it were produced, raise what the next attempt must know."""
        transaction = self._open()
        if transaction.held is not None:
            transaction.held.close()
            self._transaction = self._statement = None
            self._routes.clear()
            return
        if self._began is None:
            reason = f"a transaction without a GTID is open where {next_file} begins"
            raise DecodeError(reason)
        raise MetTransactionError(MetTransaction(self._committed.epoch, self._began.file, self._began.pos, next_file))

    def _go_on_in(self, error: LogTornError) -> None:
        """Read on at the beginning of the next file, with what is held for its XA COMMIT: that may stand there."""
        if self._transaction is not None:
            self._break_off(error.next_file)
        self._stream.go_on_in(error.next_file)

    # ---- events

    def _take(self, batch: EventBatch) -> None:
        types = batch.types.tolist()
        starts = batch.starts.tolist()
        ends = batch.ends.tolist()
        offsets = batch.offsets.tolist()
        sizes = batch.sizes.tolist()
        for index in range(batch.count):
            kind = types[index]
            offset = offsets[index]
            try:
                if kind in _OPS:
                    self._rows(batch, index, kind, starts[index], ends[index], offset)
                else:
                    self._event(batch, index, kind, starts[index], ends[index], offset, sizes[index])
            except DecodeError as error:
                if error.position:
                    raise
                raise error.at(f"{self._file}:{offset}") from error

    def _event(
        self, batch: EventBatch, index: int, kind: int, start: int, end: int, offset: int, size: int
    ) -> None:
        view = batch.memory
        if kind == events.TABLE_MAP_EVENT:
            if self._transaction is not None and self._transaction.held is not None:
                self._transaction.held.add(batch, index, offset)
            else:
                self._table_map(view, start, end)
        elif kind == events.XID_EVENT:
            self._commit_transaction(offset + size, batch, index)
        elif kind in events.GTID_EVENTS:
            gtid = events.parse_gtid(view, start, end)
            self._begin_transaction(offset, gtid.gtid, gtid.original_commit_us)
            self._began = Begun(
                self._file, offset, gtid.gtid, gtid.original_commit_us, zlib.crc32(view[start:end])
            )
            if gtid.may_roll_back:
                self._hold()
        elif kind == events.MARIADB_GTID_EVENT:
            mariadb_gtid = events.parse_mariadb_gtid(view, start, end)
            self._mariadb_gtid(mariadb_gtid, offset, batch, index)
            self._began = Begun(self._file, offset, mariadb_gtid.gtid, None, zlib.crc32(view[start:end]))
        elif kind == events.QUERY_EVENT:
            self._query(events.parse_query(view, start, end), offset, offset + size, batch, index)
        elif kind == events.XA_PREPARE_EVENT:
            self._xa_prepare(events.parse_xa_prepare(view, start, end), offset, offset + size, batch, index)
        elif kind == events.ROTATE_EVENT:
            self._rotate(events.parse_rotate(view, start, end))
        elif kind == events.TRANSACTION_PAYLOAD_EVENT:
            self._payload(view, start, end, offset, size)
        elif self._include_query and kind in _STATEMENTS:
            self._statement = _STATEMENTS[kind](view, start, end)
        else:
            self._other(batch, index, kind, offset, size)

    def _other(self, batch: EventBatch, index: int, kind: int, offset: int, size: int) -> None:
        if kind in events.MARIADB_COMPRESSED_EVENTS and self._flavour == "mariadb":
            start, end = int(batch.starts[index]), int(batch.ends[index])
            self._compressed(events.decompress_event(batch.memory, start, end), offset, size)
            return
        if kind == events.PARTIAL_UPDATE_ROWS_EVENT and self._flavour == "mysql":
            self._partial_update(batch, index, offset)
            return
        if kind == events.FORMAT_DESCRIPTION_EVENT and self._transaction is not None:
            self._break_off(self._file)
        flags = int(batch.flags[index])
        if events.classify(kind, flags, self._flavour) is not events.Verdict.HARMLESS:
            where = f"{self._file}:{offset}"
            raise UnknownEventError(events.refusal(kind, self._flavour), where)
        if self._transaction is None and not batch.is_artificial(index) and self._is_ahead(offset + size):
            self._border(offset + size)

    def _mariadb_gtid(self, gtid: events.MariadbGtid, offset: int, batch: EventBatch, index: int) -> None:
        self._begin_transaction(offset, gtid.gtid, None)
        self._open().needs_commit = not gtid.standalone
        if gtid.prepared_xa:
            self._open().held = HeldRows(self._holding)
        elif gtid.may_roll_back:
            self._hold()
        if not gtid.standalone:
            self._begin_metadata(offset, batch, index)

    def _begin_transaction(self, offset: int, gtid: str | None, ts_us: int | None) -> None:
        if self._transaction is not None:
            reason = f"a transaction begins inside the one at {self._transaction.position.text}"
            raise DecodeError(reason, f"{self._file}:{offset}")
        is_met = self._met is not None and (self._committed.epoch, self._file, offset) == self._met[:3]
        if self._met is not None and is_met and self._met.next_file:
            reason = f"{self._file}:{offset} begins what the server was writing when it died, and has rolled back"
            raise LogTornError(reason, self._met.next_file)
        begun = transactions.begin(self._committed.epoch, self._file, offset, gtid, ts_us)
        self._read_back(begun.position)
        part = self._part if self._part is not None and self._part.is_of(self._file, offset, gtid) else None
        if self._published is None and (is_met or part is not None):  # a long one: published in parts from here on
            if self._is_ahead(offset):
                self._border_file, self._border_pos = self._file, offset
            self._cut()
        self._transaction = begun
        if self._published is None and part is not None:
            begun.in_kafka = part.rows
            log.info("log.part_read_again", file=self._file, pos=offset, rows=part.rows)
        if self._published is not None or self._is_inherited(gtid):
            self._transaction.published = True
            self._transaction.held = self._dropped
        self._dirty = True

    def _is_inherited(self, gtid: str | None) -> bool:
        if gtid is None or not self._inherited:
            return False
        if self._inherited.contains(gtid):
            return True
        self._inherited.passed(gtid)
        return False

    def _open(self) -> transactions.OpenTransaction:
        if self._transaction is None:
            reason = "rows stand outside any transaction"
            raise DecodeError(reason)
        return self._transaction

    def _begin_metadata(self, offset: int, batch: EventBatch, index: int) -> None:
        transaction = self._open()
        if self._metadata is not None and transaction.held is None:  # held rows begin when they are released
            ts_ms = _source_ts_us(transaction, batch, index) // 1000
            self._metadata.begin(transaction, self._file, offset, ts_ms)

    def _commit_transaction(self, end: int, batch: EventBatch, index: int) -> None:
        transaction = self._open()
        if transaction.held is not None:
            self._release(transaction, transaction.held, batch, index)
        if self._metadata is not None:
            self._metadata.end(transaction, _source_ts_us(transaction, batch, index) // 1000)
        if transaction.gtid is not None:
            self._gtids.add(transaction.gtid)
        self._last = self._began or self._last
        if self._part is not None and self._part.is_of(self._file, transaction.position.offset, transaction.gtid):
            self._part = None
        self._transaction = None
        self._statement = None
        self._routes.clear()
        self.progress.transactions += 1
        self._border(end)

    def _border(self, pos: int) -> None:
        self._border_file, self._border_pos = self._file, pos
        if self._published is not None:
            self._read_back(Position(self._committed.epoch, file_number(self._file), pos, 0))
        if self._view_at is not None:
            self._publish_view()
        if self._cut_is_due():
            self._cut()

    def _read_back(self, border: Position) -> None:
        """Reading stands at `border`; where it reaches the border, everything is new."""
        if self._published is not None and border >= self._published:
            self._published = None
            log.info("log.read_back", border=border.text, prepared_xa=len(self._prepared))

    def _rotate(self, rotate: events.Rotate) -> None:
        self._file = rotate.file
        begins = max(rotate.position, _FIRST_OFFSET)
        if self._transaction is None and self._is_ahead(begins):
            self._border_file, self._border_pos = rotate.file, begins
            if self._published is not None:
                self._read_back(Position(self._committed.epoch, file_number(rotate.file), begins, 0))

    def _is_ahead(self, pos: int) -> bool:
        """Whether a place of this file is behind the border. A stream by GTIDs begins before it, and leaves out what was read."""
        return (file_number(self._file), pos) > (file_number(self._border_file), self._border_pos)

    def _table_map(self, view: memoryview, start: int, end: int) -> None:
        table_id = int.from_bytes(view[start + _HEADER : start + _HEADER + 6], "little")
        fingerprint = bytes(view[start + _HEADER + _TABLE_ID_AND_FLAGS : end])
        route = self._router.known(fingerprint)
        if route is None:
            route = self._router.find(fingerprint, self._parse_table_map(view, start, end))
        self._routes[table_id] = route

    def _parse_table_map(self, view: memoryview, start: int, end: int) -> events.TableMap:
        return events.parse_table_map(view, start, end, server_version=self._stream.server_version)

    def _rows(self, batch: EventBatch, index: int, kind: int, start: int, end: int, offset: int) -> None:
        transaction = self._open()
        if transaction.held is not None:
            transaction.held.add(batch, index, offset)
            self._cut_where_long(transaction)
            return
        route = self._route_of(batch, start)
        if route is None:
            return
        header = events.parse_rows_header(batch.memory, start, end, kind, route.columns)
        where = f"{self._file}:{offset}"
        op = _OPS[kind]
        cascades = self._cascades_at(batch, index)
        triggers = cascades.triggers(route, op, header.flags) if cascades is not None else ()
        images = 2 if op == "u" else 1
        if route.codec is None or (kind in self._skipped_kinds and not route.is_signal):
            if cascades is not None and triggers:
                cascades.take(triggers, route, op, batch.buf, header.rows_start, end)
            transaction.take(count_rows(batch.buf, header.rows_start, end, route.sizes, images, where))
            self._cut_where_long(transaction)
            return
        start = header.rows_start
        if transaction.is_in_kafka:  # another server may have divided the transaction into other events
            left = transaction.in_kafka - transaction.next_ordinal + 1
            middle = end_of_rows(batch.buf, start, end, route.sizes, images, left, where)
            self._captured_rows(batch, index, start, middle, offset, route, route.codec, op, cascades, triggers)
            start = middle
        if start < end:
            self._captured_rows(batch, index, start, end, offset, route, route.codec, op, cascades, triggers)

    def _captured_rows(
        self,
        batch: EventBatch,
        index: int,
        start: int,
        end: int,
        offset: int,
        route: Route,
        codec: TableCodec,
        op: Op,
        cascades: Cascades | None,
        triggers: Sequence[Trigger],
    ) -> None:
        """Rows of an event, which are in Kafka or are not: its first ones, or the others."""
        transaction = self._open()
        ts_us = _source_ts_us(transaction, batch, index)
        context = EventContext(
            op=op,
            position_prefix=transaction.position.prefix,
            first_ordinal=transaction.next_ordinal,
            ts_us=ts_us,
            server_id=int(batch.server_ids[index]),
            gtid=transaction.gtid,
            file=self._file,
            pos=offset,
            thread=transaction.thread,
            query=self._statement,
            now_ns=time.time_ns(),
        )
        if self._metadata is not None:
            context = self._metadata.placed(context, transaction, f"{route.database}.{route.table}")
        records = codec.encode_rows(batch.buf, start, end, context)
        if cascades is not None and triggers and not (op == "u" and self._keeps_keys(route, records, triggers)):
            cascades.take(triggers, route, op, batch.buf, start, end)
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
        self._cut_where_long(transaction)

    def _publish(
        self, batch: EventBatch, start: int, end: int, route: Route, context: EventContext, records: Records
    ) -> None:
        self._publisher.write(route.topic, records, route.key_text)
        self._beats.note((route.database, route.table))
        if self._outbox is not None and route.outbox is not None and context.op == "c":
            rows = route.outbox.codec.encode_rows(batch.buf, start, end, context)
            self._outbox.write(route.outbox, rows)
        self.progress.rows += records.rows
        self.progress.records += records.count
        self.progress.source_ts_ms = context.ts_us // 1000

    def _cut_where_long(self, transaction: transactions.OpenTransaction) -> None:
        if not self._publisher.is_long_open or self._flavour != "mysql" or self._began is None:
            return
        # On another server a second one may be long, before the one of which a part was published.
        if self._part is None or self._part.is_of(self._file, transaction.position.offset, transaction.gtid):
            self._cut_inside(transaction, self._began)

    def _cut_inside(self, transaction: transactions.OpenTransaction, began: Begun) -> None:
        """Commit what is published of the open transaction, so that Kafka's does not time out.

        All that goes with a border must be in Kafka already, and what this start has asked for: where it is not, reading begins
        anew and commits it first. On MariaDB a transaction may turn out to break off, and can be taken back only as long as
        nothing is committed.
        """
        pos = transaction.position.offset
        if not self._has_cut or (self._committed.file, self._committed.pos) != (self._border_file, self._border_pos):
            raise MetTransactionError(MetTransaction(self._committed.epoch, self._file, pos))
        self._part = Part(began, transaction.next_ordinal - 1)
        offset, now_ms = replace(self._committed, part=self._part), time.time_ns() // 1_000_000
        self._publisher.flush()
        self._table_topics.require_unchanged(self._clock())
        self._state.put(self._publisher, "offset", offset.document(now_ms))
        self._publisher.commit()
        self._committed = offset
        self.progress.committed_ms = now_ms
        self.progress.cuts += 1
        log.info("log.part_published", file=self._file, pos=pos, rows=self._part.rows)

    def _cascades_at(self, batch: EventBatch, index: int) -> Cascades | None:
        """What follows the foreign keys of that event; None where the log holds what they change."""
        if self._cascades is None or self._cascades.are_logged(int(batch.timestamps[index])):
            return None
        return self._cascades

    def _keeps_keys(self, route: Route, records: Records, triggers: Sequence[Trigger]) -> bool:
        """Whether an update plainly changed no referenced value: they are in the key, and a changed key is more records."""
        if route.codec is None or self._skips_unchanged or records.count != records.rows:
            return False
        key = {name.lower() for name in route.codec.table.record_key}
        return all(name.lower() in key for trigger in triggers for name in trigger.columns)

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
                self._write_chunk(closed, context)
            self._coordinator.on_signal(row, context.op, position)

    def _write_chunk(self, closed: ClosedChunk, context: EventContext) -> None:
        for records in closed.chunk.records(closed.touched, context, time.time_ns()):
            self._publisher.write(closed.chunk.topic, records)
            self.progress.records += records.count

    def _context_at(self, border: Position) -> EventContext:
        """The last transaction before a border, as far as rows of a snapshot tell about theirs."""
        return EventContext(
            op="c",
            position_prefix=border.prefix,
            first_ordinal=0,
            ts_us=0,
            server_id=0,
            gtid=None if self._last is None else self._last.gtid,
            file=self._border_file,
            pos=self._border_pos,
            thread=None,
            query=None,
            now_ns=time.time_ns(),
        )

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

    def _payload(self, view: memoryview, start: int, end: int, offset: int, size: int) -> None:
        for inner in events.payload_batches(view, start, end):
            types, starts, ends = inner.types.tolist(), inner.starts.tolist(), inner.ends.tolist()
            for at in range(inner.count):
                kind = types[at]
                if kind in _OPS:
                    self._rows(inner, at, kind, starts[at], ends[at], offset)
                else:
                    self._event(inner, at, kind, starts[at], ends[at], offset, size)

    def _compressed(self, plain: EventBatch, offset: int, size: int) -> None:
        """The one event of `plain`, which stands compressed in the log at `offset`, `size` bytes long."""
        kind, start, end = int(plain.types[0]), int(plain.starts[0]), int(plain.ends[0])
        if kind in _OPS:
            self._rows(plain, 0, kind, start, end, offset)
        else:
            self._event(plain, 0, kind, start, end, offset, size)

    def _partial_update(self, batch: EventBatch, index: int, offset: int) -> None:
        transaction = self._open()
        if transaction.held is not None:
            transaction.held.add(batch, index, offset)
            return
        start, end = int(batch.starts[index]), int(batch.ends[index])
        route = self._route_of(batch, start)
        if route is not None:
            header = events.parse_rows_header(batch.memory, start, end, _UPDATE_ROWS_V2, route.columns)
            plain = events.whole_update(
                batch.memory, start, header.rows_start, end, route.sizes.tolist(), route.json_columns
            )
            self._rows(plain, 0, _UPDATE_ROWS_V2, 0, int(plain.ends[0]), offset)

    # ---- rows held back

    def _hold(self) -> None:
        """Keep the group's rows until its end: some may be rolled back."""
        transaction = self._open()
        if transaction.held is None:
            transaction.held = HeldRows(self._holding)

    def _release(
        self,
        transaction: transactions.OpenTransaction,
        held: HeldRows,
        batch: EventBatch,
        index: int,
        offset: int | None = None,
    ) -> None:
        """Publish held rows as rows of `transaction`, at `offset`, else each where its event stands.

        Event `index` of `batch` is what releases them.
        """
        transaction.held = None
        self._statement = None  # whichever it was, it was not that of all these rows
        for rows in held.batches():
            self._begin_metadata(transaction.position.offset, batch, index)
            types, starts, ends = rows.types.tolist(), rows.starts.tolist(), rows.ends.tolist()
            offsets = rows.offsets.tolist()
            for at in range(rows.count):
                place = offsets[at] if offset is None else offset
                if types[at] == events.TABLE_MAP_EVENT:
                    self._table_map(rows.memory, starts[at], ends[at])
                elif types[at] == events.PARTIAL_UPDATE_ROWS_EVENT:
                    self._partial_update(rows, at, place)
                else:
                    self._rows(rows, at, types[at], starts[at], ends[at], place)
        held.close()

    def _xa_prepare(
        self, prepare: events.XaPrepare, offset: int, end: int, batch: EventBatch, index: int
    ) -> None:
        transaction = self._open()
        held = transaction.held
        if held is None:
            reason = f"an XA PREPARE of {prepare.xid} without an XA START before it"
            raise DecodeError(reason, f"{self._file}:{offset}")
        if prepare.one_phase:
            if transaction.published:
                transaction.held = None
                held.close()
        else:
            transaction.held = None
            start = ResumePoint(self._file, transaction.position.offset, str(self._gtids))
            self._prepared.put(prepare.xid, PreparedGroup(held, start))
        self._commit_transaction(end, batch, index)

    def _xa(self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int) -> None:
        statement = events.parse_xa_statement(query.sql)
        if self._transaction is None:
            self._begin_transaction(offset, None, None)
        transaction = self._open()
        transaction.thread = query.thread_id
        if statement.verb == "START":
            transaction.held = HeldRows(self._holding)
            return
        if statement.verb == "END":
            return
        if statement.verb == "ROLLBACK" or transaction.published:
            self._prepared.drop(statement.xid)
        else:
            held = self._prepared.take(statement.xid)
            if held is None:
                raise UnknownEventError(_unknown_xid(statement.xid), f"{self._file}:{offset}")
            if transaction.ts_us is None:
                transaction.ts_us = int(batch.timestamps[index]) * 1_000_000
            self._release(transaction, held, batch, index, offset)
        self._commit_transaction(end, batch, index)

    def _roll_back(
        self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int
    ) -> None:
        """ROLLBACK [TO]: rows in a group are always those of transactional tables, others have their own."""
        transaction = self._open()
        name = ddl.savepoint_name(query.sql, self._flavour)
        if transaction.held is None and transaction.next_ordinal > 1:
            reason = (
                "the log holds a ROLLBACK in a transaction that did not announce that it may: reading on could "
                "publish rows that never were. Snapshot the tables it changed under a new name"
            )
            raise UnknownEventError(reason, f"{self._file}:{offset}")
        if name is None:
            if transaction.held is not None:
                transaction.held.roll_back()
            self._commit_transaction(end, batch, index)
        elif transaction.held is not None:
            transaction.held.roll_back_to(name)

    # ---- queries

    def _query(
        self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int
    ) -> None:
        kind = ddl.classify_query(query.sql, self._flavour)
        if kind is ddl.QueryKind.BEGIN:
            if self._transaction is None:
                self._begin_transaction(offset, None, None)
            transaction = self._open()
            transaction.thread = query.thread_id
            transaction.needs_commit = True
            self._begin_metadata(offset, batch, index)
        elif kind is ddl.QueryKind.COMMIT:
            self._commit_transaction(end, batch, index)
        elif kind is ddl.QueryKind.SAVEPOINT:
            held = self._open().held
            name = ddl.savepoint_name(query.sql, self._flavour)
            if held is not None and name is not None and query.sql.lstrip()[:1].upper() == "S":
                held.savepoint(name)
        elif kind is ddl.QueryKind.ROLLBACK:
            self._roll_back(query, offset, end, batch, index)
        elif kind is ddl.QueryKind.XA:
            self._xa(query, offset, end, batch, index)
        elif kind is ddl.QueryKind.DML:
            self._statement_dml(query, offset)
        else:
            self._definition(query, offset, end, batch, index)

    def _definition(
        self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int
    ) -> None:
        """A DDL statement, or one that changes neither rows nor tables."""
        if self._transaction is None:
            self._begin_transaction(offset, None, None)
        if not self._open().published:
            if self._schema_changes is not None:
                place = self._change_place(offset, batch, index)
                is_in_kafka = self._open().in_kafka > 0  # of CREATE ... SELECT, which is one transaction
                self._schema_changes.take(query.sql, query.database, place, is_in_kafka=is_in_kafka)
            self._ddl(query, offset, batch, index)
        if query.sql.rstrip().upper().endswith(_CTAS_SUFFIX):
            self._begin_metadata(offset, batch, index)
        elif not self._open().needs_commit:
            self._commit_transaction(end, batch, index)

    def _change_place(self, offset: int, batch: EventBatch, index: int) -> ChangePlace:
        transaction = self._open()
        return ChangePlace(
            position=transaction.position,
            ts_us=_source_ts_us(transaction, batch, index),
            file=self._file,
            pos=offset,
            gtid=transaction.gtid,
            server_id=int(batch.server_ids[index]),
        )

    def _statement_dml(self, query: events.QueryEvent, offset: int) -> None:
        reason = (
            f"a data change was logged as a statement ({query.sql[:80]!r}): some session runs with "
            f"binlog_format=STATEMENT or MIXED, its rows are not in the log. Set binlog_format=ROW in every "
            f"session (SET GLOBAL binlog_format='ROW'; then reconnect the clients), snapshot the table again"
        )
        raise UnknownEventError(reason, f"{self._file}:{offset}")

    def _ddl(self, query: events.QueryEvent, offset: int, batch: EventBatch, index: int) -> None:
        position = self._open().position
        changes = ddl.parse_ddl(
            query.sql, query.database, self._flavour, lower_case_names=self._lower_case_names
        )
        changes = self._catalog.apply(changes)
        cascades = self._cascades_at(batch, index)
        if cascades is not None:
            for parent in cascades.note_ddl(query.sql, changes):
                self._router.forget(*parent)
        arrived = {(c.new_database, c.new_table) for c in changes if c.kind == "rename" and c.new_table}
        for change in changes:
            for database, table in ((change.database, change.table), (change.new_database, change.new_table)):
                if table and self._captured.holds(database, table):
                    self._router.forget(database, table)
                    self._coordinator.on_schema_change(f"{database}.{table}", position)
            self._apply_effect(change, position, arrived)
            if self._publishes_truncates and change.kind == "truncate":
                self._truncate(change.database, change.table, offset, batch, index)

    def _truncate(self, database: str, table: str, offset: int, batch: EventBatch, index: int) -> None:
        """Publish that a captured table was emptied. Its place is the border: no row has ordinal 0."""
        if not self._captured.holds_data(database, table):
            return
        found = self._router.for_truncate(database, table)
        if found is None:
            log.warning("log.truncate_not_published", table=f"{database}.{table}", reason="it was dropped")
            return
        transaction = self._open()
        topic, codec = found
        context = EventContext(
            op="t",
            position_prefix=transaction.position.prefix,
            first_ordinal=0,
            ts_us=_source_ts_us(transaction, batch, index),
            server_id=int(batch.server_ids[index]),
            gtid=transaction.gtid,
            file=self._file,
            pos=offset,
            thread=None,
            query=None,
            now_ns=time.time_ns(),
        )
        self._publisher.write(topic, codec.encode_truncate(context))
        self.progress.records += 1

    def _apply_effect(self, change: ddl.DdlChange, position: Position, arrived: set[tuple[str, str]]) -> None:
        if change.kind == "drop_database":
            for database, table in self._table_topics.known():
                if database == change.database:
                    self._floors.append((database, table, position))
            return
        if change.effect == "none" or not change.table:
            return
        here = (change.database, change.table)
        if change.kind == "rename":
            if self._captured.holds_data(*here) and here not in arrived:
                self._floors.append((*here, position))
            target = (change.new_database, change.new_table)
            if change.effect == "snapshot" and self._captured.holds_data(*target):
                self._request_snapshot(*target, "the table was renamed into a captured name")
            return
        if not self._captured.holds_data(*here):
            return
        if change.effect == "floor":
            self._floors.append((*here, position))
        elif change.effect == "snapshot":
            self._request_snapshot(*here, "a DDL changed stored values or the key without logging rows")

    def _request_snapshot(self, database: str, table: str, reason: str) -> None:
        """Have a table read again; it may have had no row in the log yet, and so no topics."""
        self._table_topics.ensure(database, table)
        self._coordinator.request_table(f"{database}.{table}", reason)

    # ---- snapshots in one view

    def _look_for_view(self) -> None:
        """Ask whether reading is to stand still somewhere: here, perhaps."""
        if self._published is not None or not self._border_file:
            return
        if self._transaction is None:
            self._view_at = self._coordinator.approach_view(self._border_position())
            self._publish_view()
        else:
            self._view_at = self._coordinator.approach_view(replace(self._transaction.position, ordinal=1))

    def _publish_view(self) -> None:
        """Where a view stands, publish its rows: behind all that is before this border, before all behind it."""
        if self._view_at is None or self._border_position() < self._view_at:
            return
        self._view_at = None
        self._cut()
        with closing(self._coordinator.rows_of_view(self._committed.position)) as rows:
            for topic, records in rows:
                self._publisher.write(topic, records)
                self.progress.records += records.count
                self.progress.alive_s = now = self._clock()
                if self._publisher.uncommitted >= CUT_RECORDS or now - self._cut_at >= VIEW_CUT_INTERVAL_S:
                    self._cut()
                if self._stop is not None and self._stop.is_set():
                    return
        self._cut()

    # ---- cuts

    def _border_position(self) -> Position:
        return Position(self._committed.epoch, file_number(self._border_file), self._border_pos, 0)

    def _read_timeout(self) -> float:
        if self._dirty or self._publisher.in_transaction:
            return max(0.0, min(IDLE_READ_S, self._cut_at + CUT_INTERVAL_S - self._clock()))
        return 0.02 if self._coordinator.wants_commit() else IDLE_READ_S

    def _cut_is_due(self) -> bool:
        if self._transaction is not None or not self._border_file or self._published is not None:
            return False
        now = self._clock()
        if self._publisher.uncommitted >= CUT_RECORDS:
            return True
        since = now - self._cut_at
        if since >= URGENT_CUT_INTERVAL_S and self._coordinator.wants_commit(self._border_position):
            return True
        if since >= CUT_INTERVAL_S and (self._dirty or self._publisher.in_transaction):
            return True
        if self._heartbeat is not None and self._heartbeat.is_due(now):
            return True
        return self._beats.is_due(self._border_position())

    def _cut(self) -> None:
        border = replace(
            self._committed,
            file=self._border_file,
            pos=self._border_pos,
            gtid_set=str(self._gtids),
            resume=self._prepared.resume(),
            last=self._last,
            inherited=str(self._inherited),
            part=self._part,
        )
        position = border.position
        if self._cascades is not None:
            self._cascades.hand_over(self._coordinator, self._table_topics.ensure)
        for closed in self._coordinator.closed_chunks(position):
            self._write_chunk(closed, self._context_at(position))
        if self._publisher.in_transaction:
            self._publisher.flush()
        self._table_topics.require_unchanged(self._clock())
        work = self._coordinator.before_commit(position)
        began = self._clock()
        has_beats = self._write_markers(work, position)
        for notification in work.notifications:
            record_key, value = self._coordinator.encode_notification(notification)
            self._publisher.produce(topics.notifications_topic(self._prefix, self._delimiter), value, record_key)
        models = {} if self._schema_changes is None else self._schema_changes.take_unsaved()
        for key, document in {
            **models,
            **self._table_topics.take_unsaved(),
            **self._catalog.take_unsaved(),
            **self._documents,
            **work.state,
        }.items():
            self._state.put(self._publisher, key, document)
        now_ms = time.time_ns() // 1_000_000
        if self._heartbeat is not None:
            self._heartbeat.write(self._clock(), now_ms)
        if border != self._committed or self._publisher.in_transaction:
            self._state.put(self._publisher, "offset", border.document(now_ms))
        self._publisher.commit()
        if has_beats:
            self._beats.took(self._clock() - began)
        self._committed = border
        self._has_cut = True
        self._documents.clear()
        self._floors.clear()
        self._dirty = False
        self._cut_at = self._clock()
        self.progress.position = position
        self.progress.committed_ms = now_ms
        self.progress.cuts += 1
        self._coordinator.after_commit(position)

    def _write_markers(self, work: CutWork, position: Position) -> bool:
        """Whether heartbeats of tables were among them."""
        tables = set(self._table_topics.known())
        drafts: list[tuple[str, str, dict[str, Any]]] = [
            (draft.table, draft.type, _with_positions(draft.fields)) for draft in work.markers
        ]
        drafts += [
            (f"{database}.{table}", "floor", {"position": floor, "reason": _FLOOR_REASON})
            for database, table, floor in self._floors
            if (database, table) in tables
        ]
        beats = self._beats.take(tables, position, work.horizon)
        drafts += [(f"{database}.{table}", "heartbeat", {}) for database, table in beats]
        if not drafts:
            return False
        places = {".".join(place): place for place in tables}  # a database's name may hold a dot
        change = {
            name: topics.change_topic(self._prefix, *places[name], self._delimiter)
            for name in {name for name, _, _ in drafts}
        }
        ends = self._admin.end_offsets(change.values())
        for name, kind, fields in drafts:
            snapshot = topics.snapshot_topic(self._prefix, *places[name], self._delimiter)
            self._write_marker(name, snapshot, kind, fields, position, work.horizon, ends[change[name]])
        return bool(beats)

    def _write_marker(
        self,
        name: str,
        topic: str,
        kind: str,
        fields: dict[str, Any],
        position: Position,
        horizon: Position,
        change_offsets: dict[int, int],
    ) -> None:
        marker = _MARKERS[kind](
            table=name,
            horizon=horizon,
            partitions=self._admin.partitions(topic),
            change_offsets=change_offsets,
            **{"position": position, **fields},
        )
        for copy in marker.for_partitions():
            self._publisher.produce(topic, copy.to_bytes(), markers.MARKER_KEY, partition=copy.partition)


def _unknown_xid(xid: str) -> str:
    return (
        f"the log holds the XA COMMIT of {xid}, whose XA PREPARE stands before the place where this producer first "
        f"read the log: its rows cannot be published. Start under another name (new topics, initial snapshot)"
    )


def _source_ts_us(transaction: transactions.OpenTransaction, batch: EventBatch, index: int) -> int:
    """The source's time in µs: of the commit where the log tells it, else of the event, in whole seconds."""
    if transaction.ts_us is not None:
        return transaction.ts_us
    return int(batch.timestamps[index]) * 1_000_000


def _with_positions(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A draft's fields, its positions (texts) parsed."""
    return {
        name: Position.parse(value) if name in _POSITION_FIELDS else value for name, value in fields.items()
    }
