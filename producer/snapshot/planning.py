"""The planning loop: one thread that looks at tables and cuts them into chunks, ahead of the slots."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.board import POLL_S, Board
from producer.snapshot.documents import TableTask, key_identity
from producer.snapshot.filters import FilterRefusedError, require_filter
from producer.snapshot.planner import TablePlanner, estimated_rows
from producer.snapshot.ranges import SurrogateKeyError
from producer.snapshot.reader import AbandonedError, CodecSource, SchemaReader
from producer.snapshot.slots import EXPECTED, heals_by_itself, in_words
from producer.snapshot.watermark import XA_PATIENCE_S, Low, WindowRow, end_of_binlog, require_no_xa
from producer.snapshot.windowing import Windowing
from producer.source.connection import close_quietly
from schemas.errors import (
    ConfigError,
    PreparedXaError,
    RegistryError,
    SchemaMismatchError,
    SourceError,
    UnsupportedTypeError,
)
from schemas.notifications import TableStatus

if TYPE_CHECKING:
    from producer.source.connection import Connection
    from schemas.settings import SnapshotSettings

log = structlog.get_logger(__name__)

BARRIER_PATIENCE_S: Final = 20.0


class PlanningLoop:
    """Plans whatever table the ledger says is next; owned by one thread."""

    def __init__(
        self,
        board: Board,
        source: Callable[[], Connection],
        windowing: Windowing,
        schemas: SchemaReader,
        codecs: CodecSource,
        snapshot: SnapshotSettings,
        epoch: int,
    ) -> None:
        self._board = board
        self._source = source
        self._windowing = windowing
        self._schemas = schemas
        self._codecs = codecs
        self._snapshot = snapshot
        self._epoch = epoch
        self._connection: Connection | None = None
        self._planner: tuple[tuple[str, int], TablePlanner] | None = None

    def run(self) -> None:
        """Plan until the board stops."""
        try:
            while (task := self._next()) is not None:
                try:
                    self._plan(task)
                except AbandonedError:
                    continue
                except EXPECTED as error:
                    self.break_off()
                    self._failed(task, error)
        finally:
            self.break_off()

    def break_off(self) -> None:
        """Close the connection, also under a query that waits for it."""
        connection, self._connection = self._connection, None
        self._planner = None
        if connection is not None:
            close_quietly(connection)

    def _next(self) -> TableTask | None:
        board = self._board
        with board.changed:
            while not board.stopping:
                task = None if board.unfenced else board.ledger.to_plan(board.clock())
                if task is not None:
                    return task
                board.changed.wait(POLL_S)
        return None

    def _plan(self, task: TableTask) -> None:
        """Cut one chunk off; the first time also look at the table."""
        board = self._board
        with board.changed:
            generation, plan = task.generation, task.plan
        connection = self._connection = self._connection or self._source()
        which = (task.key, generation)
        if self._planner is None or self._planner[0] != which:
            planner = self._begin(connection, task, generation)
            if planner is None:
                return
            self._planner = (which, planner)
        result = self._planner[1].next(plan)
        with board.changed:
            if result is not None:
                board.ledger.planned(task, generation, *result)
            board.changed.notify_all()

    def _begin(self, connection: Connection, task: TableTask, generation: int) -> TablePlanner | None:
        """The planner of a table that can be cut; else the table is refused, or its old plan thrown away."""
        board = self._board
        try:
            table = self._schemas(connection, *board.table_id(task.table))
            if table is not None:
                self._codecs.codec(table)
        except (UnsupportedTypeError, ConfigError, SchemaMismatchError, RegistryError) as error:
            with board.changed:
                if board.ledger.cannot_publish(task, error, in_words(error)):
                    return None
            raise
        with board.changed:
            board.changed.notify_all()
            if task.generation != generation or task.state.final:
                return None
            if table is None:
                board.ledger.refuse(task, TableStatus.UNKNOWN_SCHEMA, f"{task.table} does not exist")
                return None
            try:
                key = key_identity(table, task.surrogate)
            except SurrogateKeyError as error:
                board.ledger.refuse(task, TableStatus.SQL_EXCEPTION, str(error))
                return None
            if task.merge != "producer" and not table.record_key:
                board.ledger.refuse(task, TableStatus.NO_PRIMARY_KEY, no_primary_key(task.table))
                return None
            if task.plan.key and task.plan.key != key:
                board.ledger.replan(task)
                return None
        try:
            require_filter(connection, table, task.condition)
        except FilterRefusedError as error:
            with board.changed:
                board.ledger.refuse(task, TableStatus.SQL_EXCEPTION, str(error))
            return None
        rows, _ = estimated_rows(connection, table)
        with board.changed:
            board.ledger.planning(task, None if task.condition else rows)
        return TablePlanner(
            connection,
            table,
            self._snapshot.chunk_rows,
            lambda: self._barrier(connection, task),
            self._snapshot.chunk_bytes,
            task.surrogate,
        )

    def _barrier(self, connection: Connection, task: TableTask) -> Low:
        """A low behind which rows are invisible or in the log to come; a window row was met there, if any is written."""
        board = self._board
        board.wait_until(lambda: board.committed is not None)
        barrier = str(uuid.uuid4())
        if not self._windowing.writes_rows:
            with board.changed:
                assert board.committed is not None
                bound = board.committed
            row = WindowRow.open(barrier, task.table, task.request, datetime.now(UTC))
            low = self._windowing.open(connection, row, bound)
            require_no_xa(connection, XA_PATIENCE_S)
            return low
        with board.changed:
            assert board.committed is not None
            bound = board.committed
            board.barriers[barrier] = False
        try:
            row = WindowRow.open(barrier, task.table, task.request, datetime.now(UTC))
            low = self._windowing.open(connection, row, bound)
            require_no_xa(connection, XA_PATIENCE_S)
            if not board.wait_until(lambda: board.barriers[barrier], BARRIER_PATIENCE_S):
                end = end_of_binlog(connection, self._epoch).position
                board.wait_until(lambda: board.barriers[barrier] or board.is_past(end))
            with board.changed:
                met = board.barriers[barrier]
            if met and self._snapshot.watermarking_strategy == "insert_delete":
                self._windowing.close(connection, row)
        finally:
            with board.changed:
                del board.barriers[barrier]
        if not met:
            message = (
                "a window row was committed to the signal table and is not in the log; is its "
                "database left out of the log (binlog_ignore_db, binlog_do_db)?"
            )
            raise SourceError(message)
        return low

    def _failed(self, task: TableTask, error: BaseException) -> None:
        words = in_words(error)
        log.warning("snapshot.planning_failed", request=task.request, table=task.table, error=words)
        board = self._board
        with board.changed:
            heals, waits = heals_by_itself(error), isinstance(error, PreparedXaError)
            board.ledger.planning_failed(task, words, board.clock(), heals=heals, waits=waits)
            board.changed.notify_all()


def no_primary_key(table: str) -> str:
    """Why a table without a key is not read for the merge job, and what to do about it."""
    return (
        f"{table} has no PRIMARY KEY and no unique key of NOT NULL columns, so its rows can't be merged with the "
        f"log by a reader; its changes in the log are published all the same. Add a key (ALTER TABLE ... ADD PRIMARY "
        f'KEY), or ask with {{"merge": "producer"}}'
    )
