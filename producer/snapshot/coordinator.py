"""The coordinator: the log reader's seam, and the threads behind it.

Threads::

    log reader (not ours)   on_signal, on_schema_change, request_table; before_ and after_commit at each cut
    planner (one)           cuts tables into chunks, a bounded distance ahead of the readers
    slots (one per reader)  fence the slot's transactional id, then read chunk after chunk

All of them meet in the ledger, under one lock that is never held during I/O. Errors of a chunk or of planning
are retried with back-off and end in the table's state; an error that nobody foresaw ends the producer: it is
raised at the next cut.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from producer.catalog import read_table_schema
from producer.control.commands import answer
from producer.control.notifications import NotificationEncoder
from producer.snapshot.blocking import BlockingSnapshots
from producer.snapshot.board import Board
from producer.snapshot.documents import CHILDREN, Origin, State, TableId, TableTask, Window, WindowState
from producer.snapshot.held import ClosedChunk
from producer.snapshot.ledger import CutWork, MarkerDraft, SnapshotLedger, used_before
from producer.snapshot.planning import PlanningLoop
from producer.snapshot.reader import ChunkReader, CodecSource, SchemaReader
from producer.snapshot.slots import Slot
from producer.snapshot.watermark import CLOSE_SUFFIX, OPEN_SUFFIX, SignalTable, identity_of, window_of
from producer.snapshot.windowing import Place, ReadOnly, SignalRows, Windowing
from producer.source.connection import close_quietly
from schemas.avro import avro_field_name
from schemas.errors import RetriableSourceError, SourceError, TidemarkError
from schemas.names import adjusted_field_name
from schemas.notifications import Notification, signal_rejected
from schemas.position import Position
from schemas.signals import EXECUTE_SNAPSHOT, WINDOW_TYPES
from schemas.windows import OpenWindows

if TYPE_CHECKING:
    from producer.codec import Records
    from producer.control.channels import Arrived, SignalChannel
    from producer.control.signal_row import SignalRow
    from producer.snapshot.child_rows import ChildRows
    from producer.snapshot.sink import ChunkSink
    from producer.snapshot.view import View
    from producer.source.connection import Connection
    from schemas.settings import FormatSettings, Settings

__all__ = ["CutWork", "MarkerDraft", "ServerConnector", "SnapshotCoordinator", "TableProgress"]

log = structlog.get_logger(__name__)

INITIAL_REQUEST: Final = "initial"
STOP_TIMEOUT_S: Final = 10.0
WAITS_FOR_WINDOWS: Final = "it waits for a signal table: set source.signal_table"
RATE_WINDOW_S: Final = 10.0
GATHER_S: Final = 1.0  # children of one foreign key are gathered so long, to be read together
ASK_INTERVAL_S: Final = 0.005
# What the keys of one table may take that the log touches while its windows are open.
TOUCHED_BYTES: Final = 64 << 20
DOUBTFUL: Final = (
    "rows changed while they were read, in a table without a key (equal rows can't be told apart) or one whose record "
    "key is not its primary key (with skip_messages_without_change): it is read again. Ask when it is quiet"
)
_DOCUMENTS: Final = ("request/", "table/", "window/", CHILDREN)
_ROW_KEYS: Final = frozenset({"maximum_key", "last_processed_key"})


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far one table of one request is. `rate` is rows per second of late, `eta_s` a guess from it."""

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


class SnapshotCoordinator:
    """See the module. The methods marked [log] are called by the log reader's thread alone.

    `server` is the identity of the server whose log is read: chunks are read from no other one.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        source: Callable[[], Connection],
        sink: Callable[[int], ChunkSink],
        codecs: CodecSource,
        captured: Callable[[], Iterable[TableId]],
        epoch: int = 0,
        server: str = "",
        schemas: SchemaReader = read_table_schema,
        register: Callable[[str, str], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        channels: Sequence[SignalChannel] = (),
        place: Callable[[], Place] | None = None,
    ) -> None:
        self._channels = channels
        self._arrived: deque[Arrived] = deque()
        self._settings = settings
        self._connect = ServerConnector(source, server)
        self._sink = sink
        self._codecs = codecs
        self._epoch = epoch
        self._schemas = schemas
        self._encoder = NotificationEncoder(
            settings.name, settings.format, register or _registry(settings), settings.kafka.topic_delimiter
        )
        self._now_ms = now_ms
        names = settings.source.signal_names
        snapshot = settings.snapshot
        writable = None if names is None or settings.source.read_only else SignalTable(*names)
        self._windowing: Windowing | None = None
        if settings.source.read_only and place is not None:
            self._windowing = ReadOnly(place)
        elif writable is not None:
            self._windowing = SignalRows(writable, snapshot.watermarking_strategy)
        ledger = SnapshotLedger(
            settings.name,
            0 if self._windowing is None else snapshot.readers,
            now_ms,
            merge=snapshot.merge,
            field_name=lambda name: _field_name(name, settings.format),
            sets_aside=settings.on_table_error == "set_aside",
        )
        self._board = Board(ledger, clock, captured)
        self._threads: list[threading.Thread] = []
        self._workers: list[Worker] = []
        self._rates: dict[str, deque[tuple[float, int]]] = {}
        self._asked = (float("-inf"), False)
        self._windows = OpenWindows(TOUCHED_BYTES)
        self._blocking = BlockingSnapshots(
            self._board, self._connect, writable, schemas, codecs, settings, epoch
        )

    # ---- life

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the documents of the state topic; before anything else is called."""
        documents = {key: value for key, value in state.items() if key.startswith(_DOCUMENTS)}
        slots = self._board.ledger.restore(documents)
        self._board.unfenced = set(range(slots))
        for channel in self._channels:
            channel.restore(state.get(channel.name))

    def leave_out_others(self, holds_data: Callable[[str, str], bool]) -> None:
        """Read no more of tables that the settings do not name any longer: nobody would follow their changes."""
        board = self._board
        with board.changed:
            board.ledger.leave_out_others(lambda table: holds_data(*board.table_id(table)))

    def start(self) -> None:
        """Make sure that windows can be opened, then start planner and slots.

        Raises `SourceError` with the SQL to run when the table is missing and may not be created.
        """
        for channel in self._channels:
            interval_s = self._settings.signal.poll_interval_ms / 1000
            loop = ChannelLoop(channel, self._board, self._arrived, interval_s)
            self._spawn(channel.name.replace("/", "-"), loop)
        if self._windowing is None:
            self._fence_only()
            return
        connection = self._connect()
        try:
            self._windowing.prepare(connection)
        finally:
            connection.close()
        self._start_slots(self._settings.snapshot.readers)
        planning = PlanningLoop(
            self._board,
            self._connect,
            self._windowing,
            self._schemas,
            self._codecs,
            self._settings.snapshot,
            self._epoch,
        )
        self._spawn("chunk-planner", planning)

    def _fence_only(self) -> None:
        """Without windows nothing is read, but those of an earlier process must not hold the horizon for ever."""
        with self._board.changed:
            waiting = self._board.ledger.wait_for(WAITS_FOR_WINDOWS)
        if waiting:
            log.error("snapshot.impossible", tables=waiting, reason="it was begun", fix="set source.signal_table")
        self._start_slots(0)

    def _start_slots(self, readers: int) -> None:
        """The threads of so many readers, and of those that only fence a slot of an earlier process."""
        board = self._board
        board.unfenced |= set(range(readers))
        for number in sorted(board.unfenced):
            slot = Slot(
                number,
                readers,
                self._settings.name,
                board,
                self._connect,
                self._sink,
                self._chunk_reader,
                self._schemas,
                self._settings.kafka.topic_delimiter,
            )
            self._spawn(f"chunk-reader-{number}", slot)

    def stop(self) -> None:
        """End all threads, abort open Kafka transactions; windows stay registered till the next start."""
        self._board.stop()
        self._blocking.close()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - STOP_TIMEOUT_S / 2 - time.monotonic()))
        for worker, thread in zip(self._workers, self._threads, strict=True):
            if thread.is_alive():
                worker.break_off()
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        self._threads.clear()
        self._workers.clear()

    # ---- requests

    def request_initial(self, tables: Iterable[str], request: str = INITIAL_REQUEST) -> None:
        """Ask for the snapshot of a start, once; a restart goes on with it by itself.

        At every start (another `request` each time): nothing is asked for while an earlier one goes on.
        """
        blocking = self._is_blocking_at_start()
        board = self._board
        with board.changed:
            running = any(r.origin is Origin.INITIAL and not r.state.final for r in board.ledger.requests.values())
            if request not in board.ledger.requests and not running:
                chosen = [(table, None) for table in tables]
                reason = "first start" if request == INITIAL_REQUEST else "start"
                board.ledger.submit(request, Origin.INITIAL, chosen, reason=reason, blocking=blocking)
                board.changed.notify_all()

    def adopt_view(self, view: View) -> None:
        """Read what was asked for at the first start in this view, which is closed then."""
        self._blocking.adopt(view)

    def begin_anew(self, tables: Iterable[str], request: str, reason: str) -> None:
        """A stretch of the log is lost: whatever was read is void, all tables are read again."""
        blocking = self._is_blocking_at_start()
        board = self._board
        with board.changed:
            board.ledger.abandon(reason)
            chosen = [(table, None) for table in tables]
            board.ledger.submit(request, Origin.INITIAL, chosen, reason=reason, blocking=blocking)
            board.changed.notify_all()

    def restart_unfinished(self) -> None:
        """The log goes on at another server: snapshots that are not done begin from their tables' beginning."""
        with self._board.changed:
            self._board.ledger.restart_unfinished()

    def initial_ended(self) -> bool:
        """Whether the snapshot of the first start has ended, and its end is written."""
        board = self._board
        with board.changed:
            request = board.ledger.requests.get(INITIAL_REQUEST)
            return request is not None and request.state.final and not board.ledger.has_news

    def require_initial(self) -> None:
        """Raise `SourceError` in words when a table of the first start's snapshot could not be read."""
        with self._board.changed:
            request = self._board.ledger.requests.get(INITIAL_REQUEST)
        if request is not None and request.state.final and request.state is not State.DONE:
            message = (
                f"the snapshot is {request.state}: {request.error or 'stopped by a signal'}. Read the tables with "
                f"a signal (snapshot.mode: no_data), or start under another name"
            )
            raise SourceError(message)

    def _is_blocking_at_start(self) -> bool:
        """Whether the tables of a start are read in one view; `SourceError` where windows cannot be opened instead."""
        if self._settings.snapshot.consistency == "one_transaction":
            return True
        if self._windowing is None:
            message = (
                "the initial snapshot, and that of a new beginning, needs a signal table: set source.signal_table (for "
                "example shop.tidemark_signal) or source.read_only, or snapshot.consistency: one_transaction; "
                "snapshot.mode: no_data reads no tables at a first start"
            )
            raise SourceError(message)
        return False

    def request_table(self, table: str, reason: str) -> None:
        """Ask for a whole-table snapshot because the log does not tell all about it; asked twice is once.

        Where windows cannot be opened it waits for a start that has a signal table: the sink is wrong until then.
        """
        if self._windowing is None:
            log.error("snapshot.impossible", table=table, reason=reason, fix="set source.signal_table")
        with self._board.changed:
            waits_for = WAITS_FOR_WINDOWS if self._windowing is None else ""
            self._board.ledger.submit_automatic(table, reason, waits_for=waits_for)
            self._board.changed.notify_all()

    def follow_children(self, table: str, rows: ChildRows) -> None:
        """[log] Parents of these rows changed: they are read, and what is not found of them is swept."""
        with self._board.changed:
            self._board.ledger.follow(table, rows, self._board.clock() + GATHER_S)
            self._board.changed.notify_all()

    def follow_table(self, table: str, reason: str) -> None:
        """[log] Parents of unknown rows changed: the whole table is read, and swept."""
        with self._board.changed:
            self._board.ledger.follow_whole(table, reason)
            self._board.changed.notify_all()

    def set_aside(self, table: str, reason: str, told: Notification) -> None:
        """[log] The table cannot be published: nothing of it is read until it is taken up."""
        with self._board.changed:
            self._board.ledger.notify(told)
            self._board.ledger.set_aside(table, reason)
            self._board.changed.notify_all()

    def refuse_aside(self, table: str) -> None:
        """[log] The table still cannot be published: what was asked for of it is refused."""
        with self._board.changed:
            self._board.ledger.refuse_aside(table)

    def take_up(self, table: str, told: Notification | None = None) -> None:
        """[log] The table is not set aside any more."""
        with self._board.changed:
            self._board.ledger.take_up(table)
            if told is not None:
                self._board.ledger.notify(told)
            self._board.changed.notify_all()

    def asked_for_aside(self) -> set[str]:
        """[log] The tables set aside of which a snapshot was asked for since."""
        with self._board.changed:
            return self._board.ledger.asked_for_aside()

    def take_unpublishable(self) -> dict[TableId, str]:
        """[log] The tables that a snapshot has found to be unfit to be published, and why; each once."""
        board = self._board
        with board.changed:
            found, board.ledger.unpublishable = board.ledger.unpublishable, {}
            return {board.table_id(name): reason for name, reason in found.items()}

    # ---- the log

    def on_signal(self, row: SignalRow, op: str, position: Position) -> None:
        """[log] A row change of the signal table was met, ours included; `position` is its transaction's."""
        suffix = self._window_row_suffix(row, op)
        if op != "c" and not suffix:
            return
        board = self._board
        with board.changed:
            if suffix and (op != "c" or self._is_of_a_reader(row.id, suffix)):
                self._window_row(row.id, suffix, position)
            else:
                self._answer(row, position)
            board.changed.notify_all()

    def closed_chunk(self, row: SignalRow, op: str) -> ClosedChunk | None:
        """[log] The rows to be written where this row of the signal table stands, None where there are none.

        Asked before `on_signal` is told of the row.
        """
        if self._window_row_suffix(row, op) != CLOSE_SUFFIX:
            return None
        found = window_of(row.id)
        board = self._board
        with board.changed:
            window = None if found is None else board.ledger.windows.get(found[0])
            return None if window is None else self._closed_chunk(window)

    def closed_chunks(self, border: Position) -> list[ClosedChunk]:
        """[log] The rows to be written at this border, where windows close without a close row; before each cut."""
        if self._windowing is None or self._windowing.writes_rows:
            return []
        with self._board.changed:
            chunks = [self._closed_chunk(window) for window in self._board.ledger.closable(border)]
        return [chunk for chunk in chunks if chunk is not None]

    def _closed_chunk(self, window: Window) -> ClosedChunk | None:
        if window.held is None:
            return None
        touched = self._windows.close(window.id, window.table)
        held = self._board.ledger.held_at_close(window)
        if held is not None and touched is not None and held.is_doubtful(touched):
            self._board.ledger.failed(window, DOUBTFUL, self._board.clock(), heals=False)
            return None
        return None if held is None or touched is None else ClosedChunk(held, touched)

    def watches(self, table: str) -> bool:
        """[log] Whether the keys of the table's rows are to be told (`on_touched`)."""
        return self._windows.watches(table)

    def on_touched(self, table: str, keys: Iterable[bytes]) -> None:
        """[log] The log changed these rows of a table that has open windows."""
        lost = self._windows.touch(table, keys)
        if lost:
            with self._board.changed:
                self._board.ledger.lost(lost)
                self._board.changed.notify_all()

    def on_schema_change(self, table: str, position: Position) -> None:
        """[log] A DDL of the table was met: chunks read across it are read again."""
        with self._board.changed:
            self._board.ledger.table_changed(table, position)
            self._board.changed.notify_all()

    def before_commit(self, position: Position) -> CutWork:
        """[log] What to write into the Kafka transaction that commits the border `position`."""
        board = self._board
        self._asked = (board.clock(), False)
        with board.changed:
            if board.fatal is not None:
                raise board.fatal
            self._windows.retain({window.id for window in board.ledger.windows.values() if window.is_watched})
            memory = self._hear(position)
            work = board.ledger.cut(position, board.clock())
            return replace(work, state={**work.state, **memory}) if memory else work

    def after_commit(self, position: Position) -> None:
        """[log] That transaction is committed: registrations are durable, readers may start."""
        board = self._board
        with board.changed:
            board.committed = position
            ready = board.ledger.committed()
            if self._windowing is not None and not self._windowing.writes_rows:
                for window in ready:
                    self._watch_from_now(window)
            board.changed.notify_all()

    def approach_view(self, read: Position) -> Position | None:
        """[log] The log was read up to here: where reading is to stand still for a snapshot in one view, if anywhere."""
        return self._blocking.approach(read)

    def rows_of_view(self, border: Position) -> Generator[tuple[str, Records], None, None]:
        """[log] Rows by topic, to be published at `border`, where the view stands; to be closed."""
        return self._blocking.rows(border)

    def wants_commit(self, border: Callable[[], Position] | None = None) -> bool:
        """[log] Whether somebody waits for a cut: a registration, an answer, a marker, a window that would close.

        Cheap enough to be asked at every transaction: the answer is up to `ASK_INTERVAL_S` old. `border` tells where
        the cut would be.
        """
        board, now = self._board, self._board.clock()
        asked_at, wanted = self._asked
        if wanted or now < asked_at + ASK_INTERVAL_S:
            return wanted
        with board.changed:
            position = None if border is None else border()
            wanted = board.fatal is not None or bool(self._arrived) or board.ledger.wants_cut(now, position)
        self._asked = (now, wanted)
        return wanted

    def encode_notification(self, notification: Notification) -> tuple[bytes, bytes]:
        """[log] Key and value of a notification's record; without keys of rows where columns are masked."""
        if self._settings.records.masks():
            data = {n: text for n, text in notification.additional_data.items() if n not in _ROW_KEYS}
            notification = replace(notification, additional_data=data)
        return self._encoder.encode(notification)

    # ---- status

    def progress(self) -> list[TableProgress]:
        """Every table of every remembered request, in order of arrival."""
        with self._board.changed:
            return [self._progress(task) for task in self._board.ledger.tasks.values()]

    def _progress(self, task: TableTask) -> TableProgress:
        windows = [chunk.window for chunk in task.chunks.values() if chunk.window is not None]
        rows = task.rows + sum(window.rows_read for window in windows)
        rate = 0.0 if task.state.final else self._rate(task.key, rows)
        left = None if task.estimate is None or task.state.final else max(0, task.estimate - rows)
        paused = self._board.ledger.requests[task.request].state is State.PAUSED
        return TableProgress(
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
        )

    def _rate(self, key: str, rows: int) -> float:
        now = self._board.clock()
        samples = self._rates.setdefault(key, deque())
        samples.append((now, rows))
        while len(samples) > 2 and samples[0][0] < now - RATE_WINDOW_S:
            samples.popleft()
        then, before = samples[0]
        return max(0.0, (rows - before) / (now - then)) if now > then else 0.0

    # ---- inside

    def _answer(self, row: SignalRow, position: Position) -> None:
        board = self._board
        captured = [".".join(table) for table in board.captured()]
        windows = self._windowing is not None
        answer(row, position, board.ledger, captured, self._settings.name, self._now_ms(), windows=windows)

    def _hear(self, position: Position) -> dict[str, Mapping[str, Any]]:
        """Carry out what came by other channels than the signal table; what they are to remember."""
        memory: dict[str, Mapping[str, Any]] = {}
        while self._arrived:
            signal = self._arrived.popleft()
            memory[signal.channel] = signal.memory
            problem = signal.problem
            if signal.row.type == EXECUTE_SNAPSHOT:
                known = self._board.ledger.requests.get(signal.row.id)
                if known is not None:  # never the same signal met again: each is heard once
                    problem = used_before(known)
            if problem:
                row, ledger = signal.row, self._board.ledger
                log.warning("signal.rejected", id=row.id, type=row.type, reason=problem)
                now_ms = self._now_ms()
                ledger.notify(signal_rejected(self._settings.name, row.id, row.type, now_ms, problem))
            else:
                self._answer(signal.row, position)
        if memory:
            self._board.changed.notify_all()
        return memory

    def _window_row_suffix(self, row: SignalRow, op: str) -> str:
        """`OPEN_SUFFIX` or `CLOSE_SUFFIX` for a row that opens or closes a window, "" for all others."""
        found = window_of(row.id)
        if row.type not in WINDOW_TYPES or found is None:
            return ""
        if op == "c":
            return found[1]
        deletes = self._settings.snapshot.watermarking_strategy == "insert_delete"
        return CLOSE_SUFFIX if op == "d" and deletes and found[1] == OPEN_SUFFIX else ""

    def _is_of_a_reader(self, row_id: str, suffix: str) -> bool:
        """Whether a window row is ours or of another producer at the same table, Debezium included: they have UUIDs."""
        window_id, board = row_id.removesuffix(suffix), self._board
        if window_id in board.ledger.windows or window_id in board.barriers:
            return True
        try:
            uuid.UUID(window_id)
        except ValueError:
            return False
        return True

    def _window_row(self, row_id: str, suffix: str, position: Position) -> None:
        window_id = row_id.removesuffix(OPEN_SUFFIX).removesuffix(CLOSE_SUFFIX)
        board = self._board
        if window_id in board.barriers:
            board.barriers[window_id] = True
        window = board.ledger.windows.get(window_id)
        if window is None or window.state is WindowState.ORPHAN:
            return
        if suffix == OPEN_SUFFIX:
            board.ledger.opened(window, position)
            self._watch_from_now(window)
        else:
            board.ledger.closed(window, position)

    def _watch_from_now(self, window: Window) -> None:
        """Remember which of its rows the log changes from here on, where the producer merges them."""
        if self._board.ledger.merge_of(window) == "producer":
            self._windows.open(window.id, window.table)

    def _chunk_reader(self, sink: ChunkSink) -> ChunkReader:
        assert self._windowing is not None
        return ChunkReader(
            sink, self._windowing, self._schemas, self._codecs, self._settings.snapshot.chunk_bytes
        )

    def _spawn(self, name: str, worker: Worker) -> None:
        def guarded() -> None:
            try:
                worker.run()
            except BaseException as error:
                log.exception("snapshot.thread_died", thread=name)
                with self._board.changed:
                    self._board.fatal = self._board.fatal or error
                    self._board.changed.notify_all()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._workers.append(worker)
        self._threads.append(thread)
        thread.start()


class Worker(Protocol):
    """What a thread of the coordinator runs."""

    def run(self) -> None:
        """Work until the board stops."""

    def break_off(self) -> None:
        """Give up what the thread may be waiting for; called by another thread."""


class ChannelLoop:
    """Hands over what comes by one channel; asks for more when that was carried out."""

    def __init__(
        self, channel: SignalChannel, board: Board, arrived: deque[Arrived], interval_s: float
    ) -> None:
        self._channel = channel
        self._board = board
        self._arrived = arrived
        self._interval_s = interval_s

    def run(self) -> None:
        """Poll until the board stops."""
        board = self._board
        try:
            while not board.stopping:
                try:
                    found = self._channel.poll()
                except (TidemarkError, OSError) as error:
                    log.warning("signals.not_read", channel=self._channel.name, error=str(error))
                    found = ()
                with board.changed:
                    self._arrived.extend(found)
                    while self._arrived and not board.stopping:
                        board.changed.wait(self._interval_s)
                board.sleep(self._interval_s)
        finally:
            self._channel.close()

    def break_off(self) -> None:
        """Polling ends by itself."""


class ServerConnector:
    """Connections to the server whose log is read, and to no other one behind the same address."""

    def __init__(self, source: Callable[[], Connection], server: str) -> None:
        self._source = source
        self._server = server

    def __call__(self) -> Connection:
        """A connection; `RetriableSourceError` where it leads to another server."""
        connection = self._source()
        try:
            found = identity_of(connection)
        except BaseException:
            close_quietly(connection)
            raise
        if self._server and found != self._server:
            connection.close()
            message = (
                f"a connection for chunks reached another server than {self._server}, whose log is read; "
                f"source.host must lead to one server"
            )
            raise RetriableSourceError(message)
        return connection


def _field_name(column: str, wire: FormatSettings) -> str:
    """What a column is called in records, and so in sinks."""
    name = adjusted_field_name(column, wire.field_names)
    return avro_field_name(name) if wire.type == "avro" else name


def _registry(settings: Settings) -> Callable[[str, str], int] | None:
    """The registry's `register`, where there is a registry; connected to at the first use."""
    if settings.format.type != "avro" or settings.format.registry is None:
        return None
    from producer.kafka.registry import SchemaRegistry

    return SchemaRegistry.of(settings.format).register
