"""The transaction assembler: events of the log enter, steps leave (pure: no client, no clock, no thread).

The assembler is all that is remembered of the log between two events: the open transaction, the transaction boundary
before it, GTIDs, rows that wait for a commit, prepared XA transactions, and how far the log is read a second time.
The steps of one transaction, in order::

    Begin ─ BeginRows ─ (TableMapStep │ Rows │ PartialRows │ SqlText │ Definition │ DataStatement │ Kept)* ─ [Release, rows] ─ End
                                                                                       └ Drop, where the log breaks off

Between transactions there is a `Boundary` where the log continues without one.

Rows that may be rolled back are `Kept` until the commit, and follow its `Release`; a rollback drops them. Rows of an XA
transaction are in the log before its PREPARE. They are released at its XA COMMIT, with the position, GTID and time
of that: only then are they visible to a SELECT. While one is open, the offset also has the beginning of its PREPARE group.
A restart reads from there, and drops everything else that was published before. The same happens to transactions
that an earlier epoch published and that are after the boundary on another server.

MariaDB can log an ALTER twice, at its start and at its end (`START`, `COMMIT` or `ROLLBACK ALTER`): only a COMMIT is a step.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

import structlog

from producer.binlog import events
from producer.binlog.transaction_runs import RunFinder
from producer.catalog.statements import QueryKind, classify_query, savepoint_name
from producer.source.begun import Begun
from producer.stream.emptied_tables import as_truncate
from producer.stream.log_refusals import UNANNOUNCED_ROLLBACK, unknown_xid
from producer.stream.offset import Part, ResumePoint
from producer.stream.pending_rows import (
    DroppedRows,
    PendingMemory,
    PendingRows,
    PreparedGroup,
    PreparedGroups,
)
from producer.stream.steps import (
    Begin,
    BeginRows,
    Boundary,
    CommitFirst,
    DataStatement,
    Definition,
    Drop,
    End,
    Kept,
    PartialRows,
    Release,
    RereadError,
    RereadHint,
    Rows,
    SqlText,
    Step,
    TableMapStep,
)
from schemas.errors import DecodeError, LogTornError, UnknownEventError
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.binlog.transaction_runs import TransactionRun
    from producer.stream.cursor import LogCursor
    from producer.stream.offset import LogOffset
    from producer.stream.transaction import OpenTransaction

log = structlog.get_logger(__name__)

OPS: Final[dict[int, Literal["c", "u", "d"]]] = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
"""The operation of each type of rows event."""
_STATEMENTS: Final = {
    events.ROWS_QUERY_EVENT: events.parse_rows_query,
    events.MARIADB_ANNOTATE_EVENT: events.parse_annotate,
}
_TABLE_MAP: Final = events.TABLE_MAP_EVENT
_CTAS_SUFFIX: Final = "START TRANSACTION"
_new: Final = tuple.__new__  # a third of the time of the class's own constructor
_OUTSIDE: Final = "the log has rows outside any transaction"
_KEPT: Final = Kept()
_BOUNDARY: Final = Boundary()


class TransactionAssembler:
    """The state of one log between its events. Owned by the log reader's thread.

    `hint` is what an earlier attempt found out about a transaction after the cursor; `memory` is for pending rows.
    """

    def __init__(
        self,
        cursor: LogCursor,
        flavour: str,
        *,
        include_query: bool = False,
        exact: bool = False,
        hint: RereadHint | None = None,
        memory: PendingMemory | None = None,
    ) -> None:
        self.cursor = cursor
        self._flavour = flavour
        self._include_query = include_query
        self._hint = hint
        self._event_offset = 0
        self._began: Begun | None = None
        self._memory = memory or PendingMemory()
        self._dropped = DroppedRows(self._memory)
        self._prepared = PreparedGroups()
        self._transaction: OpenTransaction | None = None
        self.runs = RunFinder(skips_sql=not include_query, left_out=events.NO_FOREIGN_KEY_CHECKS if exact else 0)

    # ---- state

    @property
    def transaction(self) -> OpenTransaction | None:
        """The open transaction."""
        return self._transaction

    @property
    def where(self) -> str:
        """The log file and the offset of the event that was read last."""
        return f"{self.cursor.file}:{self._event_offset}"

    @property
    def can_commit(self) -> bool:
        """Whether the log is at a boundary that can be committed."""
        return self._transaction is None and self.cursor.has_new_boundary

    @property
    def can_commit_before(self) -> bool:
        """Whether a transaction is open of which nothing was published: the boundary before it can be committed."""
        transaction = self._transaction
        if transaction is None or not self.cursor.has_new_boundary:
            return False
        is_of_rows = transaction.needs_commit and transaction.pending is None  # a DDL statement may have written records
        return is_of_rows and (transaction.next_ordinal == 1 or transaction.is_ignored)

    @property
    def can_pass_runs(self) -> bool:
        """Whether whole transactions may be published without steps: nothing that is remembered asks for one of them."""
        return self._transaction is None and self.cursor.is_plain and (self._hint is None or self.cursor.has_passed(self._hint))

    def boundary_offset(self, committed: LogOffset) -> LogOffset:
        """Return the offset of the last transaction boundary, which follows the committed one."""
        return self.cursor.offset(committed, self._prepared.resume())

    def resume_point(self) -> ResumePoint:
        """Return where the log is now: the boundary, or the beginning of the open transaction."""
        if self._transaction is None:
            return ResumePoint(*self.cursor.boundary, str(self.cursor.gtids))
        return ResumePoint(self.cursor.file, self._transaction.position.offset, str(self.cursor.gtids))

    # ---- changes from outside

    @property
    def can_be_divided(self) -> bool:
        """Whether a part of the open transaction may be committed.

        On MariaDB a transaction may break off, and can be taken back only while nothing of it is committed. On another server
        a second transaction may be long, before the one of which a part was published.
        """
        transaction = self._transaction
        if self._flavour != "mysql" or self._began is None or transaction is None:
            return False
        part = self.cursor.part
        return part is None or part.is_of(self.cursor.file, transaction.position.offset, transaction.gtid)

    def divide(self) -> Part:
        """Return the part of the open transaction that was published so far; offsets have it from now on."""
        assert self._began is not None
        part = self.cursor.part = Part(self._began, self._open().next_ordinal - 1)
        return part

    def reread_hint(self) -> RereadHint:
        """Return the hint that the open transaction takes too long for one Kafka transaction."""
        return RereadHint(self.cursor.epoch, self.cursor.file, self._open().position.offset)

    def break_off(self, next_file: str) -> None:
        """Drop the open transaction, which has no end. Where rows of it were published, raise `RereadError` with a hint."""
        transaction = self._open()
        if transaction.pending is not None:
            transaction.pending.close()
            self._transaction = None
            return
        if self._began is None:
            reason = f"a transaction without a GTID is open where {next_file} begins"
            raise DecodeError(reason)
        raise RereadError(RereadHint(self.cursor.epoch, self._began.file, self._began.pos, next_file))

    def close(self) -> None:
        """Drop all pending rows."""
        if self._transaction is not None and self._transaction.pending is not None:
            self._transaction.pending.close()
        self._prepared.close()

    # ---- events

    def steps(self, batch: EventBatch, begin: int = 0, end: int | None = None) -> Iterator[Step]:
        """Yield the steps of the events from `begin` on up to `end`. Each is to be carried out before the next is asked for.

        Raises `DecodeError` for events that reading must not pass, and `LogTornError` for a transaction that a hint
        says to leave out. After an error no more events are accepted.
        """
        stop = batch.count if end is None else end
        return self._steps(batch, batch.offsets[begin:stop].tolist(), batch.sizes[begin:stop].tolist(), begin)

    def pass_run(self, run: TransactionRun) -> None:
        """Note that the transactions of the run are read: they were published without steps."""
        self._event_offset = int(run.batch.offsets[run.end - 1])
        self._began = self.cursor.pass_run(run)

    def _steps(  # noqa: C901 - one branch per kind of event
        self, batch: EventBatch, offsets: Sequence[int], sizes: Sequence[int], begin: int = 0
    ) -> Iterator[Step]:
        stop = begin + len(offsets)
        types, starts, ends = (one[begin:stop].tolist() for one in (batch.types, batch.starts, batch.ends))
        events_of_batch = zip(range(begin, stop), types, starts, ends, offsets, sizes, strict=True)
        for index, kind, start, end, offset, size in events_of_batch:
            self._event_offset = offset
            if kind in OPS or kind == _TABLE_MAP:
                transaction = self._transaction
                if transaction is None:
                    raise DecodeError(_OUTSIDE)
                if transaction.pending is not None:
                    transaction.pending.add(batch, index, offset)
                    yield _KEPT
                elif kind == _TABLE_MAP:
                    yield TableMapStep(transaction, batch, start, end)
                else:
                    yield _new(Rows, (transaction, batch, index, kind, start, end, self.cursor.file, offset))
            elif kind == events.XID_EVENT:
                transaction = self._open()
                if transaction.pending is not None:
                    yield from self._release(transaction, transaction.pending, batch, index)
                yield self._end(transaction, offset + size, batch, index)
            elif kind == events.QUERY_EVENT:  # the frequent kinds without a generator of their own
                query = events.parse_query(batch.memory, start, end)
                transaction = self._transaction
                if query.sql == "BEGIN" and transaction is not None:
                    transaction.thread, transaction.needs_commit = query.thread_id, True
                    if transaction.pending is None:
                        yield BeginRows(transaction, self.cursor.file, offset, batch, index)
                else:
                    yield from self._query(query, offset, offset + size, batch, index)
            elif kind in events.GTID_EVENTS:
                gtid = events.parse_gtid(batch.memory, start, end)
                if self._hint is not None or self.cursor.part is not None:
                    yield from self._before_long(offset, gtid.gtid)
                yield self._mysql_gtid(gtid, offset, zlib.crc32(batch.memory[start : end]))
            else:
                yield from self._event(batch, index, kind, start, end, offset, size)

    def _event(self, batch: EventBatch, index: int, kind: int, start: int, end: int, offset: int, size: int) -> Iterator[Step]:
        view = batch.memory
        if kind == events.MARIADB_GTID_EVENT:
            yield from self._mariadb_gtid(events.parse_mariadb_gtid(view, start, end), offset, batch, index)
            self._began = Begun(self.cursor.file, offset, self._open().gtid, None, zlib.crc32(view[start:end]))
        elif kind == events.XA_PREPARE_EVENT:
            yield from self._xa_prepare(events.parse_xa_prepare(view, start, end), offset, offset + size, batch, index)
        elif kind == events.EXECUTE_LOAD_EVENT:
            yield from self._query(events.parse_query(view, start, end), offset, offset + size, batch, index)
        elif kind == events.ROTATE_EVENT:
            self.cursor.rotate(events.parse_rotate(view, start, end), is_boundary=self._transaction is None)
        elif kind == events.TRANSACTION_PAYLOAD_EVENT:
            for inner in events.payload_batches(view, start, end):
                yield from self._steps(inner, [offset] * inner.count, [size] * inner.count)
        elif self._include_query and kind in _STATEMENTS:
            yield SqlText(_STATEMENTS[kind](view, start, end))
        else:
            yield from self._other(batch, index, kind, offset, size)

    def _other(self, batch: EventBatch, index: int, kind: int, offset: int, size: int) -> Iterator[Step]:
        if kind in events.MARIADB_COMPRESSED_EVENTS and self._flavour == "mariadb":
            start, end = int(batch.starts[index]), int(batch.ends[index])
            yield from self._steps(events.decompress_event(batch.memory, start, end), [offset], [size])
            return
        if kind == events.PARTIAL_UPDATE_ROWS_EVENT and self._flavour == "mysql":
            transaction = self._open()
            if transaction.pending is None:
                yield PartialRows(transaction, batch, index, self.cursor.file, offset)
            else:
                transaction.pending.add(batch, index, offset)
                yield _KEPT
            return
        if kind == events.FORMAT_DESCRIPTION_EVENT and self._transaction is not None:
            self.break_off(self.cursor.file)
            yield Drop()
        flags = int(batch.flags[index])
        if events.classify(kind, flags, self._flavour) is not events.Verdict.HARMLESS:
            raise UnknownEventError(events.refusal(kind, self._flavour), f"{self.cursor.file}:{offset}")
        if self._transaction is None and not batch.is_artificial(index) and self.cursor.is_ahead(offset + size):
            self.cursor.move_boundary(offset + size)
            yield _BOUNDARY

    # ---- begin and end

    def _mysql_gtid(self, gtid: events.GtidEvent, offset: int, checksum: int) -> Begin:
        transaction = self._begun(offset, gtid.gtid, gtid.original_commit_us)
        self._began = Begun(self.cursor.file, offset, gtid.gtid, gtid.original_commit_us, checksum)
        if gtid.may_roll_back:
            self._keep()
        return Begin(transaction)

    def _mariadb_gtid(self, gtid: events.MariadbGtid, offset: int, batch: EventBatch, index: int) -> Iterator[Step]:
        yield from self._begin(offset, gtid.gtid)
        self._open().note(gtid)
        if gtid.prepared_xa:
            self._open().pending = PendingRows(self._memory)
        elif gtid.may_roll_back:
            self._keep()
        if not gtid.standalone:
            yield from self._begin_rows(offset, batch, index)

    def _begin(self, offset: int, gtid: str | None) -> Iterator[Step]:
        if self._hint is not None or self.cursor.part is not None:
            yield from self._before_long(offset, gtid)
        yield Begin(self._begun(offset, gtid, None))

    def _before_long(self, offset: int, gtid: str | None) -> Iterator[Step]:
        """Yield what comes before a transaction that a hint or a part names: it is published in parts from here on."""
        cursor, hint = self.cursor, self._hint
        is_hinted = hint is not None and (cursor.epoch, cursor.file, offset) == hint[:3]
        if hint is not None and is_hinted and hint.next_file and self._transaction is None:
            reason = f"{cursor.file}:{offset} begins what the server was writing when it died, and has rolled back"
            raise LogTornError(reason, hint.next_file)
        cursor.end_reading_back(Position(cursor.epoch, file_number(cursor.file), offset, 0))
        is_in_part = cursor.part is not None and cursor.part.is_of(cursor.file, offset, gtid)
        if not cursor.is_reading_back and (is_hinted or is_in_part) and self._transaction is None:
            if cursor.is_ahead(offset):
                cursor.move_boundary(offset)
            yield CommitFirst()

    def _begun(self, offset: int, gtid: str | None, ts_us: int | None) -> OpenTransaction:
        """Open a transaction."""
        if self._transaction is not None:
            reason = f"a transaction begins inside the one at {self._transaction.position.text}"
            raise DecodeError(reason, f"{self.cursor.file}:{offset}")
        begun = self._transaction = self.cursor.begin(offset, gtid, ts_us)
        if begun.published:
            begun.pending = self._dropped
        return begun

    def _open(self) -> OpenTransaction:
        if self._transaction is None:
            raise DecodeError(_OUTSIDE)
        return self._transaction

    def _begin_rows(self, offset: int, batch: EventBatch, index: int) -> Iterator[Step]:
        transaction = self._open()
        if transaction.pending is None:  # pending rows begin when they are released
            yield BeginRows(transaction, self.cursor.file, offset, batch, index)

    def _commit(self, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        transaction = self._open()
        if transaction.pending is not None:
            yield from self._release(transaction, transaction.pending, batch, index)
        yield self._end(transaction, end, batch, index)

    def _end(self, transaction: OpenTransaction, end: int, batch: EventBatch, index: int) -> End:
        self._transaction = None
        self.cursor.end_transaction(transaction, self._began)
        self.cursor.move_boundary(end)
        return End(transaction, batch, index)

    # ---- pending rows

    def _keep(self) -> None:
        """Keep the group's rows until its end: some may be rolled back."""
        if self._open().pending is None:
            self._open().pending = PendingRows(self._memory)

    def _release(
        self, transaction: OpenTransaction, pending: PendingRows, batch: EventBatch, index: int, offset: int | None = None
    ) -> Iterator[Step]:
        """Yield pending rows at `offset`, else each at the offset of its event; event `index` of `batch` releases them."""
        transaction.pending = None
        yield Release(transaction)
        for rows in pending.batches():
            yield from self._begin_rows(transaction.position.offset, batch, index)
            offsets = rows.offsets.tolist() if offset is None else [offset] * rows.count
            yield from self._steps(rows, offsets, rows.sizes.tolist())
        pending.close()

    def _xa_prepare(self, prepare: events.XaPrepare, offset: int, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        transaction = self._open()
        pending = transaction.pending
        if pending is None:
            reason = f"an XA PREPARE of {prepare.xid} without an XA START before it"
            raise DecodeError(reason, f"{self.cursor.file}:{offset}")
        if prepare.one_phase:
            if transaction.published:
                transaction.pending = None
                pending.close()
        else:
            transaction.pending = None
            start = ResumePoint(self.cursor.file, transaction.position.offset, str(self.cursor.gtids))
            self._prepared.add(prepare.xid, PreparedGroup(pending, start))
        yield from self._commit(end, batch, index)

    def _xa(self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        statement = events.parse_xa_statement(query.sql)
        if self._transaction is None:
            yield from self._begin(offset, None)
        transaction = self._open()
        transaction.thread = query.thread_id
        if statement.verb in ("START", "END"):
            transaction.pending = transaction.pending if statement.verb == "END" else PendingRows(self._memory)
            return
        if statement.verb == "ROLLBACK" or transaction.published:
            self._prepared.drop(statement.xid)
        else:
            pending = self._prepared.pop(statement.xid)
            if pending is None:
                raise UnknownEventError(unknown_xid(statement.xid), f"{self.cursor.file}:{offset}")
            if transaction.ts_us is None:
                transaction.ts_us = int(batch.timestamps[index]) * 1_000_000
            yield from self._release(transaction, pending, batch, index, offset)
        yield from self._commit(end, batch, index)

    def _roll_back(self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        """Drop rows at a ROLLBACK [TO]. A group has rows of transactional tables only; others have groups of their own."""
        transaction = self._open()
        name = savepoint_name(query.sql, self._flavour)
        if transaction.pending is None and transaction.next_ordinal > 1 and not transaction.is_ignored:
            raise UnknownEventError(UNANNOUNCED_ROLLBACK, f"{self.cursor.file}:{offset}")
        if name is None:
            if transaction.pending is not None:
                transaction.pending.roll_back()
            yield from self._commit(end, batch, index)
        elif transaction.pending is not None:
            transaction.pending.roll_back_to(name)

    # ---- queries

    def _query(self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        kind = classify_query(query.sql, self._flavour)
        if kind is QueryKind.BEGIN:
            if self._transaction is None:
                yield from self._begin(offset, None)
            transaction = self._open()
            transaction.thread = query.thread_id
            transaction.needs_commit = True
            if transaction.pending is None:
                yield BeginRows(transaction, self.cursor.file, offset, batch, index)
        elif kind is QueryKind.COMMIT:
            yield from self._commit(end, batch, index)
        elif kind is QueryKind.SAVEPOINT:
            self._open().note_savepoint(query.sql, self._flavour)
        elif kind is QueryKind.ROLLBACK:
            yield from self._roll_back(query, offset, end, batch, index)
        elif kind is QueryKind.XA:
            yield from self._xa(query, offset, end, batch, index)
        elif kind is QueryKind.DML:
            yield from self._data(query, offset, end, batch, index)
        else:
            yield from self._definition(query, offset, end, batch, index)

    def _data(self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        """Yield the steps of a data change that is logged as a statement."""
        if self._transaction is None:
            yield from self._begin(offset, None)
        transaction = self._open()
        truncate = as_truncate(query, self._flavour, needs_commit=transaction.needs_commit)
        if truncate is not None:
            yield from self._definition(truncate, offset, end, batch, index)
            return
        if not transaction.published:
            yield DataStatement(transaction, query, self.cursor.file, offset)
        if not transaction.needs_commit:
            yield from self._commit(end, batch, index)

    def _definition(self, query: events.QueryEvent, offset: int, end: int, batch: EventBatch, index: int) -> Iterator[Step]:
        """Yield the steps of a DDL statement, or of one that changes neither rows nor tables."""
        if self._transaction is None:
            yield from self._begin(offset, None)
        transaction = self._open()
        if not transaction.published and not transaction.has_not_happened:
            query = query._replace(unclear=query.unclear or transaction.unclear)
            yield Definition(transaction, query, batch, index, self.cursor.file, offset)
        if query.sql.rstrip().upper().endswith(_CTAS_SUFFIX):
            yield from self._begin_rows(offset, batch, index)
        elif not transaction.needs_commit:
            yield from self._commit(end, batch, index)
