"""The coordinator: the parts of the snapshot side, connected; its checkpoints; and the threads behind it.

The rest of the producer addresses the parts directly: `shared` (the ledger under its lock), `requests`, `windows`, `views`,
`progress` and `control`. Threads::

    log reader (not ours)        `windows`, `views`, `requests`; prepare and committed at each checkpoint
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
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mysqlio.signal_table import SignalTable
from producer.snapshot.asked_loads import LoadRule
from producer.snapshot.blocking import BlockingSnapshots
from producer.snapshot.chunk_worker import ChunkWorker
from producer.snapshot.ledger import LedgerOptions, SnapshotLedger
from producer.snapshot.load_guard import LoadGuard, LoadLimits
from producer.snapshot.load_worker import LoadWorker
from producer.snapshot.log_windows import LogWindows
from producer.snapshot.outbox import SnapshotWork
from producer.snapshot.own_requests import OwnRequests
from producer.snapshot.pace import RowRate
from producer.snapshot.planning_worker import PlanningWorker, sizes_of
from producer.snapshot.shared_ledger import SharedLedger
from producer.snapshot.signal_commands import SnapshotCommands
from producer.snapshot.snapshot_state import ReadTask, State
from producer.snapshot.table_access import TableAccess, TopicNames
from producer.snapshot.windowing import ReadOnly, RowWindowing
from producer.snapshot.workers import WorkerThreads
from schemas.avro import avro_field_name
from schemas.identity import TableId
from schemas.names import adjusted_field_name
from schemas.position import Position

if TYPE_CHECKING:
    from mysqlio.server_facts import LogPosition
    from producer.control.signal_control import SignalControl
    from producer.snapshot.reader import ChunkWriter
    from producer.snapshot.windowing import Windowing
    from schemas.settings import FormatSettings, Settings

RATE_WINDOW_S: Final = 10.0
ASK_INTERVAL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far one table of one request is. `rate` is rows per second of late, `eta_s` a guess from it; `via` as in its document."""

    request: str
    table: str
    state: str
    rows: int
    estimate: int | None
    chunks_done: int
    chunks_open: int
    planned: bool
    rate: float
    eta_s: float | None
    status: str
    error: str
    via: str = "kafka"
    via_reason: str = ""


class ProgressReport:
    """The progress of every remembered table; it remembers samples of rows for the rates."""

    def __init__(self, shared: SharedLedger) -> None:
        self._shared = shared
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def __call__(self) -> list[SnapshotProgress]:
        """Return the progress of every table of every remembered request, in order of arrival."""
        with self._shared.changed:
            return [self._of(task) for task in self._shared.ledger.tasks.values()]

    def _of(self, task: ReadTask) -> SnapshotProgress:
        windows = [chunk.window for chunk in task.chunks.values() if chunk.window is not None]
        rows = task.rows + sum(window.rows_read for window in windows)
        rate = 0.0 if task.state.final else self._rate(task.key, rows)
        left = None if task.estimate is None or task.state.final else max(0, task.estimate - rows)
        paused = self._shared.ledger.requests[task.request].state is State.PAUSED
        return SnapshotProgress(
            request=task.request,
            table=task.table,
            state=str(State.PAUSED if paused and not task.state.final else task.state),
            rows=rows,
            estimate=task.estimate,
            chunks_done=task.chunks_done,
            chunks_open=len(task.chunks),
            planned=task.plan.complete,
            rate=rate,
            eta_s=None if left is None or rate <= 0 else left / rate,
            status=task.status,
            error=task.error,
            via=task.via,
            via_reason=task.via_reason,
        )

    def _rate(self, key: str, rows: int) -> float:
        now = self._shared.clock()
        samples = self._samples.setdefault(key, deque())
        samples.append((now, rows))
        while len(samples) > 2 and samples[0][0] < now - RATE_WINDOW_S:
            samples.popleft()
        then, before = samples[0]
        return max(0.0, (rows - before) / (now - then)) if now > then else 0.0


class SnapshotCoordinator:
    """See the module. `windows`, `views` and the methods marked [log] are for the log reader's thread alone.

    `writer` opens the chunk writer of a slot. `captured` returns the tables there are. `committed` returns the position that the
    log reader has committed, for sources that are only read.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        access: TableAccess,
        writer: Callable[[int], ChunkWriter],
        captured: Callable[[], Iterable[TableId]],
        control: SignalControl,
        committed: Callable[[], LogPosition] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._access = access
        self._writer = writer
        self.control = control
        self._names = TopicNames(settings.name, settings.kafka.topic_delimiter)
        signal_table = _signal_table(settings)
        windowing = self._windowing = _windowing(settings, signal_table, committed)
        options = LedgerOptions(
            merge=settings.snapshot.merge,
            field_name=lambda name: record_field_name(name, settings.format),
            sets_aside=settings.sets_tables_aside,
            sizes=sizes_of(settings.snapshot),
            loads=LoadRule.of(settings),
            load_workers=0 if settings.why_no_loads else settings.snapshot.loads,
        )
        readers = 0 if windowing is None else settings.snapshot.readers
        ledger = SnapshotLedger(settings.name, readers, now_ms, options=options)
        rows_per_s = settings.snapshot.max_rows_per_s
        rate = RowRate(rows_per_s, clock()) if rows_per_s else None
        shared = self.shared = SharedLedger(ledger, clock, captured, rate)
        commands = SnapshotCommands(ledger.requests, self._captured_names, windows=windowing is not None)
        commands.register_in(control.commands)
        self.windows = LogWindows(
            shared,
            control.commands,
            settings.snapshot.watermarking_strategy,
            writes_rows=windowing is None or windowing.writes_rows,
        )
        self.requests = OwnRequests(
            shared,
            in_one_view=settings.snapshot.consistency == "one_transaction",
            has_windows=windowing is not None,
        )
        self.views = BlockingSnapshots(shared, access, signal_table, self._names, settings.snapshot)
        self.progress = ProgressReport(shared)
        self._threads = WorkerThreads(shared)
        self._asked = (float("-inf"), False)
        self._loads_begun = False

    # ---- life

    def restore(self, state: Mapping[str, Any]) -> None:
        """Adopt the documents of the state topic; before anything else is called."""
        self.shared.unfenced = set(range(self.shared.ledger.restore(state)))
        self.control.inbox.restore(state)

    def start(self) -> None:
        """Make sure that windows can be opened, then start planner and chunk workers.

        Raises `SourceError` with the SQL to run when the signal table is missing and may not be created.
        """
        for worker in self.control.inbox.workers():
            self._threads.start(worker.name, worker)
        if self._windowing is None:
            # nothing is read, but the windows of an earlier process must not keep the horizon for ever
            self.requests.wait_for_windows()
            self._start_chunk_workers(None, 0)
            return
        connection = self._access.connect()
        try:
            self._windowing.prepare(connection)
        finally:
            connection.close()
        self._start_chunk_workers(self._windowing, self._settings.snapshot.readers)
        planning = PlanningWorker(self.shared, self._access, self._windowing, self._settings.snapshot)
        self._threads.start("chunk-planner", planning)
        self._start_load_worker(0)
        if LoadLimits.of(self._settings.snapshot.pause_when):
            self._threads.start("source-load", LoadGuard(self.shared, self._access, self._settings.snapshot.pause_when))

    def stop(self) -> None:
        """End all threads, abort open Kafka transactions; windows stay registered till the next start."""
        self.shared.stop()
        self.control.inbox.stop()
        self.views.close()
        self._threads.stop()

    def _start_chunk_workers(self, windowing: Windowing | None, readers: int) -> None:
        """Start a worker per reader, and one per slot of an earlier process, which is only fenced."""
        shared, chunk_bytes = self.shared, self._settings.snapshot.chunk_bytes
        shared.unfenced |= set(range(readers))
        for number in sorted(shared.unfenced):
            used = windowing if number < readers else None
            worker = ChunkWorker(number, shared, self._access, self._writer, used, self._names, chunk_bytes)
            self._threads.start(f"chunk-reader-{number}", worker)

    def _start_load_worker(self, number: int) -> None:
        """Start a load worker, unless there are to be none. The first one starts the others with its first window."""
        windowing, loads = self._windowing, self._settings.snapshot.loads
        if self._settings.why_no_loads or not isinstance(windowing, RowWindowing):
            return
        begun = self._start_more_loads if number == 0 and loads > 1 else lambda: None
        worker = LoadWorker(self.shared, self._access, windowing, self._names, begun)
        self._threads.start(f"load-{number}", worker)

    def _start_more_loads(self) -> None:
        if not self._loads_begun:
            self._loads_begun = True
            for number in range(1, self._settings.snapshot.loads):
                self._start_load_worker(number)

    # ---- checkpoints

    def prepare(self, boundary: Position, now_s: float) -> SnapshotWork:
        """[log] Return the contribution to the Kafka transaction that commits `boundary`; `now_s` is on the same clock."""
        shared = self.shared
        self._asked = (now_s, False)
        with shared.changed:
            if shared.fatal is not None:
                raise shared.fatal
            self.windows.forget_ended()
            # first: what signals change and answer is in the transaction that says they were carried out
            channels = self.control.answer_arrived(boundary, shared.ledger.outbox.notifications)
            if channels:
                shared.changed.notify_all()
            work = shared.ledger.prepare(boundary, now_s)
            return replace(work, state={**work.state, **channels}) if channels else work

    def committed(self, boundary: Position) -> None:
        """[log] Note that this checkpoint is committed: registrations are durable, readers may start."""
        with self.shared.changing() as ledger:
            self.shared.committed = boundary
            self.windows.registered(ledger.windows.committed())

    def wants_commit(self, boundary: Callable[[], Position] | None = None) -> bool:
        """[log] Return whether somebody waits for a checkpoint: a registration, an answer, a marker, a window that would close.

        Cheap enough to be asked at every transaction: the answer is up to `ASK_INTERVAL_S` old. `boundary` returns
        the position of the checkpoint.
        """
        shared, now = self.shared, self.shared.clock()
        asked_at, wanted = self._asked
        if wanted or now < asked_at + ASK_INTERVAL_S:
            return wanted
        with shared.changed:
            position = None if boundary is None else boundary()
            wanted = shared.fatal is not None or not self.control.inbox.is_empty
            wanted = wanted or shared.ledger.wants_checkpoint(now, position)
        self._asked = (now, wanted)
        return wanted

    # ---- status

    @property
    def waits_because(self) -> str:
        """Why chunk readers wait although there is something to read: the source is under load; "" while they do not."""
        with self.shared.changed:
            turns = self.shared.ledger.turns
            return turns.waits_because if turns.waits_because and turns.has_work() else ""

    def _captured_names(self) -> list[str]:
        return [".".join(table) for table in self.shared.captured()]


def record_field_name(column: str, wire: FormatSettings) -> str:
    """Return the name of a column in records, and so in sinks."""
    name = adjusted_field_name(column, wire.field_names)
    return avro_field_name(name) if wire.type == "avro" else name


def _signal_table(settings: Settings) -> SignalTable | None:
    """Return the signal table that may be written to, None without one."""
    names = settings.source.signal_names
    return None if names is None or settings.source.read_only else SignalTable(*names)


def _windowing(
    settings: Settings, signal_table: SignalTable | None, committed: Callable[[], LogPosition] | None
) -> Windowing | None:
    """Return the windowing strategy of the settings, None if windows cannot be opened."""
    if settings.source.read_only and committed is not None:
        return ReadOnly(committed)
    if signal_table is not None:
        return RowWindowing(signal_table, settings.snapshot.watermarking_strategy)
    return None
