"""Debezium's MySQL connector under Kafka Connect standalone, as its users run it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

from tidemark.embedded import Database, Kafka, java_home
from tidemark.embedded.artifacts import bundle_files
from tidemark.embedded.processes import Server, free_port, listening

FAILED = "Task threw an uncaught and unrecoverable exception"
STREAMING = "Connected to binlog"


class Debezium(Server):
    """One connector in a JVM of its own; `options` are connector properties, they win over ours."""

    def __init__(
        self, run_dir: Path, database: Database, kafka: Kafka, prefix: str, options: Mapping[str, str]
    ) -> None:
        super().__init__("debezium", run_dir)
        self._jars = bundle_files("debezium", print)
        self._java = java_home(17) / "bin" / "java"
        self._port = 0
        self._worker = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": str(self.folder / "offsets.dat"),
            "offset.flush.interval.ms": "1000",
        }
        self._connector = {
            "name": prefix,
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "tasks.max": "1",
            "database.hostname": database.host,
            "database.port": str(database.port),
            "database.user": database.user,
            "database.password": database.password,
            "database.server.id": str(100_000 + zlib.crc32(prefix.encode()) % 800_000),
            "topic.prefix": prefix,
            "snapshot.mode": "no_data",
            "schema.history.internal.kafka.bootstrap.servers": kafka.bootstrap_servers,
            "schema.history.internal.kafka.topic": f"{prefix}-history",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "poll.interval.ms": "50",
            **options,
        }

    def _choose_ports(self) -> None:
        self._port = free_port()
        self._worker["listeners"] = f"http://{self.host}:{self._port}"

    def _prepare(self) -> None:
        for name, properties in (("worker", self._worker), ("connector", self._connector)):
            lines = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
            path = self.folder / f"{name}.properties"
            path.touch(mode=0o600)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _command(self) -> list[str]:
        return [
            str(self._java), "-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", ":".join(map(str, self._jars)), "org.apache.kafka.connect.cli.ConnectStandalone",
            str(self.folder / "worker.properties"), str(self.folder / "connector.properties"),
        ]  # fmt: skip

    def _ready(self) -> bool:
        return STREAMING in self._log_since(self._log_begin) and listening(self._port)

    def check(self) -> None:
        """Raise `RuntimeError` with Debezium's own words when its task has failed."""
        said = self._log_since(self._log_begin)
        if FAILED in said:
            causes = [line for line in said.splitlines() if "Caused by:" in line or "ERROR" in line]
            raise RuntimeError("Debezium's task failed:\n" + "\n".join(causes[:10]))
