"""Debezium's connectors under Kafka Connect standalone, as their users run them."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devservers import Database, Kafka
from devservers.bundles import bundle_files
from devservers.processes import Server, free_port, listening
from tidemark.runtime import java_home

FAILED: Final = "Task threw an uncaught and unrecoverable exception"
STREAMING: Final = "Connected to binlog"
PATIENCE_S: Final = 900.0
CLASSES: Final = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}
BUNDLES: Final = {"mysql": ("debezium", "debezium-avro"), "mariadb": ("debezium-mariadb",)}
JSON: Final = {
    f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")
}

KEEPS_NULLS: Final = JSON | {f"{part}.converter.replace.null.with.default": "false" for part in ("key", "value")}
"""Options of a converter count for a connector only where it names the converter."""


def avro(registry: str) -> dict[str, str]:
    """The converters that write Confluent's wire format through Apicurio's API; `registry` is its base URL."""
    common = {
        "apicurio.registry.url": f"{registry}/apis/registry/v2",
        "apicurio.registry.auto-register": "true",
        "apicurio.registry.find-latest": "true",
        "apicurio.registry.as-confluent": "true",
        "apicurio.registry.use-id": "contentId",
        "apicurio.registry.headers.enabled": "false",
    }
    return {
        "schema.name.adjustment.mode": "avro",
        "field.name.adjustment.mode": "avro",
        **{
            name: value
            for part in ("key", "value")
            for name, value in {
                f"{part}.converter": "io.apicurio.registry.utils.converter.AvroConverter",
                **{f"{part}.converter.{option}": text for option, text in common.items()},
            }.items()
        },
    }


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector; `options` are its properties, they win over ours."""

    prefix: str
    options: Mapping[str, str]


class Connectors(Server):
    """Some connectors of one database in one JVM; started before they read the log."""

    def __init__(
        self, run_dir: Path, database: Database, kafka: Kafka, connectors: Sequence[Connector]
    ) -> None:
        super().__init__(f"debezium-{database.name}", run_dir)
        self._jars = [jar for bundle in BUNDLES[database.flavour] for jar in bundle_files(bundle, print)]
        self._java = java_home(17) / "bin" / "java"
        self._port = 0
        self._worker = {
            "bootstrap.servers": kafka.bootstrap_servers,
            **JSON,
            "offset.storage.file.filename": str(self.folder / "offsets.dat"),
            "offset.flush.interval.ms": "1000",
        }
        self._connectors = {
            connector.prefix: self._properties(database, kafka, connector) for connector in connectors
        }

    @staticmethod
    def _properties(database: Database, kafka: Kafka, connector: Connector) -> dict[str, str]:
        prefix = connector.prefix
        return {
            "name": prefix,
            "connector.class": CLASSES[database.flavour],
            "tasks.max": "1",
            "database.hostname": database.host,
            "database.port": str(database.port),
            "database.user": database.user,
            "database.password": database.password,
            "database.server.id": str(100_000 + zlib.crc32(prefix.encode()) % 800_000),
            "topic.prefix": prefix,
            "snapshot.mode": "no_data",
            "snapshot.locking.mode": "none",
            "include.schema.changes": "false",
            "schema.history.internal.kafka.bootstrap.servers": kafka.bootstrap_servers,
            "schema.history.internal.kafka.topic": f"{prefix}-history",
            "schema.history.internal.store.only.captured.databases.ddl": "true",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "poll.interval.ms": "50",
            **connector.options,
        }

    def _choose_ports(self) -> None:
        self._port = free_port()
        self._worker["listeners"] = f"http://{self.host}:{self._port}"

    def _prepare(self) -> None:
        for name, properties in (("worker", self._worker), *self._connectors.items()):
            lines = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
            path = self._file(name)
            path.touch(mode=0o600)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.properties"

    def _command(self) -> list[str]:
        return [
            str(self._java), "-Xms256m", "-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", ":".join(map(str, self._jars)), "org.apache.kafka.connect.cli.ConnectStandalone",
            str(self._file("worker")), *(str(self._file(prefix)) for prefix in self._connectors),
        ]  # fmt: skip

    def _ready(self) -> bool:
        return listening(self._port)

    @property
    def streaming(self) -> bool:
        """Whether every connector reads the log."""
        return self._log_since(self._log_begin).count(STREAMING) >= len(self._connectors)

    def wait_until_streaming(self) -> None:
        """Until every connector reads the log; raises as `check`, and `TimeoutError`."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.streaming:
            self.check()
            if time.monotonic() > deadline:
                message = f"after {PATIENCE_S:g} s not every connector reads the log; see {self.log_path}"
                raise TimeoutError(message)
            time.sleep(0.5)

    def check(self) -> None:
        """Raise `RuntimeError` with Debezium's own words when a task has failed."""
        said = self._log_since(self._log_begin)
        if FAILED in said:
            causes = [line for line in said.splitlines() if "Caused by:" in line or "ERROR" in line]
            raise RuntimeError("a task of Debezium failed:\n" + "\n".join(causes[:10]))
        if not self.running:
            message = f"Kafka Connect has ended:\n{self._tail()}"
            raise RuntimeError(message)


class Debezium(Connectors):
    """One connector in a JVM of its own; started when it reads the log."""

    def __init__(
        self, run_dir: Path, database: Database, kafka: Kafka, prefix: str, options: Mapping[str, str]
    ) -> None:
        super().__init__(run_dir, database, kafka, [Connector(prefix, options)])

    def _ready(self) -> bool:
        return self.streaming and super()._ready()
