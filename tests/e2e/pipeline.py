"""A pipeline as a user runs it: configuration file, `tidemark run`, `tidemark merge`, real servers.

The processes are subprocesses with their logs in files; they are killed, stopped and started again by the
tests, and never outlive them. Progress is read from outside, as `tidemark status` does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pymysql

from devservers import Database, Kafka, Registry
from devservers.processes import GuardedProcess
from schemas import signals
from schemas.overriding import override
from schemas.position import Position, file_number
from schemas.settings import Settings
from tests.e2e.child_processes import ChildProcesses
from tests.e2e.topics import Notification, Notifications
from tidemark.api.observe import Observer
from tidemark.process import config
from tidemark.status.status_tree import Status
from tidemark.verify import VerifyReport, verify
from tidemark.verify.awaited import AwaitedRows

PATIENCE_S = 300.0
POLL_S = 0.25
SIGNAL_TABLE = "tidemark_signal"
SPARING = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "100",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.ui.liveUpdate.period": "-1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Plans of a few rows, each run once: what prepares them costs more than they do."""


class Pipeline(ChildProcesses):
    """One source database on its way into one lake. Use it in a `with` statement.

    The merge job compiles and adapts no plan unless `spark` among the settings is `spark_section(compiled=True)`.
    `epoch` is that of the log that is waited for; a test that moves the source to another server increments it.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        server: Database,
        database: str,
        kafka: Kafka,
        registry: Registry,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(folder)
        self.name, self.server, self.database = name, server, database
        self.kafka, self.registry = kafka, registry
        self._signals = 0
        self._observer: Observer | None = None
        self.epoch = 0
        self.config_path = folder / "tidemark.yaml"
        self.config_path.write_text(json.dumps(self._document() | dict(more or {})), encoding="utf-8")
        self.settings: Settings = config.load(self.config_path, {})
        self.notifications = Notifications(self.settings)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._observer is not None:
            self._observer.__exit__(None, None, None)

    def _document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": {
                "host": self.server.host,
                "port": self.server.port,
                "user": self.server.user,
                "password": self.server.password,
                "tables": [rf"{self.database}\..*"],
                "signal_table": f"{self.database}.{SIGNAL_TABLE}",
            },
            "kafka": {"bootstrap_servers": self.kafka.bootstrap_servers},
            "format": {"type": "avro", "registry": self.registry.url},
            "snapshot": {"mode": "never", "readers": 2},
            "sinks": [{"name": "lake", "type": "delta", "path": str(self.folder / "lake")}],
            "spark": spark_section(),
        }

    @override
    def spawn(self, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        return self.spawn_command([verb, "--config", str(self.config_path), *arguments], log_path)

    # --- source ------------------------------------------------------------------------------------------

    def connect(self) -> pymysql.Connection[Any]:
        return self.server.connect(database=self.database)

    def sql(self, *statements: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def send(self, kind: str, data: object, ident: str | None = None) -> str:
        """INSERT a signal; `data` is JSON unless it is text. Its id."""
        self._signals += 1
        ident = ident or f"signal-{self._signals}"
        text = data if isinstance(data, str) else json.dumps(data)
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {SIGNAL_TABLE} VALUES (%s, %s, %s)", (ident, kind, text))
        return ident

    def request_snapshot(self, *patterns: str, **more: object) -> str:
        collections = [rf"{self.database}\.{pattern}" for pattern in patterns or (".*",)]
        return self.send(
            signals.EXECUTE_SNAPSHOT, {"data-collections": collections, "type": "INCREMENTAL", **more}
        )

    def end_of_log(self) -> tuple[int, int]:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone() or ("",)
            old = self.server.flavour == "mariadb" or version.startswith(("5.", "8.0"))
            cursor.execute("SHOW MASTER STATUS" if old else "SHOW BINARY LOG STATUS")
            name, offset, *_ = cursor.fetchone() or ("", 0)
        return file_number(name), int(offset)

    # --- waiting -----------------------------------------------------------------------------------------

    @property
    def observer(self) -> Observer:
        """What reads the status, kept open."""
        if self._observer is None:
            self._observer = Observer(self.settings)
            self._observer.__enter__()
        return self._observer

    def status(self) -> Status:
        return self.observer.read()

    def settled(self) -> Status:
        """As `tidemark status` sees it."""
        return self.observer.settled()

    def wait(self, what: str, until: Callable[[Status], bool], seconds: float = PATIENCE_S) -> Status:
        """Wait for a status; fails with a clear error when a process ends or time is up."""
        deadline = time.monotonic() + seconds
        while True:
            self.check()
            status = self.status()
            if until(status):
                return status
            logs = "".join(f"\n--- {verb}\n{self.log_tail(verb)}" for verb in self._children)
            assert time.monotonic() < deadline, f"{logs}\n--- waited {seconds:.0f} s for {what}: {status}"
            time.sleep(POLL_S)

    def wait_for_answer(self, ident: str, which: Callable[[Notification], bool]) -> Notification:
        """The first notification of that signal for which `which` holds."""
        found: list[Notification] = []

        def answered(_: Status) -> bool:
            found[:] = self.notifications.of(ident)
            return any(map(which, found))

        self.wait(f"an answer to {ident}", answered)
        return next(filter(which, found))

    def wait_for_log(self) -> None:
        """Until the producer has published everything that is in the log now."""
        end = self.end_of_log()

        def published(status: Status) -> bool:
            return status.log is not None and self._is_behind(status.log.position, end)

        self.wait(f"the producer to reach {end}", published)

    def _is_behind(self, position: Position, end: tuple[int, int]) -> bool:
        return (position.epoch, position.file, position.offset) >= (self.epoch, *end)

    def wait_for_snapshot(self, *tables: str) -> None:
        """Until the newest snapshot of these tables is done."""
        wanted = {f"{self.database}.{table}" for table in tables}

        def done(status: Status) -> bool:
            states = {table.table: table for table in status.tables if table.table in wanted}
            failed = [table for table in states.values() if table.snapshot == "failed"]
            assert not failed, failed
            return len(states) == len(wanted) and all(t.snapshot == "done" for t in states.values())

        self.wait(f"snapshot of {sorted(wanted)}", done)

    def wait_for_sink(self, *tables: str, consistent: bool = True, seconds: float = PATIENCE_S) -> None:
        """Until the sink holds everything that is in the log now (and the tables' snapshots, if any)."""
        end = self.end_of_log()
        # A transaction behind that place, so that the log reader can be seen to have passed it.
        ident = self.send(signals.LOG, {"message": "passed {}"})

        def arrived(status: Status) -> bool:
            return self._has_arrived(status, tables, end, consistent=consistent)

        self.wait(f"{sorted(tables)} to arrive ({ident})", arrived, seconds)

    def _has_arrived(self, status: Status, tables: Collection[str], end: tuple[int, int], *, consistent: bool) -> bool:
        """Whether the sink of a status has these tables up to an end of the log."""
        wanted = {f"{self.database}.{table}" for table in tables}
        found = [table for table in status.tables if table.table in wanted]
        return len(found) == len(wanted) and all(
            table.applied is not None
            and self._is_behind(table.applied, end)
            and (table.consistent_at is not None or not consistent)
            for table in found
        )

    def verify(self, *tables: str) -> VerifyReport:
        """What `tidemark verify` reports about these tables, or all."""
        patterns = [rf"{self.database}\.{table}" for table in tables] or None
        with AwaitedRows(self.settings) as awaited:
            return verify(self.settings, tables=patterns, awaited=awaited)

    def assert_equal(self, *tables: str) -> VerifyReport:
        """Source equals sink, or the report of what differs."""
        report = self.verify(*tables)
        assert report.ok, report.to_text()
        return report


def rows_read(status: Status) -> int:
    """By all snapshots, over all tables."""
    return sum(table.rows_read for table in status.tables)


def batch_in_flight(pipeline: Pipeline) -> bool:
    """Whether the merge job is in the middle of a batch: begun, a table written, not ended."""
    lake = Path(pipeline.settings.sink.path)
    checkpoint = Path(pipeline.settings.sink.service_path) / "checkpoint"
    begun, done = (len(list(checkpoint.glob(f"{kind}/[0-9]*"))) for kind in ("offsets", "commits"))
    return begun > done and any(lake.glob(f"{pipeline.database}/*/_delta_log/*.json"))


def create_signal_table(connection: pymysql.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {SIGNAL_TABLE}"
            " (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
        )


def spark_section(*, compiled: bool = False, trigger_s: int = 2) -> dict[str, Any]:
    """Spark for a test: small, and two cores.

    What Spark compiles for an expression is not worth its cost in a few small batches. With `compiled` it does, as for users.
    Under load every batch costs the same, however few its rows: a longer `trigger_s` makes fewer.
    """
    return {
        "master": "local[2]",
        "driver_memory": "1g",
        "trigger_s": trigger_s,
        "conf": {"spark.sql.shuffle.partitions": "2", **({} if compiled else SPARING)},
    }
