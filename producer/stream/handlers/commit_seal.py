"""Commit records: rows and statements enter, one record leaves with each Kafka transaction (`schemas.commit_records`).

The publisher says which records a transaction has, and their offsets, once all of them are acknowledged. Their times are seen here,
as the log has them. The promise is at least the time of the last transaction; while little is written, it follows the server's
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from producer.stream.ports import CheckpointParticipant, OutgoingRecord
from producer.stream.transaction_times import TransactionTimes
from rowcodec.run_items import I_BEGAN, I_TABLE, I_TS_US, ITEM
from schemas.commit_records import (
    ChunkRows,
    CommitRecord,
    CompleteTable,
    Continued,
    OpenPart,
    RowTimes,
    StreamState,
)
from schemas.markers import MarkerType
from schemas.position import Position

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from producer.kafka.span_publisher import WrittenSpans
    from producer.snapshot.buffered_chunk import WrittenRows
    from producer.stream.offset import LogOffset
    from producer.stream.ports import CheckpointWork, EncodedRun, LoggedStatement, Op, Route, RowsEvent
    from rowcodec import RowsOfRun

MOST_LIFTS: Final = 10_000
"""A record with so many is written at once: each takes about sixty bytes."""
_LEFT_OUT: Final = -1


class ServerClock(Protocol):
    """The clock of the server that is read: `producer.source.source_clock.SourceClock`, or its memory twin."""

    skew_us: int | None
    """How far it is ahead of the clock of this machine; None if that is unknown."""
    correction_us: int
    """The skew that `now_us` and `ready_us` are without."""

    @property
    def is_waiting(self) -> bool:
        """Whether a time waits for the log to be read up to its end of then."""

    def now_us(self) -> int:
        """Return about what time it is on the server, in microseconds."""

    def ready_us(self, boundary: Position) -> int:
        """Return the latest time that may be promised when everything before `boundary` is published; 0 without any."""


class SpanSource(Protocol):
    """A publisher that knows its offsets: `producer.kafka.span_publisher.SpanPublisher`, or its memory twin."""

    def pop_spans(self) -> WrittenSpans:
        """Return the offsets of the records since the last call; all of them must be acknowledged."""


class CommitSeal(CheckpointParticipant):
    """The seal of the log reader's Kafka transactions. Owned by the log reader's thread.

    `committed` is the offset that this start resumes at, `reset` why it does not resume at the end of the one before it, `signals`
    the topic of the signal table, `server` the identity of the server.
    """

    def __init__(
        self,
        topic: str,
        publisher: SpanSource,
        clock: ServerClock,
        committed: LogOffset,
        reset: str = "",
        *,
        signals: str = "",
        server: str = "",
    ) -> None:
        self._topic = topic
        self._server = server
        self._signals = signals
        self._publisher = publisher
        self._clock = clock
        self._state = committed.stream or StreamState()
        self._begin = committed.position
        self._reset = reset
        self._skew_us = clock.correction_us
        self._times = TransactionTimes(self._state.promise_us, clock.now_us)
        self._chunks: list[WrittenRows] = []
        self._continues: Continued | None = None
        self._is_last = False
        self._prefix, self._file = "", Position.MINIMUM
        self._run_items: npt.NDArray[np.int64] | None = None

    @property
    def skew_us(self) -> int | None:
        """How far the server's clock is ahead of the one of this machine; None if that is unknown."""
        return self._clock.skew_us

    # ---- rows and statements

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether rows of that operation become records."""
        return op in table.encoded_ops

    def rows(self, event: RowsEvent) -> None:
        """Note the time of rows, also of those that an earlier start published: their transaction ends in a record of this one."""
        context = event.context
        assert context is not None
        position, opened = event.transaction.position, self._state.open
        if event.is_in_kafka and opened is not None and opened != position:  # the log is another server's
            self._continues = Continued(opened, position)
        self._times.note(position, context.ts_us - self._skew_us)

    def run(self, run: EncodedRun) -> None:
        """Note the times of all tables of a run, with the first of them."""
        if run.rows.items is not self._run_items:
            self._run_items = run.rows.items
            self._note_run(run.rows)

    def statement(self, statement: LoggedStatement) -> None:
        """Note the time of a statement."""
        self._times.note(statement.origin.position, statement.origin.ts_us - self._skew_us)

    def snapshot_rows(self, written: WrittenRows) -> None:
        """Note rows of a snapshot, which are in the next record."""
        self._chunks.append(written)

    def _note_run(self, rows: RowsOfRun) -> None:
        items = rows.items.reshape(-1, ITEM)[: rows.count]
        if _LEFT_OUT in rows.groups.tolist():
            items = items[(rows.groups != _LEFT_OUT)[items[:, I_TABLE]]]
        if rows.position_prefix != self._prefix:
            self._prefix, self._file = rows.position_prefix, Position.parse(f"{rows.position_prefix}{0:012d}.{0:010d}")
        self._times.note_run(self._file.epoch, self._file.file, items[:, I_BEGAN], items[:, I_TS_US] - self._skew_us)

    # ---- the end of a Kafka transaction

    def is_due(self, boundary: Callable[[], Position] | None, _now_s: float) -> bool:
        """Return whether a later time can be promised than the published one, or so much is noted that it is to be written."""
        if boundary is None:
            return self._clock.is_waiting
        if len(self._times.lifts) + len(self._times.caps) >= MOST_LIFTS:
            return True
        return self._clock.is_waiting and self.is_wanted(boundary())

    def is_wanted(self, boundary: Position) -> bool:
        """Return whether a later time can be promised than the published one."""
        if self._is_last:
            return True
        ready_us = self._clock.ready_us(boundary)
        if ready_us <= self._state.promise_us:
            return False
        self._times.merge_runs()
        return ready_us > self._times.maximum_us

    def end(self) -> None:
        """Have the next commit record say that it is the last."""
        self._is_last = True

    def seal(self, offset: LogOffset, works: Sequence[CheckpointWork]) -> tuple[LogOffset, Sequence[OutgoingRecord]]:
        """Return the offset with the new promise, and the commit record."""
        record = self._record(offset, works)
        self._state = replace(self._state, n=record.n, promise_us=record.promise_us, open=record.open_behind(self._state.open))
        self._begin, self._chunks, self._reset, self._continues = record.to, [], "", None
        self._times.begin_record(record.promise_us)
        if self._times.position is None:  # all rows of a transaction have one skew: readers take the one of the record with its end
            self._skew_us = self._clock.correction_us
        return offset.sealed(self._state), (OutgoingRecord(self._topic, record.to_bytes(), b""),)

    def _record(self, offset: LogOffset, works: Sequence[CheckpointWork]) -> CommitRecord:
        times, to, opened = self._times, offset.position, None
        if times.position is not None and times.position >= to:  # of this transaction a part is committed
            opened = OpenPart(times.position, times.open_us())
            promise_us = opened.us
        else:
            times.finish()
            promise_us = max(times.maximum_us, self._clock.ready_us(to))
        rows, spans = self._publisher.pop_spans()
        record = CommitRecord(
            n=self._state.n + 1,
            begin=self._begin,
            to=to,
            since_us=times.since_us,
            promise_us=promise_us,
            skew_us=self._skew_us,
            lifts=tuple(times.lifts),
            caps=tuple(times.caps),
            rows=rows,
            spans=spans,
            open=opened,
            continues=self._continues,
            complete=_completed(works),
            signals=self._signals if self._signals in rows else "",
            server=self._server,
            reset=self._reset,
            is_last=self._is_last,
        )
        return replace(record, chunks=self._closed_chunks(RowTimes(record))) if self._chunks else record

    def _closed_chunks(self, time_of: RowTimes) -> tuple[ChunkRows, ...]:
        rows: dict[WrittenRows, int] = {}
        for one in self._chunks:
            same = one._replace(rows=0)
            rows[same] = rows.get(same, 0) + one.rows
        return tuple(
            ChunkRows(
                request=one.request,
                table=one.table,
                file=one.file,
                pos=one.pos,
                at=one.at,
                us=self._times.maximum_us if one.ts_us is None else time_of(one.at, one.ts_us),
                rows=count,
            )
            for one, count in rows.items()
        )


def _completed(works: Sequence[CheckpointWork]) -> tuple[CompleteTable, ...]:
    """Return the tables of snapshot requests that are complete with these works."""
    drafts = [draft for work in works for draft in work.markers if draft.type is MarkerType.COMPLETE]
    return tuple(CompleteTable(str(draft.fields["request"]), draft.table) for draft in drafts)
