"""The log's side of snapshots: signals, rows that change while a window is open, and what a checkpoint has of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from producer.control.signal_row import decode_signal_row
from producer.snapshot.buffered_chunk import WrittenRows, record_keys
from producer.stream.ports import CheckpointParticipant, CheckpointWork, OutgoingRecord
from rowcodec import EventContext
from schemas.errors import StateError
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.snapshot.buffered_chunk import ClosedChunk
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.snapshot.log_windows import LogWindows
    from producer.stream.cursor import LogCursor
    from producer.stream.ports import (
        EncodedRun,
        LoggedStatement,
        Op,
        RecordPublisher,
        Route,
        RowsEvent,
        State,
    )
    from producer.stream.reader_progress import LogProgress
    from producer.stream.routes import CapturedTables
    from rowcodec import Records
    from rowcodec.codec_factory import CodecFactory, RowIdentity
    from schemas.position import Position

OnRows = Callable[[WrittenRows], None]


class SignalRows:
    """A reader of the signal table's rows. A chunk whose close row is here is written before the close row."""

    def __init__(
        self, windows: LogWindows, publisher: RecordPublisher, progress: LogProgress, on_rows: OnRows | None = None
    ) -> None:
        self._windows = windows
        self._publisher = publisher
        self._progress = progress
        self._on_rows = on_rows

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether it is the signal table."""
        return table.is_signal and table.layout is not None and op in table.encoded_ops

    def rows(self, event: RowsEvent) -> None:
        """Handle every row: as a signal, or as the end of a window."""
        context, _ = event.encoded
        assert event.route.layout is not None
        for row in decode_signal_row(event.buf, event.start, event.end, event.route.layout, event.op):
            closed = self._windows.closed_chunk(row, event.op)
            if closed is not None:
                for topic, records in _rows([closed], context, event.transaction.position, context.ts_us, self._on_rows):
                    self._publisher.write(topic, records)
                    self._progress.records += records.count
            self._windows.on_signal(row, event.op, event.transaction.position)


class OpenWindowRows:
    """A reporter of the keys that the log changes in tables with open windows."""

    def __init__(self, windows: LogWindows, codecs: CodecFactory) -> None:
        self._windows = windows
        self._codecs = codecs

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether the table can have windows."""
        return not table.is_signal and op in table.encoded_ops

    def watches(self, table: Route) -> bool:
        """Return whether chunks of the table wait for their close rows: their rows may be older than the log."""
        return self._windows.watches(table.name)

    def rows(self, event: RowsEvent) -> None:
        """Report the keys, while chunks of the table wait for their close rows."""
        route = event.route
        if not self.watches(route):
            return
        context, records = event.encoded
        identity = self._identity(route)
        if identity.codec is not None:
            records = identity.codec.encode_rows(event.buf, event.start, event.end, context)
        self._windows.touched(route.name, record_keys(records, identity.skip))

    def run(self, run: EncodedRun) -> None:
        """Report the keys of a run. Its rows are read from the log after windows were opened, as each event's are."""
        if not self.watches(run.route):
            return
        records, identity = run.records, self._identity(run.route)
        if identity.codec is not None:
            records = identity.codec.encode_run(run.rows)
        self._windows.touched(run.route.name, record_keys(records, identity.skip))

    def _identity(self, route: Route) -> RowIdentity:
        if route.schema is None:
            message = f"{route.name} is not captured, its rows have no identity"
            raise StateError(message)
        return self._codecs.identity(route.schema, route.layout)


class InvalidatedChunks:
    """A handler of DDL: chunks that were read across it are read again."""

    def __init__(self, windows: LogWindows, captured: CapturedTables) -> None:
        self._windows = windows
        self._captured = captured

    def statement(self, statement: LoggedStatement) -> None:
        """Report each captured table that the statement changes."""
        for change in statement.changes:
            for database, table in change.names:
                if self._captured.holds(database, table):
                    self._windows.table_changed(f"{database}.{table}", statement.origin.position)


class SnapshotCheckpoint(CheckpointParticipant):
    """The coordinator as a participant: registrations, markers, notifications, documents and the horizon.

    `cursor` is where the log reader is: rows of chunks that close without a close row name its last transaction. `on_rows` gets to
    know of them when they are written.
    """

    def __init__(
        self,
        coordinator: SnapshotCoordinator,
        cursor: LogCursor,
        holds_data: Callable[[str, str], bool],
        notifications_topic: str,
        on_rows: OnRows | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._cursor = cursor
        self._holds_data = holds_data
        self._topic = notifications_topic
        self._on_rows = on_rows

    @override
    def restore(self, state: State) -> None:
        self._coordinator.restore(state)
        self._coordinator.requests.cancel_others(self._holds_data)

    def is_due(self, boundary: Callable[[], Position] | None, _now_s: float) -> bool:
        """Return whether a registration, an answer, a marker or a window waits for a checkpoint."""
        return self._coordinator.wants_commit(boundary)

    @override
    def prepare(self, boundary: Position, now_s: float) -> CheckpointWork:
        closed = self._coordinator.windows.closed_chunks(boundary)
        work = self._coordinator.prepare(boundary, now_s)
        encode = self._coordinator.control.encoder.encode
        records = []
        for notification in work.notifications:
            key, value = encode(notification)
            records.append(OutgoingRecord(self._topic, value, key))
        return CheckpointWork(
            rows=_rows(closed, self._context(boundary), boundary, None, self._on_rows) if closed else (),
            markers=work.markers,
            records=records,
            documents=work.state,
            horizon=work.horizon,
        )

    @override
    def committed(self, boundary: Position) -> None:
        self._coordinator.committed(boundary)

    def _context(self, boundary: Position) -> EventContext:
        """Return the last transaction before the boundary, as far as rows of a snapshot name it."""
        file, pos = self._cursor.boundary
        last = self._cursor.last
        return EventContext(
            op="c",
            position_prefix=boundary.prefix,
            first_ordinal=0,
            ts_us=0,
            server_id=0,
            gtid=None if last is None else last.gtid,
            file=file,
            pos=pos,
            thread=None,
            query=None,
            now_ns=time.time_ns(),
        )


def _rows(
    closed: list[ClosedChunk], context: EventContext, at: Position, ts_us: int | None, on_rows: OnRows | None
) -> Iterator[tuple[str, Records]]:
    """Yield the rows of chunks that the log did not overtake, as if they were read at `context`."""
    for one in closed:
        for records in one.chunk.records(one.touched, context, time.time_ns()):
            if on_rows is not None:
                on_rows(WrittenRows(one.request, one.table, *one.chunk.written_at(context), at, ts_us, records.count))
            yield one.chunk.topic, records
