"""The chunk reader: one chunk from its registered window to its close row.

The protocol, for one window whose bound is durable (DESIGN §4, 2)::

    1. low := end of the binlog, never below the bound; commit the open row: the barrier (`Windowing.open`)
    2. no XA transaction that is prepared now may still be when the rows are read
    3. the table's columns, read now, choose the codec; the key must be the one the plan rests on
    4. SELECT, its read view opened after the barrier; blocks of raw rows become records in the Kafka
       transaction of the reader's slot
    5. wait until the log reader has met the open row: only now the barrier counts. If that takes long, the
       Kafka transaction is aborted and step 4 repeated once the row was met: low stays true for ever
    6. commit the Kafka transaction: the rows are visible
    7. commit the close row

With `merge: producer` the raw rows wait in memory instead (`HeldChunk`): in step 6 they are handed over, and after
step 7 the reader waits until the log reader has met the close row and written them, so that no more chunks wait than
there are readers.

Where nothing is written to the source, low is taken otherwise (`windowing`), steps 5 and 7 fall away, and with step 6
goes the place where the log ended when the rows had been read: the log reader closes the window there.

A DDL of the table between low and the close row makes the window void; its rows do no harm. Whatever goes
wrong is raised; the caller aborts and fences the slot, and the chunk is read again in a new window.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np

from producer.codec import ChunkContext
from producer.snapshot.child_rows import ChildrenUnreadableError
from producer.snapshot.documents import TableId, key_identity
from producer.snapshot.held import HeldChunk
from producer.snapshot.ranges import KeyRange, chunk_query, table_name
from producer.snapshot.resultset import require_columns
from producer.snapshot.watermark import XA_PATIENCE_S, Low, WindowRow, end_of_binlog, require_no_xa
from producer.snapshot.windowing import Windowing, end_of_reading
from producer.source.connection import server_version
from producer.source.facts import flavour_of, version_of
from producer.source.query import DEFAULT_BUFFER_BYTES, BinaryQuery, Buffer
from schemas.columns import TableSchema
from schemas.errors import SourceError, TidemarkError
from schemas.position import Position

if TYPE_CHECKING:
    from producer.codec import Records
    from producer.kafka.codecs import RowIdentity
    from producer.snapshot.child_rows import ChildRows
    from producer.snapshot.sink import ChunkReceipt, ChunkSink
    from producer.source.connection import Connection

OPEN_PATIENCE_S: Final = 20.0
MAX_CHILDREN: Final = 500_000
_NAMES_ARE_NAMES: Final = 9
"""Rows of one window by their parents; beyond that the table is read whole, in chunks."""
SnapshotMark = Literal["incremental", "true"]
Merge = Literal["spark", "producer"]


class AbandonedError(TidemarkError):
    """The window is void (stop, DDL, shutdown): give it up; the chunk itself is not to blame."""


class KeyChangedError(TidemarkError):
    """The table's key is not the one its chunks were planned for."""


class TableGoneError(TidemarkError):
    """The table no longer exists."""


class ChunkCodec(Protocol):
    """Raw row packets in, finished records out: `producer.codec.TableCodec`."""

    def encode_resultset(self, buf: Buffer, start: int, end: int, ctx: ChunkContext) -> Records:
        """Encode whole row packets."""


class CodecSource(Protocol):
    """Codecs of table versions, cached, for all readers: `producer.kafka.codecs.CodecFactory`."""

    def codec(self, table: TableSchema) -> ChunkCodec:
        """The codec of this very version."""

    def identity(self, table: TableSchema) -> RowIdentity:
        """What tells its rows apart."""


SchemaReader = Callable[["Connection", str, str], TableSchema | None]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a reader is told to do. `key` is what the chunk's range rests on.

    `merge` says who merges the rows with the log: "spark" (they go to the snapshot topic) or "producer".
    `surrogate` is the column a signal chose to cut the table by. With `children` these rows are read, and no others.
    """

    window: str
    request: str
    table: TableId
    topic: str
    chunk: int
    bounds: KeyRange
    condition: str | None
    bound: Position
    key: tuple[tuple[str, str, str], ...]
    snapshot: SnapshotMark
    merge: Merge = "spark"
    surrogate: str | None = None
    children: ChildRows | None = None

    @property
    def full_name(self) -> str:
        """`database.table`."""
        return ".".join(self.table)


class WindowWatch(Protocol):
    """What a reader hears from, and tells, the rest of the process about its window."""

    def check(self) -> None:
        """Raise `AbandonedError` when the window is void."""

    def low_taken(self, low: Position) -> None:
        """Low is chosen; `AbandonedError` when a DDL of the table stands behind it already."""

    def count(self, rows: int) -> None:
        """So many rows were read so far."""

    def wait_open(self, timeout_s: float) -> bool:
        """Whether the log reader has met the open row; waits for it. `AbandonedError` as `check`."""

    def wait_past(self, position: Position) -> bool:
        """Wait until the open row was met (True) or the log reader is past `position` without it (False)."""

    def closing(self, receipt: ChunkReceipt, closes_at: Position | None) -> None:
        """The rows are visible; the close row is about to be committed, or the window closes at that place."""

    def holding(self, chunk: HeldChunk, closes_at: Position | None) -> None:
        """The rows wait for the close row, which is about to be committed, or for that place."""

    def wait_closed(self) -> None:
        """Wait until the log reader has met the close row; `AbandonedError` as `check`."""


def shown_by_star(connection: Connection, table: TableSchema) -> tuple[str, ...] | None:
    """The columns that `*` gives, where the server takes a column of that name for them; None where names are names.

    MySQL before 9 does, however it is quoted and wherever in the list it stands; invisible columns are not among them.
    """
    version = server_version(connection)
    is_taken = flavour_of(version) == "mysql" and version_of(version)[0] < _NAMES_ARE_NAMES
    if not is_taken or all(column.name != "*" for column in table.columns):
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table_name(table)} LIMIT 0")  # noqa: S608 - quoted
        return tuple(str(column[0]) for column in cursor.description or ())


class ChunkReader:
    """Reads chunks over one connection into one sink; owned by one thread."""

    def __init__(
        self,
        sink: ChunkSink,
        windowing: Windowing,
        schemas: SchemaReader,
        codecs: CodecSource,
        chunk_bytes: int = 64 << 20,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self._sink = sink
        self._windowing = windowing
        self._schemas = schemas
        self._codecs = codecs
        self._buffer: Buffer = np.empty(DEFAULT_BUFFER_BYTES, np.uint8)

    def read(self, connection: Connection, assignment: Assignment, watch: WindowWatch) -> None:
        """Read one chunk as the module says; returns when its close row is committed."""
        opened = dt.datetime.now(dt.UTC)
        row = WindowRow.open(assignment.window, assignment.full_name, assignment.request, opened)
        writes = self._windowing.writes_rows
        low = self._windowing.open(connection, row, assignment.bound)  # 1
        watch.low_taken(low.position)
        require_no_xa(connection, XA_PATIENCE_S)  # 2
        table = self._table(connection, assignment)  # 3
        held = self._select(connection, assignment, table, low, watch)  # 4
        if writes and not watch.wait_open(OPEN_PATIENCE_S):  # 5
            self._sink.abort()
            held = None
            self._wait_for_the_log(connection, assignment, watch)
            held = self._select(connection, assignment, table, low, watch)
        watch.check()
        closes_at = None if writes else end_of_reading(connection, assignment.bound.epoch)
        if held is None:  # 6
            watch.closing(self._sink.flush_and_commit(), closes_at)
        else:
            watch.holding(held, closes_at)
        closed = dt.datetime.now(dt.UTC)
        close = WindowRow.close(assignment.window, assignment.full_name, assignment.request, opened, closed)
        self._windowing.close(connection, close)  # 7
        if held is not None:
            del held
            watch.wait_closed()

    def _table(self, connection: Connection, assignment: Assignment) -> TableSchema:
        table = self._schemas(connection, *assignment.table)
        if table is None:
            message = f"{assignment.full_name} no longer exists"
            raise TableGoneError(message)
        if assignment.children is None and key_identity(table, assignment.surrogate) != assignment.key:
            message = f"the key of {assignment.full_name} changed; its chunks are planned anew"
            raise KeyChangedError(message)
        return table

    def _select(
        self,
        connection: Connection,
        assignment: Assignment,
        table: TableSchema,
        low: Low,
        watch: WindowWatch,
    ) -> HeldChunk | None:
        """Read the rows; those that wait for their close row, None for those in the sink."""
        codec = self._codecs.codec(table)
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
        held = None
        if assignment.merge == "producer":
            identity = self._codecs.identity(table)
            held = HeldChunk(
                assignment.topic,
                codec,
                identity,
                context,
                self._chunk_bytes,
                unique=bool(table.primary_key or table.unique_key) and not identity.is_silent,
            )
        else:
            self._sink.begin(assignment.topic)
        rows = 0
        shown = shown_by_star(connection, table)
        if assignment.children is None:
            sql = chunk_query(table, assignment.bounds, assignment.condition, assignment.surrogate, shown)
        else:
            sql = assignment.children.query(table, shown)
        with BinaryQuery(connection, sql) as query:
            require_columns(table, query.columns)
            for buf, start, end in query.blocks(self._buffer):
                watch.check()
                records = codec.encode_resultset(buf, start, end, context)
                if held is None:
                    self._sink.write(assignment.topic, records)
                else:
                    held.add(buf, start, end, records.rows)
                rows += records.rows
                watch.count(rows)
                if assignment.children is not None and rows > MAX_CHILDREN:
                    message = f"{assignment.full_name}: more than {MAX_CHILDREN:,} children of the parents that changed"
                    raise ChildrenUnreadableError(message)
        return held

    def _wait_for_the_log(self, connection: Connection, assignment: Assignment, watch: WindowWatch) -> None:
        """Wait without holding a Kafka transaction; a log reader that is past the open row never met it."""
        end = end_of_binlog(connection, assignment.bound.epoch)
        if not watch.wait_past(end.position):
            message = (
                f"the open row of window {assignment.window} is not in the log, although it was committed "
                f"before {end.file}:{end.pos} and the log was read past that. Is the database of the signal table "
                f"left out of the log (binlog_ignore_db, binlog_do_db)?"
            )
            raise SourceError(message)
