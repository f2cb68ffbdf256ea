"""What the benchmark runs on: servers of its own, the table `bench`, and our processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devservers import Database, Kafka, Registry, start_database, start_kafka, start_registry
from devservers.broker import HEAP_MIB
from devservers.processes import GuardedProcess
from mysqlio.server_facts import current_position
from schemas.position import file_number
from schemas.settings import Settings
from tidemark.api.observe import Observer
from tidemark.process import config
from tidemark.status.status_tree import Status

DATABASE = "bench"
SIGNAL_TABLE = "tidemark_signal"
TRANSACTION_ROWS = 1_000
_TABLE = """
    id BIGINT PRIMARY KEY, a INT, b VARCHAR(64), c DECIMAL(12,2), d DATETIME(6), e TEXT, f DOUBLE,
    g TINYINT(1), h JSON NULL, i TIMESTAMP NULL"""
_ROW = """
    %s + n, n, CONCAT('name ', %s + n), n / 4, '2024-05-06 07:08:09.123456', REPEAT('x', 80), n * 0.1,
    n %% 2, NULL, '2024-05-06 07:08:09'"""
_ROOT = Path(__file__).resolve().parents[1]


class BenchError(Exception):
    """A step did not get where it should; the message has the end of the log."""


class Scene:
    """Servers, started once; `round` gives each repetition its own database, topics and lake."""

    def __init__(
        self, server: str, folder: Path, options: Mapping[str, str] | None = None, kafka_heap_mib: int = HEAP_MIB
    ) -> None:
        self._name, self._folder, self._options = server, folder, options
        self._kafka_heap_mib = kafka_heap_mib
        self.database: Database
        self.kafka: Kafka
        self.registry: Registry

    def __enter__(self) -> Self:
        self.database = start_database(self._name, self._folder, self._options)
        self.kafka = start_kafka(self._folder, heap_mib=self._kafka_heap_mib)
        self.registry = start_registry(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (self.database, self.kafka, self.registry):
            server.close()

    def round(self, number: int, kafka: Mapping[str, Any] | None = None, snapshot: Mapping[str, Any] | None = None) -> Round:
        """Repetition `number`, with an empty table; `kafka` and `snapshot` are settings of those sections."""
        return Round(self, self._folder / f"round-{number}", f"bench{number}", kafka or {}, snapshot or {})


class Round:
    """One repetition: a table, a configuration, and the processes that work on it."""

    def __init__(
        self, scene: Scene, folder: Path, name: str, kafka: Mapping[str, Any], snapshot: Mapping[str, Any]
    ) -> None:
        self._scene, self._folder, self._name = scene, folder, name
        self._kafka, self._snapshot = kafka, snapshot
        self._children: dict[str, GuardedProcess] = {}
        folder.mkdir(parents=True)
        self._config_path = folder / "tidemark.yaml"
        self._config_path.write_text(json.dumps(self._document()), encoding="utf-8")
        self.settings: Settings = config.load(self._config_path, {})
        self._observer: Observer | None = None
        self._create_tables()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children.values():
            child.kill()
        if self._observer is not None:
            self._observer.__exit__(None, None, None)

    @property
    def table(self) -> str:
        """`database.table`."""
        return f"{self._name}.{DATABASE}"

    def start(self, verb: str, *arguments: str) -> int:
        """Start a process of ours; its pid."""
        command = [sys.executable, "-m", "tidemark", verb, "--config", str(self._config_path), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        child = GuardedProcess.spawn(command, self._log(verb), cwd=self._folder, env=environment)
        self._children[verb] = child
        return child.pid

    def stop(self, verb: str) -> None:
        """SIGTERM, and wait."""
        child = self._children.pop(verb)
        child.signal(signal.SIGTERM)
        child.wait(60)
        child.kill()

    def finish(self, verb: str) -> None:
        """Wait until a process has ended well; `BenchError` with its log when it has not."""
        child = self._children.pop(verb)
        child.wait(60)
        if child.status != 0:
            message = f"{verb} ended with {child.status}:\n{self.tail(verb)}"
            raise BenchError(message)

    def running(self, verb: str) -> bool:
        """Whether the process is still there."""
        return self._children[verb].status is None

    def pid(self, verb: str) -> int:
        """The process's id."""
        return self._children[verb].pid

    def wait_for(self, what: str, until: Callable[[Status], bool], seconds: float = 900.0) -> Status:
        """Poll the status; raises `BenchError` when a process ends or time is up."""
        deadline = time.monotonic() + seconds
        if self._observer is None:
            self._observer = Observer(self.settings)
            self._observer.__enter__()
        while True:
            status = self._observer.read()
            if until(status):
                return status
            for verb, child in self._children.items():
                if child.status is not None:
                    message = f"{verb} ended while {what} was waited for:\n{self.tail(verb)}"
                    raise BenchError(message)
            if time.monotonic() > deadline:
                message = f"waited {seconds:.0f} s for {what}: {status}"
                raise BenchError(message)
            time.sleep(0.05)

    def tail(self, verb: str) -> str:
        """The end of a process's log."""
        return "\n".join(self._log(verb).read_text(encoding="utf-8", errors="replace").splitlines()[-30:])

    def end_of_log(self) -> tuple[int, int]:
        """File number and offset behind the last transaction."""
        with self.connect() as connection:
            end = current_position(connection)
        return file_number(end.file), end.pos

    def insert(self, rows: int) -> None:
        """Fill the table in transactions of a thousand rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            self.insert_with(cursor, rows)

    def insert_with(self, cursor: Any, rows: int) -> None:
        """A statement for each thousand rows."""
        for first in range(0, rows, TRANSACTION_ROWS):
            cursor.execute(f"INSERT INTO {DATABASE} SELECT {_ROW} FROM thousand", (first, first))

    def insert_one_by_one(self, first: int, rows: int) -> None:
        """Rows `first` and following in transactions of their own."""
        with self.connect() as connection, connection.cursor() as cursor:
            insert = f"INSERT INTO {DATABASE} SELECT {_ROW} FROM (SELECT 0 AS n) one" % ("at", "at")
            cursor.execute(
                f"CREATE PROCEDURE one_by_one() BEGIN DECLARE at INT DEFAULT {first};"
                f" WHILE at < {first + rows} DO {insert}; SET at = at + 1; END WHILE; END"
            )
            cursor.execute("CALL one_by_one()")

    def request_snapshot(self) -> None:
        """Signal a snapshot of the table."""
        data = json.dumps({"data-collections": [self.table.replace(".", r"\.")], "type": "INCREMENTAL"})
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {SIGNAL_TABLE} VALUES ('bench', 'execute-snapshot', %s)", (data,))

    def connect(self) -> Any:
        """A connection to the source, in the round's database."""
        return self._scene.database.connect(database=self._name)

    # --- inside ------------------------------------------------------------------------------------------

    def _log(self, verb: str) -> Path:
        return self._folder / f"{verb}.log"

    def _create_tables(self) -> None:
        digits = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
        with self._scene.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self._name} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {self._name}")
            cursor.execute(f"CREATE TABLE {DATABASE} ({_TABLE})")
            cursor.execute(
                f"CREATE TABLE {SIGNAL_TABLE}"
                " (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
            )
            cursor.execute("CREATE TABLE thousand (n INT PRIMARY KEY)")
            cursor.execute(
                "INSERT INTO thousand SELECT x.d + 10 * y.d + 100 * z.d"
                f" FROM {digits} x, {digits} y, {digits} z"
            )

    def _document(self) -> dict[str, Any]:
        database = self._scene.database
        return {
            "name": self._name,
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": [rf"{self._name}\.{DATABASE}.*"],
                "signal_table": f"{self._name}.{SIGNAL_TABLE}",
            },
            "kafka": {"bootstrap_servers": self._scene.kafka.bootstrap_servers, **self._kafka},
            "format": {"type": "avro", "registry": self._scene.registry.url},
            "snapshot": {"mode": "never", "readers": 2, **self._snapshot},
            "sinks": [{"name": "lake", "type": "delta", "path": str(self._folder / "lake")}],
            "spark": {"master": "local[2]"},
        }
