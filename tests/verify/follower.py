"""A fake of producer and merge job: follows the binlog, and writes the sink's table some time later.

The log is read by mysql-replication, whose rows are Python values; the sink is a Delta table that is
replaced in each cycle, with the position of each row's last change, and a progress file as the merge job
writes it. One table: `id INT PRIMARY KEY, v BIGINT, s VARCHAR`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, HeartbeatLogEvent, MariadbGtidEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from devservers import Database
from schemas.position import Position, file_number
from schemas.settings import Settings
from tests.verify import sinks

_ROWS_EVENTS = (DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent)
_EVENTS = [GtidEvent, HeartbeatLogEvent, MariadbGtidEvent, RotateEvent, XidEvent, *_ROWS_EVENTS]
_PATIENCE_S = 120

Row = tuple[Any, Any, str]


class Follower:
    """Applies the log of one table, `delay_s` late. `spoiled` rows land wrong, those with None not at all.

    Rows that do not match, by `matches` on id and v, have no image and do not land.
    """

    def __init__(
        self, server: Database, database: str, table: str, settings: Settings, start: Position, delay_s: float
    ) -> None:
        self.matches: Callable[[int, int], bool] = lambda _id, _v: True
        self.spoiled: dict[int, tuple[Any, Any] | None] = {}
        self.cycles = 0
        self._settings, self._database, self._table, self._delay_s = settings, database, table, delay_s
        self._lock = threading.Lock()
        self._rows: dict[int, Row] = {}
        self._changes = 0
        self._boundary = start
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            file_name = cursor.fetchall()[-1][0]
        self._stream = BinLogStreamReader(
            connection_settings={
                "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            },
            server_id=70_000 + sum(database.encode()), log_file=file_name, log_pos=start.offset,
            resume_stream=True, blocking=True, slave_heartbeat=0.2,  # so that the reader can see its end
            is_mariadb=server.flavour == "mariadb", only_events=_EVENTS,
        )  # fmt: skip
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for_cycles(self, count: int) -> None:
        wanted = self.cycles + count
        deadline = time.monotonic() + _PATIENCE_S
        while self.cycles < wanted:
            if self._errors:
                raise self._errors[0]
            assert time.monotonic() < deadline, f"{self.cycles} cycles, not {wanted}"
            time.sleep(0.02)

    def stop(self) -> None:
        """End both threads; raises what ended one of them before."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._stream.close()
        if self._errors:
            raise self._errors[0]

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self._errors.append(error)

    def _read(self) -> None:
        """Collect the rows of a transaction, and apply them all at its end."""
        end, begin, pending = self._boundary.offset, 0, []
        for event in self._stream:
            if self._stopped.is_set():
                return
            packet = event.packet
            if isinstance(event, HeartbeatLogEvent):
                continue
            if isinstance(event, RotateEvent):
                end = event.position
                continue
            # MariaDB writes 0 inside a transaction.
            end = packet.log_pos or end + packet.event_size
            if isinstance(event, (GtidEvent, MariadbGtidEvent)):
                begin, pending = end - packet.event_size, []
            elif isinstance(event, _ROWS_EVENTS):
                if event.schema != self._database:
                    continue  # another test's, with values that Python's dates do not have
                pending.extend((event, row) for row in event.rows)
            else:
                self._apply(begin, end, pending)

    def _apply(self, begin: int, end: int, pending: list[tuple[Any, dict[str, Any]]]) -> None:
        file = file_number(self._stream.log_file)
        with self._lock:
            for ordinal, (event, row) in enumerate(pending, start=1):
                if (event.schema, event.table) == (self._database, self._table):
                    self._change(event, row, Position(sinks.EPOCH, file, begin, ordinal).text)
            self._boundary = Position(sinks.EPOCH, file, end)

    def _change(self, event: Any, row: dict[str, Any], position: str) -> None:
        self._changes += 1
        before = row.get("before_values") or row.get("values") or {}
        after = row.get("after_values") or row.get("values") or {}
        if not isinstance(event, WriteRowsEvent):
            self._rows.pop(before["id"], None)
        if not isinstance(event, DeleteRowsEvent):
            self._rows[after["id"]] = (after["v"], after["s"], position)

    def _write(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                rows, boundary, changes = dict(self._rows), self._boundary, self._changes
            time.sleep(self._delay_s)
            self._land(rows, boundary, changes)
            self.cycles += 1

    def _land(self, rows: dict[int, Row], boundary: Position, changes: int) -> None:
        rows = {key: row for key, row in rows.items() if self.matches(key, row[0])}
        for key, values in self.spoiled.items():
            position = rows[key][2] if key in rows else Position(sinks.EPOCH, 0, 1).text
            rows.pop(key, None)
            if values is not None:
                rows[key] = (*values, position)
        table = pa.table(
            {
                "id": pa.array(list(rows), pa.int32()),
                "v": pa.array([row[0] for row in rows.values()], pa.int64()),
                "s": pa.array([row[1] for row in rows.values()], pa.string()),
                "_tm_position": pa.array([row[2] for row in rows.values()], pa.string()),
            }
        )
        sinks.write_table(self._settings, self._database, self._table, table)
        progress = {"applied_position": boundary.text, "change_offsets": {"0": changes}, "floor": None}
        sinks.write_progress(self._settings, {f"{self._database}.{self._table}": progress})
