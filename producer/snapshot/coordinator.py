"""The coordinator: what the log reader has of the snapshot side, and the threads behind it.

Threads::

    log reader (not ours)        on_signal, on_schema_change, request_table; prepare and committed at each checkpoint
    load workers                 have chunks read by the merge job; all but the first are started when that begins
    load guard (one, if set)     holds planning and reading while the source is under load
    planning worker (one)        divides tables into chunks, a bounded distance ahead of the chunk workers
    chunk workers (one per slot) fence the slot's transactional id, then read chunk after chunk
    channel workers              poll Kafka topic and file for signals (`producer.control`)

All of them share the ledger, under one lock that is never held during I/O (`SharedLedger`). Errors of a chunk or of planning
are retried with back-off and end in the table's state. An unforeseen error ends the producer: it is raised at the next
checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from producer.snapshot.blocking import BlockingSnapshots
from producer.snapshot.chunk_worker import ChunkWorker
from producer.snapshot.ledger import LedgerOptions, SnapshotLedger
from producer.snapshot.load_choice import LoadRule
from producer.snapshot.load_guard import LoadGuard, LoadLimits
from producer.snapshot.load_worker import LoadWorker
from producer.snapshot.log_windows import LogWindows
from producer.snapshot.outbox import MarkerDraft, SnapshotWork
from producer.snapshot.planning_worker import PlanningWorker, sizes_of
from producer.snapshot.row_rate import RowRate
from producer.snapshot.shared_ledger import SharedLedger
from producer.snapshot.signal_commands import SnapshotCommands
from producer.snapshot.snapshot_state import TableId
from producer.snapshot.start_requests import INITIAL_REQUEST, StartRequests
from producer.snapshot.strategies.read_only import ReadOnly
from producer.snapshot.strategies.signal_rows import SignalRows
from producer.snapshot.strategies.watermark import SignalTable
from producer.snapshot.table_access import ServerConnector, TableAccess, TopicNames
from producer.snapshot.table_progress import ProgressReport, TableProgress
from producer.snapshot.workers import WorkerThreads
from schemas.avro import avro_field_name
from schemas.loads import LOAD_ANSWER
from schemas.names import adjusted_field_name
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.buffered_chunk import ClosedChunk
    from producer.snapshot.child_rows import ChildRows
    from producer.snapshot.collaborators import Control, Signal
    from producer.snapshot.reader import ChunkWriter
    from producer.snapshot.strategies import Windowing
    from producer.snapshot.strategies.read_only import CommittedOffset
    from producer.snapshot.view import View
    from rowcodec import Records
    from schemas.notifications import Notification
    from schemas.settings import FormatSettings, Settings

__all__ = ["MarkerDraft", "ServerConnector", "SnapshotCoordinator", "SnapshotWork", "TableAccess", "TableProgress"]

log = structlog.get_logger(__name__)

WAITS_FOR_WINDOWS: Final = "it waits for a signal table: set source.signal_table"
GATHER_S: Final = 1.0  # children of one foreign key are gathered so long, to be read together
ASK_INTERVAL_S: Final = 0.005


class SnapshotCoordinator:
    """See the module. The methods marked [log] are called by the log reader's thread alone.

    `writer` opens the chunk writer of a slot. `captured` returns the tables there are. `offset` returns where the log
    reader has committed, for sources that are only read.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        access: TableAccess,
        writer: Callable[[int], ChunkWriter],
        captured: Callable[[], Iterable[TableId]],
        control: Control,
        offset: Callable[[], CommittedOffset] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._access = access
        self._writer = writer
        self._control = control
        self._names = TopicNames(settings.name, settings.kafka.topic_delimiter)
        signal_table = _signal_table(settings)
        windowing = self._windowing = _windowing(settings, signal_table, offset)
        options = LedgerOptions(
            merge=settings.snapshot.merge,
            field_name=lambda name: record_field_name(name, settings.format),
            sets_aside=settings.on_table_error == "set_aside",
            sizes=sizes_of(settings.snapshot),
            loads=LoadRule.of(settings),
            load_workers=0 if settings.why_no_loads else settings.snapshot.loads,
        )
        readers = 0 if windowing is None else settings.snapshot.readers
        ledger = SnapshotLedger(settings.name, readers, now_ms, options=options)
        rows_per_s = settings.snapshot.max_rows_per_s
        rate = RowRate(rows_per_s, clock()) if rows_per_s else None
        shared = self._shared = SharedLedger(ledger, clock, captured, rate)
        commands = SnapshotCommands(ledger.requests, self._captured_names, windows=windowing is not None)
        commands.register_in(control)
        self._windows = LogWindows(
            shared,
            settings.snapshot.watermarking_strategy,
            writes_rows=windowing is None or windowing.writes_rows,
        )
        self._start_requests = StartRequests(
            shared,
            in_one_view=settings.snapshot.consistency == "one_transaction",
            has_windows=windowing is not None,
        )
        self._blocking = BlockingSnapshots(shared, access, signal_table, self._names, settings.snapshot)
        self._progress = ProgressReport(shared)
        self._threads = WorkerThreads(shared)
        self._asked = (float("-inf"), False)
        self._loads_begun = False

    # ---- life

    def restore(self, state: Mapping[str, Any]) -> None:
        """Adopt the documents of the state topic; before anything else is called."""
        self._shared.unfenced = set(range(self._shared.ledger.restore(state)))
        self._control.restore(state)

    def leave_out_others(self, holds_data: Callable[[str, str], bool]) -> None:
        """Read no more of tables that the settings do not name any longer: nobody would follow their changes."""
        shared = self._shared
        with shared.changed:
            shared.ledger.cancel_others(lambda table: holds_data(*shared.table_id(table)))

    def report(self, notification: Notification) -> None:
        """Send a notification with the next checkpoint."""
        with self._shared.changed:
            self._shared.ledger.outbox.notify(notification)
            self._shared.changed.notify_all()

    def start(self) -> None:
        """Make sure that windows can be opened, then start planner and chunk workers.

        Raises `SourceError` with the SQL to run when the signal table is missing and may not be created.
        """
        for worker in self._control.workers():
            self._threads.start(worker.name, worker)
        if self._windowing is None:
            self._fence_only()
            return
        connection = self._access.connect()
        try:
            self._windowing.prepare(connection)
        finally:
            connection.close()
        self._start_chunk_workers(self._windowing, self._settings.snapshot.readers)
        planning = PlanningWorker(self._shared, self._access, self._windowing, self._settings.snapshot)
        self._threads.start("chunk-planner", planning)
        self._start_load_worker(0)
        if LoadLimits.of(self._settings.snapshot.pause_when):
            self._threads.start("source-load", LoadGuard(self._shared, self._access, self._settings.snapshot.pause_when))

    def stop(self) -> None:
        """End all threads, abort open Kafka transactions; windows stay registered till the next start."""
        self._shared.stop()
        self._control.stop()
        self._blocking.close()
        self._threads.stop()

    def _fence_only(self) -> None:
        """Without windows nothing is read, but those of an earlier process must not keep the horizon for ever."""
        with self._shared.changed:
            waiting = self._shared.ledger.requests.wait_for(WAITS_FOR_WINDOWS)
        if waiting:
            log.error("snapshot.impossible", tables=waiting, reason="it was begun", fix="set source.signal_table")
        self._start_chunk_workers(None, 0)

    def _start_chunk_workers(self, windowing: Windowing | None, readers: int) -> None:
        """Start a worker per reader, and one per slot of an earlier process, which is only fenced."""
        shared, chunk_bytes = self._shared, self._settings.snapshot.chunk_bytes
        shared.unfenced |= set(range(readers))
        for number in sorted(shared.unfenced):
            used = windowing if number < readers else None
            worker = ChunkWorker(number, shared, self._access, self._writer, used, self._names, chunk_bytes)
            self._threads.start(f"chunk-reader-{number}", worker)

    def _start_load_worker(self, number: int) -> None:
        """Start a load worker, unless there are to be none. The first one starts the others with its first window."""
        windowing, loads = self._windowing, self._settings.snapshot.loads
        if self._settings.why_no_loads or not isinstance(windowing, SignalRows):
            return
        begun = self._start_more_loads if number == 0 and loads > 1 else _nothing
        worker = LoadWorker(self._shared, self._access, windowing, self._names, begun)
        self._threads.start(f"load-{number}", worker)

    def _start_more_loads(self) -> None:
        if not self._loads_begun:
            self._loads_begun = True
            for number in range(1, self._settings.snapshot.loads):
                self._start_load_worker(number)

    # ---- requests of a start (`StartRequests`)

    def request_initial(self, tables: Iterable[str], request: str = INITIAL_REQUEST) -> None:
        """Ask for the snapshot of a start, once; a restart continues it by itself."""
        self._start_requests.request_initial(tables, request)

    def adopt_view(self, view: View) -> None:
        """Read what was asked for at the first start in this view, which is closed then."""
        self._blocking.adopt(view)

    def restart(self, tables: Iterable[str], request: str, reason: str) -> None:
        """Read all tables again: a stretch of the log is lost, so whatever was read is void."""
        self._start_requests.start_over(tables, request, reason)

    def restart_unfinished(self) -> None:
        """Read unfinished tables from their first chunk: the log continues at another server."""
        self._start_requests.restart_unfinished()

    def initial_ended(self) -> bool:
        """Return whether the snapshot of the first start has ended, and its end is written."""
        return self._start_requests.initial_ended()

    def require_initial(self) -> None:
        """Raise `SourceError` when a table of the first start's snapshot could not be read."""
        self._start_requests.require_initial()

    # ---- requests of the log reader

    def request_table(self, table: str, reason: str) -> None:
        """Ask for a whole-table snapshot because the log does not have all of its changes; asked twice is once.

        Where windows cannot be opened it waits for a start that has a signal table: the sink is wrong until then.
        """
        if self._windowing is None:
            log.error("snapshot.impossible", table=table, reason=reason, fix="set source.signal_table")
        with self._shared.changed:
            waits_for = WAITS_FOR_WINDOWS if self._windowing is None else ""
            self._shared.ledger.requests.submit_automatic(table, reason, waits_for=waits_for)
            self._shared.changed.notify_all()

    def follow_children(self, table: str, rows: ChildRows) -> None:
        """[log] Read these rows, whose parents changed, and sweep what is not found of them."""
        with self._shared.changed:
            self._shared.ledger.followed.follow(table, rows, self._shared.clock() + GATHER_S)
            self._shared.changed.notify_all()

    def follow_table(self, table: str, reason: str) -> None:
        """[log] Read and sweep the whole table: parents of unknown rows changed."""
        with self._shared.changed:
            self._shared.ledger.followed.follow_whole(table, reason)
            self._shared.changed.notify_all()

    # ---- tables that are set aside

    def name_of(self, table: TableId) -> str:
        """[log] Return what a table is called here: `database.table`, unless a table that is published is called so."""
        return self._shared.table_name(table)

    def set_aside(self, table: str, reason: str, report: Notification) -> None:
        """[log] Read nothing of a table that cannot be published, until it is taken up."""
        with self._shared.changed:
            self._shared.ledger.outbox.notify(report)
            self._shared.ledger.set_aside(table, reason)
            self._shared.changed.notify_all()

    def refuse_aside(self, table: str) -> None:
        """[log] Refuse what was asked for of a table that still cannot be published."""
        with self._shared.changed:
            self._shared.ledger.refuse_aside(table)

    def resume_table(self, table: str, report: Notification | None = None) -> None:
        """[log] Read the table again: it is not set aside any more."""
        with self._shared.changed:
            self._shared.ledger.requests.aside.pop(table, None)
            if report is not None:
                self._shared.ledger.outbox.notify(report)
            self._shared.changed.notify_all()

    def asked_for_aside(self) -> set[str]:
        """[log] Return the tables set aside of which a snapshot was asked for since."""
        with self._shared.changed:
            return self._shared.ledger.asked_for_aside()

    def pop_unpublishable(self) -> dict[TableId, str]:
        """[log] Return the tables that a snapshot has found to be unfit to be published, and why; each once."""
        shared = self._shared
        with shared.changed:
            found = shared.ledger.drain_unpublishable()
            return {shared.table_id(name): reason for name, reason in found.items()}

    # ---- the log (`LogWindows`)

    def on_signal(self, row: Signal, op: str, position: Position) -> None:
        """[log] Handle a row change of the signal table, ours included; `position` is its transaction's."""
        windows, shared = self._windows, self._shared
        if row.type == LOAD_ANSWER:
            if op == "c":
                with shared.changed:
                    windows.answer_read(row)
                    shared.changed.notify_all()
            return
        suffix = windows.suffix(row, op)
        if op != "c" and not suffix:
            return
        with shared.changed:
            if suffix and (op != "c" or windows.is_of_a_reader(row.id, suffix)):
                windows.row_read(row.id, suffix, position)
            else:
                self._control.answer(row, position, shared.ledger.outbox)
            shared.changed.notify_all()

    def closed_chunk(self, row: Signal, op: str) -> ClosedChunk | None:
        """[log] Return the rows to be written at this row of the signal table; asked before `on_signal` gets it."""
        return self._windows.closed_chunk(row, op)

    def closed_chunks(self, boundary: Position) -> list[ClosedChunk]:
        """[log] Return the rows to be written at this boundary, where windows close without a close row."""
        return self._windows.closed_chunks(boundary)

    def watches(self, table: str) -> bool:
        """[log] Return whether the keys of the table's changed rows are wanted (`on_touched`)."""
        return self._windows.watches(table)

    def on_touched(self, table: str, keys: Iterable[bytes]) -> None:
        """[log] Remember rows that the log changed in a table with open windows."""
        self._windows.touched(table, keys)

    def on_schema_change(self, table: str, position: Position) -> None:
        """[log] Have chunks read again that were read across a DDL statement of the table."""
        with self._shared.changed:
            self._shared.ledger.table_changed(table, position)
            self._shared.changed.notify_all()

    # ---- checkpoints

    def prepare(self, boundary: Position, now_s: float) -> SnapshotWork:
        """[log] Return what to write into the Kafka transaction that commits `boundary`; `now_s` is on the same clock."""
        shared = self._shared
        self._asked = (now_s, False)
        with shared.changed:
            if shared.fatal is not None:
                raise shared.fatal
            self._windows.forget_ended()
            # first: what signals change and answer is in the transaction that says they were carried out
            channels = self._control.answer_arrived(boundary, shared.ledger.outbox)
            if channels:
                shared.changed.notify_all()
            work = shared.ledger.prepare(boundary, now_s)
            return replace(work, state={**work.state, **channels}) if channels else work

    def committed(self, boundary: Position) -> None:
        """[log] Note that this checkpoint is committed: registrations are durable, readers may start."""
        shared = self._shared
        with shared.changed:
            shared.committed = boundary
            self._windows.registered(shared.ledger.committed())
            shared.changed.notify_all()

    def wants_commit(self, boundary: Callable[[], Position] | None = None) -> bool:
        """[log] Return whether somebody waits for a checkpoint: a registration, an answer, a marker, a window that would close.

        Cheap enough to be asked at every transaction: the answer is up to `ASK_INTERVAL_S` old. `boundary` returns where
        the checkpoint would be.
        """
        shared, now = self._shared, self._shared.clock()
        asked_at, wanted = self._asked
        if wanted or now < asked_at + ASK_INTERVAL_S:
            return wanted
        with shared.changed:
            position = None if boundary is None else boundary()
            wanted = shared.fatal is not None or self._control.has_arrived
            wanted = wanted or shared.ledger.wants_checkpoint(now, position)
        self._asked = (now, wanted)
        return wanted

    def encode_notification(self, notification: Notification) -> tuple[bytes, bytes]:
        """[log] Return key and value of a notification's record."""
        return self._control.encode(notification)

    # ---- views

    def approach_view(self, read: Position) -> Position | None:
        """[log] Return where reading is to stop for a snapshot in one view, if anywhere; the log was read up to `read`."""
        return self._blocking.approach(read)

    def rows_of_view(self, boundary: Position) -> Generator[tuple[str, Records], None, None]:
        """[log] Yield rows by topic, to be published at `boundary`, the position of the view; to be closed."""
        return self._blocking.rows(boundary)

    # ---- status

    @property
    def waits_because(self) -> str:
        """Why chunk readers wait although there is something to read: the source is under load; "" while they do not."""
        with self._shared.changed:
            turns = self._shared.ledger.turns
            return turns.waits_because if turns.waits_because and turns.has_work() else ""

    def progress(self) -> list[TableProgress]:
        """Return every table of every remembered request, in order of arrival."""
        return self._progress.tables()

    def _captured_names(self) -> list[str]:
        return [".".join(table) for table in self._shared.captured()]


def _nothing() -> None:
    """Do nothing."""


def record_field_name(column: str, wire: FormatSettings) -> str:
    """Return what a column is called in records, and so in sinks."""
    name = adjusted_field_name(column, wire.field_names)
    return avro_field_name(name) if wire.type == "avro" else name


def _signal_table(settings: Settings) -> SignalTable | None:
    """Return the signal table that may be written to, None without one."""
    names = settings.source.signal_names
    return None if names is None or settings.source.read_only else SignalTable(*names)


def _windowing(
    settings: Settings, signal_table: SignalTable | None, offset: Callable[[], CommittedOffset] | None
) -> Windowing | None:
    """Return the windowing strategy of the settings, None where windows cannot be opened."""
    if settings.source.read_only and offset is not None:
        return ReadOnly(offset)
    if signal_table is not None:
        return SignalRows(signal_table, settings.snapshot.watermarking_strategy)
    return None
