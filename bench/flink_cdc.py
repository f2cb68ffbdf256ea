"""Flink CDC as an optional peer (`--flink`): its MySQL source into a Kafka topic, by Flink SQL in one JVM that stays warm.

Flink runs as a MiniCluster. The job reads from the position where the one before was cancelled. Its records are Flink's
`debezium-json`: `before`, `after` and `op` without the source block, so they are smaller than Debezium's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.arrivals import Arrivals
from bench.scene import DATABASE as TABLE
from bench.stage import Position, Stage
from devservers.bundles import bundle_entries, bundle_files
from schemas.overriding import override
from tests.support.flink import Flink

_COLUMNS = (
    "id BIGINT, a INT, b STRING, c DECIMAL(12, 2), d TIMESTAMP(6), e STRING, f DOUBLE, g BOOLEAN, h STRING, i TIMESTAMP(0)"
)
_DRIVER = "mysql-connector-j"


class _Jvm(Flink):
    """Flink with the jars of Flink CDC, with both compilers, G1 and 2 GiB."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self._jars += bundle_files("flink-cdc", print)
        driver = [_DRIVER in str(entry) for entry in bundle_entries("debezium")]
        self._jars += [path for path, wanted in zip(bundle_files("debezium", print), driver, strict=True) if wanted]

    @override
    def _command(self) -> list[str]:
        small = ("-Xms", "-Xmx", "-XX:")
        java, *rest = (word for word in super()._command() if not word.startswith(small))
        return [java, "-Xms512m", "-Xmx2g", "-XX:+UseG1GC", *rest]


class FlinkCdc:
    """Jobs of Flink CDC for the table `bench`, one after the other."""

    name = "flink-cdc"
    signal_table = ""
    load_topic = ""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.topic = f"{stage.name}-flink.{TABLE}"
        self.arrivals = Arrivals(stage.scene.kafka.bootstrap_servers, [self.topic])
        self._jvm = _Jvm(stage.folder)
        self._job: Any = None
        self._number = 0
        self._position: Position | None = None

    def resume(self) -> int:
        """Start the JVM the first time, and a job that reads from where the last one was cancelled."""
        where = {"scan.startup.mode": "latest-offset"}
        if self._position is not None:
            where = {
                "scan.startup.mode": "specific-offset",
                "scan.startup.specific-offset.file": self._position.file,
                "scan.startup.specific-offset.pos": str(self._position.offset),
            }
        return self.start(where, self.topic)

    def start(self, where: dict[str, str], topic: str) -> int:
        """Start a job into a topic; return the process of the JVM."""
        if not self._jvm.running:
            self._jvm.start()
            self._jvm.set("execution.checkpointing.interval", "1 s")
            self._jvm.set("parallelism.default", "1")
        self._number += 1
        database = self._stage.scene.database
        source = {
            "connector": "mysql-cdc",
            "hostname": database.host,
            "port": str(database.port),
            "username": database.user,
            "password": database.password,
            "database-name": self._stage.name,
            "table-name": TABLE,
            "server-time-zone": "UTC",
            **where,
        }
        sink = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": self._stage.scene.kafka.bootstrap_servers,
            "properties.compression.type": "lz4",
            "properties.linger.ms": "50",
            "properties.batch.size": "262144",
            "format": "debezium-json",
        }
        for name, options in (("source", source), ("sink", sink)):
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
            key = ", PRIMARY KEY (id) NOT ENFORCED" if name == "source" else ""
            self._jvm.sql(f"CREATE TABLE {name}_{self._number} ({_COLUMNS}{key}) WITH ({listed})")
        result = self._jvm.sql(f"INSERT INTO sink_{self._number} SELECT * FROM source_{self._number}")
        self._job = result.getJobClient().get()
        return self._jvm.pid

    def pause(self) -> None:
        """Cancel the job."""
        if self._job is not None:
            self._job.cancel().get()
            self._job = None
        self._position = self._stage.position()

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()
        self._jvm.close()
