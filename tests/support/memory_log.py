"""A log reader without Kafka: it tails a real binlog and plays the log reader's part for the snapshot side.

It knows transaction boundaries, the signal table's rows and DDL. Commits happen as the real one makes them; what
a commit would have written is kept here. `crash` ends it without a last commit; what was not committed is lost,
as in a real crash.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from devservers import Database
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position
from producer.binlog import events
from producer.control.signal_control import SignalControl
from producer.control.signal_row import decode_signal_row
from producer.kafka.codecs import LogCodecs
from producer.snapshot.coordinator import SnapshotCoordinator
from producer.snapshot.outbox import MarkerDraft
from producer.snapshot.reader import ChunkWriter
from producer.snapshot.table_access import TableAccess
from producer.source.dump import BinlogStream, StreamStart
from rowcodec import BinlogLayout
from rowcodec.codec_factory import SchemaRegistrar
from schemas.connect_types import Connector
from schemas.notifications import Notification
from schemas.position import Position, file_number
from schemas.settings import Settings, from_mapping
from tests.support.chunk_writers import MemoryChunkWriter, MemoryTopics

_OPS = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
PATIENCE_S = 120.0
_XID, _QUERY, _ROTATE, _TABLE_MAP, _MARIADB_GTID = 16, 2, 4, 19, 162


@dataclass
class Durable:
    """What survives a crash: the log offset, the documents, and what was published."""

    file: str
    pos: int
    state: dict[str, Any] = field(default_factory=dict)
    markers: list[MarkerDraft] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)
    horizons: list[tuple[Position, Position]] = field(default_factory=list)
    topics: MemoryTopics = field(default_factory=MemoryTopics)

    def reported(self, kind: str, aggregate: str | None = None) -> list[Notification]:
        return [n for n in self.notifications if n.type == kind and aggregate in (None, n.aggregate_type)]

    def documents(self, kind: str) -> list[dict[str, Any]]:
        return [document for key, document in self.state.items() if key.startswith(f"{kind}/")]

    def marked(self, kind: str) -> list[MarkerDraft]:
        return [marker for marker in self.markers if marker.type == kind]


class MemoryLog:
    """One process's life: coordinator, and a thread in the log reader's place."""

    def __init__(
        self,
        settings: Settings,
        durable: Durable,
        tables: Callable[[], list[tuple[str, str]]],
        sink: Callable[[MemoryTopics, int], ChunkWriter] = MemoryChunkWriter,
        server_id: int = 7001,
        registry: SchemaRegistrar | None = None,
        server: str = "",
        connector: Connector = "mysql",
    ) -> None:
        self.durable = durable
        self.settings = settings
        self.coordinator = SnapshotCoordinator(
            settings=settings,
            access=TableAccess(
                lambda: connect(ServerAccess.of(settings.source)),
                LogCodecs(settings.name, connector, settings.format, registry, settings.records),
                server=server,
            ),
            writer=lambda slot: sink(durable.topics, slot),
            captured=tables,
            control=SignalControl.of(settings),
        )
        self.hold = threading.Event()
        self._hold_when: Callable[[], bool] | None = None
        self._durably = threading.Lock()
        self.skip_signals = False
        self._tables = tables
        self._server_id = server_id
        self._end = threading.Event()
        self._crashed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="memory-log", daemon=True)
        self._position: Position | None = None
        self._maps: dict[int, tuple[bool, BinlogLayout, int]] = {}
        self._boundary = (durable.file, durable.pos)

    def start(self, *, initial: bool = False) -> None:
        self.coordinator.restore(self.durable.state)
        if initial:
            self.coordinator.requests.request_initial([".".join(table) for table in self._tables()])
        self.coordinator.start()
        self._thread.start()

    def stop(self) -> None:
        self.coordinator.stop()
        self._end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the log is still read"
        if self._error is not None and not self._crashed:
            raise self._error

    def hold_when(self, condition: Callable[[], bool]) -> None:
        """Read no further behind the commit that makes it so: a test that waits for that may be too late, the snapshot done."""
        self._hold_when = condition

    def hold_at(self, kind: str, count: int = 1) -> None:
        """The same for the commit that shows it."""
        self.hold_when(lambda: len(self.durable.reported(kind)) >= count)

    def crash(self) -> None:
        self._crashed = True
        self._end.set()
        self._thread.join(PATIENCE_S)
        self.coordinator.stop()

    # ---- the thread

    def _run(self) -> None:
        stream = BinlogStream(self.settings.source)
        try:
            stream.open(StreamStart(file=self.durable.file, pos=self.durable.pos), server_id=self._server_id)
            committed_at = 0.0
            while not self._end.is_set():
                if self.hold.is_set():
                    time.sleep(0.01)
                    continue
                batch = stream.read(0.01)
                if batch is not None:
                    self._read_batch(batch, stream)
                now = time.monotonic()
                if self._position is None and (self.coordinator.wants_commit() or now - committed_at > 0.2):
                    self._commit()
                    committed_at = now
            if not self._crashed and self._position is None:
                self._commit()
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            self._error = error
        finally:
            stream.close()

    def _read_batch(self, batch: Any, stream: BinlogStream) -> None:
        for index, kind in enumerate(batch.types.tolist()):
            start, end = int(batch.starts[index]), int(batch.ends[index])
            offset = int(batch.offsets[index])
            after = offset + int(batch.sizes[index])
            if batch.is_artificial(index):
                continue
            if kind in (33, 34, 42) or kind == _MARIADB_GTID:
                self._position = Position(0, file_number(batch.file), offset, 0)
                if kind == _MARIADB_GTID:
                    self._standalone = events.parse_mariadb_gtid(batch.buf, start, end).standalone
            elif kind == _TABLE_MAP:
                table = events.parse_table_map(batch.buf, start, end, stream.server_version)
                is_signal = f"{table.database}.{table.table}" == self.settings.source.signal_table
                layout = BinlogLayout(table.types, table.metas)
                self._maps[table.table_id] = (is_signal, layout, len(table.types))
            elif kind in _OPS:
                self._rows(batch, kind, start, end)
            elif kind == _QUERY:
                self._query(events.parse_query(batch.buf, start, end).sql, batch.file, after)
            elif kind == _XID:
                self._committed(batch.file, after)
            elif kind == _ROTATE:
                self._boundary = (events.parse_rotate(batch.buf, start, end).file, 4)
            elif self._position is None:
                self._boundary = (batch.file, after)

    def _rows(self, batch: Any, kind: int, start: int, end: int) -> None:
        table_id = int.from_bytes(bytes(batch.buf[start + 19 : start + 25]), "little")
        is_signal, layout, columns = self._maps[table_id]
        if not is_signal or self.skip_signals:
            return
        header = events.parse_rows_header(batch.buf, start, end, kind, columns)
        assert self._position is not None
        for row in decode_signal_row(batch.buf, header.rows_start, end, layout, _OPS[kind]):
            self.coordinator.windows.on_signal(row, _OPS[kind], self._position)

    def _query(self, sql: str, file: str, after: int) -> None:
        words = sql.split()
        if words[:1] == ["BEGIN"]:
            return
        if words[0].upper() in ("ALTER", "TRUNCATE", "DROP", "RENAME") and self._position is not None:
            for database, table in self._tables():
                if table in sql:
                    self.coordinator.windows.table_changed(f"{database}.{table}", self._position)
        self._committed(file, after)

    def _committed(self, file: str, after: int) -> None:
        self._position = None
        self._boundary = (file, after)

    def _commit(self) -> None:
        file, pos = self._boundary
        position = Position(0, file_number(file), pos, 0)
        work = self.coordinator.prepare(position, time.monotonic())
        durable = self.durable
        with self._durably:
            for key, document in work.state.items():
                if document is None:
                    durable.state.pop(key, None)
                else:
                    durable.state[key] = document
            durable.markers += work.markers
            durable.notifications += work.notifications
            durable.horizons.append((position, work.horizon))
            durable.file, durable.pos = file, pos
            if self._hold_when is not None and self._hold_when():
                self._hold_when = None
                self.hold.set()  # before anybody is notified
        self.coordinator.committed(position)

    # ---- waiting

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._is_fulfilled(condition):
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                message = f"not within {timeout_s} s: {what}\n" + "\n".join(
                    map(str, self.coordinator.progress())
                )
                raise AssertionError(message)
            time.sleep(0.01)

    def _is_fulfilled(self, condition: Callable[[], bool]) -> bool:
        """Never asked in the middle of a commit."""
        with self._durably:
            return condition()

    def wait_reported(self, kind: str, count: int = 1, timeout_s: float = PATIENCE_S) -> None:
        self.wait(lambda: len(self.durable.reported(kind)) >= count, f"{count} {kind}", timeout_s)


def settings_for(server: Database, schema: str, **snapshot: Any) -> Settings:
    return from_mapping(
        {
            "name": "srv",
            "source": {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "tables": [f"{schema}\\..*"],
                "signal_table": f"{schema}.signals",
                "server_id": 7001,
                "heartbeat_s": 20,  # a server that stands still for some seconds is not dead
            },
            "format": {"type": "json"},
            "snapshot": {"readers": 3, "chunk_rows": 100, **snapshot},
        }
    )


def begin(settings: Settings) -> Durable:
    """The state of a first start: the log's present end."""
    connection = connect(ServerAccess.of(settings.source))
    try:
        end = current_position(connection)
    finally:
        connection.close()
    return Durable(end.file, end.pos)


@contextmanager
def running(log: MemoryLog, *, initial: bool = False) -> Iterator[MemoryLog]:
    log.start(initial=initial)
    try:
        yield log
    finally:
        log.stop()
