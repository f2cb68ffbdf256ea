"""The log reader: one binlog connection, one thread, one stream of Kafka transactions.

Whole transactions are published and committed at their borders (see `commits`); log events are never held back for a
window.

Rows of an XA transaction stand in the log before its PREPARE and are published at its XA COMMIT, with the
position, GTID and time of that: only then are they visible to a SELECT. While one is open, the offset also holds
where its PREPARE group begins; a restart reads from there and drops whatever else was published before. So
it is with transactions that an earlier epoch published and that stand behind the border on another server.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from producer.binlog import events
from producer.binlog.event_types import LEFT_BEHIND
from producer.catalog.statements import QueryKind, classify_query, savepoint_name
from producer.source.gtid import parse_gtid_set
from producer.source.lineage import Begun
from producer.stream import transaction as transactions
from producer.stream.held import DroppedRows, HeldRows, Holding, PreparedGroup, PreparedGroups
from producer.stream.offset import Part, ResumePoint
from producer.stream.rows import OPS
from schemas.errors import (
    DecodeError,
    LogTornError,
    RetriableSourceError,
    TidemarkError,
    UnknownEventError,
    is_of_one_table,
)
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from threading import Event

    from producer.binlog import EventBatch
    from producer.kafka.publisher import TransactionalPublisher
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.source.dump import BinlogStream
    from producer.source.gtid import GtidSet
    from producer.stream.commits import Commits
    from producer.stream.definitions import Definitions
    from producer.stream.metadata import TransactionMetadata
    from producer.stream.offset import LogOffset
    from producer.stream.rows import RowPublisher

log = structlog.get_logger(__name__)

_STATEMENTS: Final = {
    events.ROWS_QUERY_EVENT: events.parse_rows_query,
    events.MARIADB_ANNOTATE_EVENT: events.parse_annotate,
}
_FIRST_OFFSET: Final = 4
_UPDATE_ROWS_V2: Final = 31
_CTAS_SUFFIX: Final = "START TRANSACTION"


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
    """Reads one source's log from an offset and publishes it. Owned by one thread."""

    def __init__(
        self,
        *,
        stream: BinlogStream,
        offset: LogOffset,
        gtids: GtidSet,
        flavour: str,
        publisher: TransactionalPublisher,
        coordinator: SnapshotCoordinator,
        commits: Commits,
        rows: RowPublisher,
        definitions: Definitions,
        metadata: TransactionMetadata | None = None,
        include_query: bool = False,
        met: MetTransaction | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._flavour = flavour
        self._publisher = publisher
        self._coordinator = coordinator
        self._commits = commits
        self._row_publisher = rows
        self._definitions = definitions
        self._metadata = metadata
        self._include_query = include_query
        self._met = met
        self._clock = clock
        self._epoch = offset.epoch
        self._part = offset.part
        self._gtids = gtids
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
        self._stop: Event | None = None
        self._view_at: Position | None = None
        self.progress = commits.progress

    @property
    def committed(self) -> LogOffset:
        """The offset of the last commit: everything before it is in Kafka."""
        return self._commits.committed

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
        batch = self._stream.read(self._commits.read_timeout())
        self.progress.alive_s = self._clock()
        if batch is not None:
            self._take(batch)

    def _break_off(self, next_file: str) -> None:
        """Forget the open transaction, which has no end; where rows of it were produced, raise what the next attempt must know."""
        transaction = self._open()
        if transaction.held is not None:
            transaction.held.close()
            self._transaction = None
            self._row_publisher.end_transaction()
            return
        if self._began is None:
            reason = f"a transaction without a GTID is open where {next_file} begins"
            raise DecodeError(reason)
        raise MetTransactionError(MetTransaction(self._epoch, self._began.file, self._began.pos, next_file))

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
                if kind in OPS:
                    self._rows(batch, index, kind, starts[index], ends[index], offset)
                else:
                    self._event(batch, index, kind, starts[index], ends[index], offset, sizes[index])
            except DecodeError as error:
                if error.position:
                    self._commit_what_is_whole()
                    raise
                self._commit_what_is_whole()
                raise error.at(f"{self._file}:{offset}") from error
            except TidemarkError as error:
                if is_of_one_table(error):
                    self._commit_what_is_whole()
                raise

    def _commit_what_is_whole(self) -> None:
        """Publish the transactions before the open one, where nothing of that is in the Kafka transaction yet.

        An error that only a person mends is met again at each start: what was committed in the source before it would wait as long.
        """
        transaction = self._transaction
        if transaction is None or self._metadata is not None or self._published is not None or not self._border_file:
            return
        is_of_rows = transaction.needs_commit and transaction.held is None  # a DDL statement may have written records
        if is_of_rows and transaction.next_ordinal == 1:
            self._cut()

    def _event(
        self, batch: EventBatch, index: int, kind: int, start: int, end: int, offset: int, size: int
    ) -> None:
        view = batch.memory
        if kind == events.TABLE_MAP_EVENT:
            if self._transaction is not None and self._transaction.held is not None:
                self._transaction.held.add(batch, index, offset)
            else:
                self._row_publisher.table_map(view, start, end, self._stream.server_version, self._open().position)
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
            self._row_publisher.statement = _STATEMENTS[kind](view, start, end)
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
        is_met = self._met is not None and (self._epoch, self._file, offset) == self._met[:3]
        if self._met is not None and is_met and self._met.next_file:
            reason = f"{self._file}:{offset} begins what the server was writing when it died, and has rolled back"
            raise LogTornError(reason, self._met.next_file)
        begun = transactions.begin(self._epoch, self._file, offset, gtid, ts_us)
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
        self._commits.note_transaction()

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
            self._metadata.begin(transaction, self._file, offset, transaction.source_ts_us(batch, index) // 1000)

    def _commit_transaction(self, end: int, batch: EventBatch, index: int) -> None:
        transaction = self._open()
        if transaction.held is not None:
            self._release(transaction, transaction.held, batch, index)
        if self._metadata is not None:
            self._metadata.end(transaction, transaction.source_ts_us(batch, index) // 1000)
        if transaction.gtid is not None:
            self._gtids.add(transaction.gtid)
        self._last = self._began or self._last
        if self._part is not None and self._part.is_of(self._file, transaction.position.offset, transaction.gtid):
            self._part = None
        self._transaction = None
        self._row_publisher.end_transaction()
        self.progress.transactions += 1
        self._border(end)

    def _border(self, pos: int) -> None:
        self._border_file, self._border_pos = self._file, pos
        if self._published is not None:
            self._read_back(Position(self._epoch, file_number(self._file), pos, 0))
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
                self._read_back(Position(self._epoch, file_number(rotate.file), begins, 0))

    def _is_ahead(self, pos: int) -> bool:
        """Whether a place of this file is behind the border. A stream by GTIDs begins before it, and leaves out what was read."""
        return (file_number(self._file), pos) > (file_number(self._border_file), self._border_pos)

    def _rows(self, batch: EventBatch, index: int, kind: int, start: int, end: int, offset: int) -> None:
        transaction = self._open()
        if transaction.held is not None:
            transaction.held.add(batch, index, offset)
        else:
            self._row_publisher.rows(transaction, batch, index, kind, start, end, self._file, offset)
        self._cut_where_long(transaction)

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
        commits, pos = self._commits, transaction.position.offset
        border = (self._border_file, self._border_pos)
        if not commits.has_committed or (commits.committed.file, commits.committed.pos) != border:
            raise MetTransactionError(MetTransaction(self._epoch, self._file, pos))
        self._part = Part(began, transaction.next_ordinal - 1)
        commits.commit_part(replace(commits.committed, part=self._part))
        log.info("log.part_published", file=self._file, pos=pos, rows=self._part.rows)

    def _payload(self, view: memoryview, start: int, end: int, offset: int, size: int) -> None:
        for inner in events.payload_batches(view, start, end):
            types, starts, ends = inner.types.tolist(), inner.starts.tolist(), inner.ends.tolist()
            for at in range(inner.count):
                kind = types[at]
                if kind in OPS:
                    self._rows(inner, at, kind, starts[at], ends[at], offset)
                else:
                    self._event(inner, at, kind, starts[at], ends[at], offset, size)

    def _compressed(self, plain: EventBatch, offset: int, size: int) -> None:
        """The one event of `plain`, which stands compressed in the log at `offset`, `size` bytes long."""
        kind, start, end = int(plain.types[0]), int(plain.starts[0]), int(plain.ends[0])
        if kind in OPS:
            self._rows(plain, 0, kind, start, end, offset)
        else:
            self._event(plain, 0, kind, start, end, offset, size)

    def _partial_update(self, batch: EventBatch, index: int, offset: int) -> None:
        transaction = self._open()
        if transaction.held is not None:
            transaction.held.add(batch, index, offset)
            return
        plain = self._row_publisher.whole_update(batch, index)
        if plain is not None:
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
        self._row_publisher.statement = None  # whichever it was, it was not that of all these rows
        for rows in held.batches():
            self._begin_metadata(transaction.position.offset, batch, index)
            types, starts, ends = rows.types.tolist(), rows.starts.tolist(), rows.ends.tolist()
            offsets = rows.offsets.tolist()
            for at in range(rows.count):
                place = offsets[at] if offset is None else offset
                if types[at] == events.TABLE_MAP_EVENT:
                    server, place_of_rows = self._stream.server_version, transaction.position
                    self._row_publisher.table_map(rows.memory, starts[at], ends[at], server, place_of_rows)
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
        name = savepoint_name(query.sql, self._flavour)
        if transaction.held is None and transaction.next_ordinal > 1:
            reason = (
                "the log holds a ROLLBACK in a transaction that did not announce that it may: reading on could "
                f"publish rows that never were. {LEFT_BEHIND}"
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
        kind = classify_query(query.sql, self._flavour)
        if kind is QueryKind.BEGIN:
            if self._transaction is None:
                self._begin_transaction(offset, None, None)
            transaction = self._open()
            transaction.thread = query.thread_id
            transaction.needs_commit = True
            self._begin_metadata(offset, batch, index)
        elif kind is QueryKind.COMMIT:
            self._commit_transaction(end, batch, index)
        elif kind is QueryKind.SAVEPOINT:
            held = self._open().held
            name = savepoint_name(query.sql, self._flavour)
            if held is not None and name is not None and query.sql.lstrip()[:1].upper() == "S":
                held.savepoint(name)
        elif kind is QueryKind.ROLLBACK:
            self._roll_back(query, offset, end, batch, index)
        elif kind is QueryKind.XA:
            self._xa(query, offset, end, batch, index)
        elif kind is QueryKind.DML:
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
            self._definitions.take(query, self._open(), self._file, offset, batch, index)
        if query.sql.rstrip().upper().endswith(_CTAS_SUFFIX):
            self._begin_metadata(offset, batch, index)
        elif not self._open().needs_commit:
            self._commit_transaction(end, batch, index)

    def _statement_dml(self, query: events.QueryEvent, offset: int) -> None:
        reason = (
            f"a data change was logged as a statement ({query.sql[:80]!r}): some session runs with "
            f"binlog_format=STATEMENT or MIXED, its rows are not in the log. Set binlog_format=ROW in every "
            f"session (SET GLOBAL binlog_format='ROW'; then reconnect the clients); then {LEFT_BEHIND}"
        )
        raise UnknownEventError(reason, f"{self._file}:{offset}")

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
        if self._view_at is not None and self._border_position() >= self._view_at:
            self._view_at = None
            self._commits.commit_view(self._border_offset(), self._stop)

    # ---- cuts

    def _border_position(self) -> Position:
        return Position(self._epoch, file_number(self._border_file), self._border_pos, 0)

    def _border_offset(self) -> LogOffset:
        return replace(
            self._commits.committed,
            file=self._border_file,
            pos=self._border_pos,
            gtid_set=str(self._gtids),
            resume=self._prepared.resume(),
            last=self._last,
            inherited=str(self._inherited),
            part=self._part,
        )

    def _cut_is_due(self) -> bool:
        if self._transaction is not None or not self._border_file or self._published is not None:
            return False
        return self._commits.is_due(self._border_position)

    def _cut(self) -> None:
        self._commits.commit(self._border_offset())


def _unknown_xid(xid: str) -> str:
    return (
        f"the log holds the XA COMMIT of {xid}, whose XA PREPARE stands before the place where this producer first "
        f"read the log: its rows cannot be published. {LEFT_BEHIND}"
    )
