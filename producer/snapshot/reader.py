"""The chunk reader: one chunk from its registered window to its close row.

The protocol, for one window whose bound is durable (DESIGN §4, 2)::

    1. low watermark := end of the binlog, never below the bound; commit the open row: the barrier (`Windowing.open`)
    2. no XA transaction that is prepared now may still be when the rows are read
    3. the table's columns, read now, choose the codec; the key must be the one the plan rests on
    4. SELECT, its read view opened after the barrier; blocks of raw rows become records in the Kafka
       transaction of the reader's slot
    5. wait until the log reader has read the open row: only now the barrier counts. If that takes long, the
       Kafka transaction is aborted and step 4 repeated once the row was read: the low watermark stays true
    6. commit the Kafka transaction: the rows are visible
    7. commit the close row

With `merge: producer` the raw rows are buffered in memory instead (`BufferedChunk`): in step 6 they are handed over, and
after step 7 the reader waits until the log reader has read the close row and written them, so that no more chunks are
buffered than there are readers.

Where nothing is written to the source, the low watermark is taken otherwise (`windowing`) and steps 5 and 7 fall away.
Step 6 then hands over the end of the log after the rows had been read: the log reader closes the window there.

A DDL statement of the table between low watermark and close row voids the window; its rows do no harm. Whatever goes
wrong is raised; the caller aborts and fences the slot, and the chunk is read again in a new window.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np

from mysqlio.binary_query import DEFAULT_BUFFER_BYTES, BinaryQuery, Buffer
from mysqlio.connection import server_version
from mysqlio.result_columns import require_columns
from mysqlio.server_facts import flavour_of, version_of
from producer.snapshot.buffered_chunk import BufferedChunk
from producer.snapshot.pace import ChunkCost
from producer.snapshot.ranges import KeyRange, table_name
from producer.snapshot.watermark import XA_PATIENCE_S, LowWatermark, WindowRow, end_of_binlog, require_no_xa
from producer.snapshot.windowing import Windowing
from rowcodec import ChunkContext
from schemas.columns import TableSchema
from schemas.errors import SourceError, TidemarkError
from schemas.identity import TableId
from schemas.position import Position

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.kafka.chunk_sink import ChunkReceipt
    from producer.snapshot.scope import Scope
    from producer.snapshot.table_access import TableAccess
    from rowcodec import Records

OPEN_PATIENCE_S: Final = 20.0
_NAMES_ARE_NAMES: Final = 9
SnapshotMark = Literal["incremental", "true"]
Merge = Literal["spark", "producer"]


class AbandonedError(TidemarkError):
    """The window is void (stop, DDL, shutdown): give it up; the chunk itself is not to blame."""


class KeyChangedError(TidemarkError):
    """The table's key is not the one its chunks were planned for."""


class TableGoneError(TidemarkError):
    """The table no longer exists."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a reader reads: a chunk of a table, in a registered window. `key` is the key that the chunk's range rests on.

    `merge` says who merges the rows with the log: "spark" (they go to the snapshot topic) or "producer".
    """

    window: str
    request: str
    table: TableId
    topic: str
    chunk: int
    bounds: KeyRange
    scope: Scope
    bound: Position
    key: tuple[tuple[str, str, str], ...]
    snapshot: SnapshotMark
    merge: Merge = "spark"

    @property
    def full_name(self) -> str:
        """`database.table`."""
        return ".".join(self.table)


class ChunkWriter(Protocol):
    """A slot's way into Kafka (`producer.kafka.chunk_sink`); used by one thread.

    After any error only `fence` and `close` may be called.

    Guarantee: rows become visible together, with `flush_and_commit`, or never. After `fence` nothing that an
    earlier holder of the slot wrote without committing can become visible any more.
    """

    def fence(self) -> None:
        """Take the slot over: abort the transaction that an earlier holder left open; it can write no more."""

    def begin(self, topic: str) -> None:
        """Start a chunk whose rows go to `topic`."""

    def write(self, topic: str, records: Records) -> None:
        """Hand over a block of rows; blocks when the writer is behind."""

    def flush_and_commit(self) -> ChunkReceipt:
        """Make the chunk's rows visible."""

    def abort(self) -> None:
        """Drop the chunk's rows, if it has any."""

    def close(self) -> None:
        """Close the connection; an open transaction is left to be fenced."""


class WindowWatch(Protocol):
    """What a reader reports to the rest of the process about its window, and waits for."""

    def check(self) -> None:
        """Raise `AbandonedError` when the window is void."""

    def low_chosen(self, low: Position, *, moves: bool) -> None:
        """Note the low watermark; `AbandonedError` when a DDL statement of the table is behind it already.

        Also when another request reads the table at the same one, if the next attempt has another (`moves`): both may
        read the same row, and a changelog would have it twice at one position.
        """

    def count(self, rows: int) -> None:
        """Note how many rows were read so far."""

    def measured(self, cost: ChunkCost) -> None:
        """Note the cost of the SELECT; it is over."""

    def wait_open(self, timeout_s: float) -> bool:
        """Wait for the open row; return whether the log reader has read it. `AbandonedError` as `check`."""

    def wait_past(self, position: Position) -> bool:
        """Wait until the open row was read (True) or the log reader is past `position` without it (False)."""

    def closing(self, receipt: ChunkReceipt, closes_at: Position | None) -> None:
        """Note that the rows are visible; the close row is about to be committed, or the window closes at that position."""

    def buffered(self, chunk: BufferedChunk, closes_at: Position | None) -> None:
        """Hand over rows that wait for the close row, which is about to be committed, or for that position."""

    def wait_closed(self) -> None:
        """Wait until the log reader has read the close row; `AbandonedError` as `check`."""


def shown_by_star(connection: Connection, table: TableSchema) -> tuple[str, ...] | None:
    """Return the columns that `*` gives, if the server takes a column of that name for them; None if names are names.

    MySQL before 9 does, however it is quoted and wherever in the list it is; invisible columns are not among them.
    """
    version = server_version(connection)
    is_taken = flavour_of(version) == "mysql" and version_of(version)[0] < _NAMES_ARE_NAMES
    if not is_taken or all(column.name != "*" for column in table.columns):
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table_name(table)} LIMIT 0")  # noqa: S608 - quoted
        return tuple(str(column[0]) for column in cursor.description or ())


def defined_table(access: TableAccess, connection: Connection, assignment: Assignment) -> TableSchema:
    """Return the table as it is now; `TableGoneError` if it was dropped, `KeyChangedError` if its chunks mean nothing now."""
    table = access.schemas(connection, *assignment.table)
    if table is None:
        message = f"{assignment.full_name} no longer exists"
        raise TableGoneError(message)
    if not assignment.scope.fits(table, assignment.key):
        message = f"the key of {assignment.full_name} changed; its chunks are planned again"
        raise KeyChangedError(message)
    return table


def require_open_row(connection: Connection, assignment: Assignment, watch: WindowWatch) -> None:
    """Wait until the open row was read; `SourceError` when the log was read past it without it: then it will never be."""
    end = end_of_binlog(connection, assignment.bound.epoch)
    if not watch.wait_past(end.position):
        message = (
            f"the open row of window {assignment.window} is not in the log, although it was committed "
            f"before {end.file}:{end.pos} and the log was read past that. Is the database of the signal table "
            f"left out of the log (binlog_ignore_db, binlog_do_db)?"
        )
        raise SourceError(message)


class ChunkReader:
    """A reader of chunks over one connection into one writer; owned by one thread."""

    def __init__(
        self,
        writer: ChunkWriter,
        windowing: Windowing,
        access: TableAccess,
        chunk_bytes: int = 64 << 20,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self._writer = writer
        self._windowing = windowing
        self._access = access
        self._buffer: Buffer = np.empty(DEFAULT_BUFFER_BYTES, np.uint8)

    def read(self, connection: Connection, assignment: Assignment, watch: WindowWatch) -> None:
        """Read one chunk as the module says; returns when its close row is committed."""
        opened = dt.datetime.now(dt.UTC)
        row = WindowRow.open(assignment.window, assignment.full_name, assignment.request, opened)
        writes = self._windowing.writes_rows
        low = self._windowing.open(connection, row, assignment.bound)  # 1
        watch.low_chosen(low.position, moves=writes)
        require_no_xa(connection, XA_PATIENCE_S)  # 2
        table = defined_table(self._access, connection, assignment)  # 3
        buffered = self._select(connection, assignment, table, low, watch)  # 4
        if writes and not watch.wait_open(OPEN_PATIENCE_S):  # 5
            self._writer.abort()
            buffered = None
            require_open_row(connection, assignment, watch)
            buffered = self._select(connection, assignment, table, low, watch)
        watch.check()
        closes_at = None if writes else end_of_binlog(connection, assignment.bound.epoch).position
        if buffered is None:  # 6
            watch.closing(self._writer.flush_and_commit(), closes_at)
        else:
            watch.buffered(buffered, closes_at)
        closed = dt.datetime.now(dt.UTC)
        close = WindowRow.close(assignment.window, assignment.full_name, assignment.request, opened, closed)
        self._windowing.close(connection, close)  # 7
        if buffered is not None:
            del buffered
            watch.wait_closed()

    def _select(
        self,
        connection: Connection,
        assignment: Assignment,
        table: TableSchema,
        low: LowWatermark,
        watch: WindowWatch,
    ) -> BufferedChunk | None:
        """Read the rows; return those that wait for their close row, None if they are in the writer."""
        codec = self._access.codecs.codec(table)
        now_ns = time.time_ns()
        context = ChunkContext(
            position=low.position.text,
            snapshot=assignment.snapshot,
            ts_us=now_ns // 1000,
            file=low.file,
            pos=low.pos,
            gtid=None,
            now_ns=now_ns,
        )
        buffered = None
        if assignment.merge == "producer":
            identity = self._access.codecs.identity(table)
            buffered = BufferedChunk(
                assignment.topic,
                codec,
                identity,
                context,
                self._chunk_bytes,
                unique=bool(table.primary_key or table.unique_key) and not identity.is_silent,
            )
        else:
            self._writer.begin(assignment.topic)
        rows = size_bytes = 0
        sql = assignment.scope.query(table, assignment.bounds, shown_by_star(connection, table))
        begun = time.monotonic()
        with BinaryQuery(connection, sql) as query:
            require_columns(table, query.columns)
            for buf, start, end in query.blocks(self._buffer):
                watch.check()
                records = codec.encode_resultset(buf, start, end, context)
                if buffered is None:
                    self._writer.write(assignment.topic, records)
                else:
                    buffered.add(buf, start, end, records.rows)
                rows += records.rows
                size_bytes += end - start
                watch.count(rows)
                assignment.scope.require_few(assignment.full_name, rows)
        watch.measured(ChunkCost(rows, size_bytes, time.monotonic() - begun))
        return buffered
