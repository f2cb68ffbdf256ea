"""The planning worker: one thread that looks at tables and divides them into chunks, ahead of the chunk workers."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_errors import described
from producer.snapshot.pace import ChunkSizes
from producer.snapshot.planner import TablePlanner, estimated_rows
from producer.snapshot.ranges import SurrogateKeyError, key_identity
from producer.snapshot.reader import AbandonedError
from producer.snapshot.scope import FilterRefusedError, scope_of
from producer.snapshot.shared_ledger import POLL_S, SharedLedger
from producer.snapshot.snapshot_state import ReadTask
from producer.snapshot.table_access import EXPECTED, heals_by_itself
from producer.snapshot.watermark import XA_PATIENCE_S, LowWatermark, WindowRow, end_of_binlog, require_no_xa
from producer.snapshot.windowing import Windowing
from producer.snapshot.workers import ConnectedWorker
from schemas.errors import (
    ConfigError,
    PreparedXaError,
    RegistryError,
    SchemaMismatchError,
    SourceError,
    UnsupportedTypeError,
)
from schemas.notifications import ScanStatus
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.table_access import TableAccess
    from schemas.columns import TableSchema
    from schemas.settings import SnapshotSettings

log = structlog.get_logger(__name__)

BARRIER_PATIENCE_S: Final = 20.0


class PlanningWorker(ConnectedWorker):
    """A worker that plans whatever table the ledger says is next; owned by one thread."""

    def __init__(
        self, shared: SharedLedger, access: TableAccess, windowing: Windowing, snapshot: SnapshotSettings
    ) -> None:
        super().__init__(shared, access)
        self._windowing = windowing
        self._snapshot = snapshot
        self._sizes = sizes_of(snapshot)
        self._load_sizes = load_sizes_of(snapshot)
        self._planner: tuple[tuple[str, int], TablePlanner] | None = None

    @override
    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                self._plan(task)
            except AbandonedError:
                continue
            except EXPECTED as error:
                self.break_off()
                self._failed(task, error)

    @override
    def break_off(self) -> None:
        self._planner = None
        super().break_off()

    def _next(self) -> ReadTask | None:
        shared = self._shared
        with shared.changed:
            while not shared.stopping:
                task = None if shared.unfenced else shared.ledger.turns.to_plan(shared.clock())
                if task is not None:
                    return task
                shared.changed.wait(POLL_S)
        return None

    def _plan(self, task: ReadTask) -> None:
        """Plan one chunk; the first time also look at the table."""
        shared = self._shared
        with shared.changed:
            generation, plan, rows = task.generation, task.plan, task.chunk_rows
        connection = self._connected()
        which = (task.key, generation)
        if self._planner is None or self._planner[0] != which:
            planner = self._begin(connection, task, generation)
            if planner is None:
                return
            self._planner = (which, planner)
        result = self._planner[1].next(plan, rows)
        with shared.changing() as ledger:
            if result is not None:
                ledger.tasks.planned(task, generation, *result, rows)

    def _begin(self, connection: Connection, task: ReadTask, generation: int) -> TablePlanner | None:
        """Return the planner of a table that can be divided; else the task is refused, or its old plan thrown away."""
        table = self._table(connection, task, generation)
        if table is None or not self._is_plannable(task, generation, table):
            return None
        shared, scope = self._shared, scope_of(task)
        try:
            scope.require_readable(connection, table)
        except FilterRefusedError as error:
            with shared.changed:
                shared.ledger.tasks.refuse(task, ScanStatus.SQL_EXCEPTION, str(error))
            return None
        rows, _ = estimated_rows(connection, table)
        with shared.changed:
            shared.ledger.tasks.planning(task, scope.estimate(rows))
            shared.ledger.loads.choose(task)
            sizes = self._load_sizes if task.is_loaded else self._sizes
        return TablePlanner(
            connection,
            table,
            sizes,
            lambda: self._barrier(connection, task),
            scope.surrogate,
        )

    def _table(self, connection: Connection, task: ReadTask, generation: int) -> TableSchema | None:
        """Return the table as it is now; None if it does not exist or cannot be published: its task ends."""
        shared = self._shared
        try:
            table = self._access.schemas(connection, *shared.table_id(task.table))
            if table is not None:
                self._access.codecs.codec(table)
        except (UnsupportedTypeError, ConfigError, SchemaMismatchError, RegistryError) as error:
            with shared.changed:
                if shared.ledger.cannot_publish(task, error, described(error)):
                    return None
            raise
        if table is None:
            with shared.changing() as ledger:
                if task.generation == generation and not task.state.final:
                    ledger.tasks.refuse(task, ScanStatus.UNKNOWN_SCHEMA, f"{task.table} does not exist")
        return table

    def _is_plannable(self, task: ReadTask, generation: int, table: TableSchema) -> bool:
        """Return whether the table can be divided; else the task is refused, or its plan is thrown away."""
        with self._shared.changing() as ledger:
            if task.generation != generation or task.state.final:
                return False
            try:
                key = key_identity(table, task.surrogate)
            except SurrogateKeyError as error:
                ledger.tasks.refuse(task, ScanStatus.SQL_EXCEPTION, str(error))
                return False
            if task.merge != "producer" and not table.record_key:
                ledger.tasks.refuse(task, ScanStatus.NO_PRIMARY_KEY, no_primary_key(task.table))
                return False
            if task.plan.key and task.plan.key != key:
                ledger.tasks.replan(task)
                return False
        return True

    def _barrier(self, connection: Connection, task: ReadTask) -> LowWatermark:
        """Return a low watermark behind which rows are invisible, or in the log to come; its row, if one is written, was read."""
        shared = self._shared
        shared.wait_until(lambda: shared.committed is not None)
        barrier = str(uuid.uuid4())
        with shared.changed:
            assert shared.committed is not None
            bound = shared.committed
            shared.barriers[barrier] = False
        try:
            row = WindowRow.open(barrier, task.table, task.request, datetime.now(UTC))
            low = self._windowing.open(connection, row, bound)
            require_no_xa(connection, XA_PATIENCE_S)
            if not self._windowing.writes_rows:
                return low
            if not shared.wait_until(lambda: shared.barriers[barrier], BARRIER_PATIENCE_S):
                end = end_of_binlog(connection, self._access.epoch).position
                shared.wait_until(lambda: shared.barriers[barrier] or shared.is_past(end))
            with shared.changed:
                is_read = shared.barriers[barrier]
            if is_read and self._snapshot.watermarking_strategy == "insert_delete":
                self._windowing.close(connection, row)
        finally:
            with shared.changed:
                del shared.barriers[barrier]
        if not is_read:
            message = (
                "a window row was committed to the signal table and is not in the log; is its "
                "database left out of the log (binlog_ignore_db, binlog_do_db)?"
            )
            raise SourceError(message)
        return low

    def _failed(self, task: ReadTask, error: BaseException) -> None:
        words = described(error)
        log.warning("snapshot.planning_failed", request=task.request, table=task.table, error=words)
        heals, waits = heals_by_itself(error), isinstance(error, PreparedXaError)
        with self._shared.changing() as ledger:
            ledger.tasks.planning_failed(task, words, self._shared.clock(), heals=heals, waits=waits)


def sizes_of(snapshot: SnapshotSettings) -> ChunkSizes:
    """Return the rule for the sizes of chunks. None has more rows than a second of the rate: readers do not read in bursts."""
    return ChunkSizes(
        most_rows=min(snapshot.chunk_rows, snapshot.max_rows_per_s or snapshot.chunk_rows),
        target_ms=snapshot.chunk_target_ms,
        target_bytes=snapshot.chunk_target_bytes,
        most_bytes=snapshot.chunk_bytes,
    )


def load_sizes_of(snapshot: SnapshotSettings) -> ChunkSizes:
    """Return the rule for the sizes of chunks that the merge job reads: their cost is not measured, so they stay as planned."""
    most_rows = min(snapshot.load_rows, snapshot.max_rows_per_s or snapshot.load_rows)
    return ChunkSizes(most_rows=most_rows, most_bytes=snapshot.chunk_bytes)


def no_primary_key(table: str) -> str:
    """Return why a table without a key is not read for the merge job, and the remedies."""
    return (
        f"{table} has no PRIMARY KEY and no unique key of NOT NULL columns, so its rows can't be merged with the "
        f"log by a reader; its changes in the log are published all the same. Add a key (ALTER TABLE ... ADD PRIMARY "
        f'KEY; it is read by itself then), leave the table out (source.exclude_tables), or ask with {{"merge": "producer"}}'
    )
