"""A Kafka broker: KRaft, one node, from Kafka's own jars."""

from __future__ import annotations

import logging
import re
import secrets
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from devservers.bundles import bundle_entries, bundle_files
from devservers.processes import GuardedProcess, Server, ServerStartError, free_port, listening
from schemas.overriding import override
from schemas.topics import RECORD_BYTES
from tidemark.runtime.artifacts import build_once, cache_folder
from tidemark.runtime.class_archive import ClassArchive
from tidemark.runtime.java import java_home

log = logging.getLogger(__name__)

HEAP_MIB: Final = 512
PROPERTIES: Final = f"""process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
auto.create.topics.enable=false
message.max.bytes={RECORD_BYTES}
replica.fetch.max.bytes={RECORD_BYTES}
socket.request.max.bytes={2 * RECORD_BYTES}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=9000
"""
LOG4J: Final = """Configuration:
  Appenders:
    Console:
      name: C
      target: SYSTEM_OUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        - ref: C
"""


class Kafka(Server):
    """A broker that is also its controller. `bootstrap_servers` is `127.0.0.1:<port>`.

    `secure` names further listeners by their protocols (SSL, SASL_SSL, SASL_PLAINTEXT), each on a port of its own;
    `properties` are further ones of the broker: certificates, users. `heap_mib` is enough for some thousand partitions. `port` is
    a port to listen on, 0 for a free one.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        record_classes: bool = False,
        secure: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        heap_mib: int = HEAP_MIB,
        port: int = 0,
    ) -> None:
        super().__init__("kafka", run_dir)
        self.port = self._wanted_port = port
        self._heap_mib = heap_mib
        self._secure_ports = dict.fromkeys(secure, 0)
        self._properties = dict(properties or {})
        self._controller_port = 0
        self.data_dir = self.folder / "data"
        self._java = java_home(17) / "bin" / "java"
        self._jars = bundle_files("kafka", log.info)
        self._archive = ClassArchive("kafka", self._java, self._jars, self.folder, record=record_classes)

    @property
    def bootstrap_servers(self) -> str:
        """For `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    def listener(self, protocol: str) -> str:
        """For `bootstrap.servers` by one of the `secure` protocols."""
        return f"{self.host}:{self._secure_ports[protocol]}"

    @override
    def _choose_ports(self) -> None:
        self.port, self._controller_port = self._wanted_port or free_port(), free_port()
        self._secure_ports = {protocol: free_port() for protocol in self._secure_ports}

    @override
    def _prepare(self) -> None:
        (self.folder / "log4j2.yaml").write_text(LOG4J, "utf-8")
        ports = {"PLAINTEXT": self.port, **self._secure_ports}
        listeners = ",".join(f"{protocol}://{self.host}:{port}" for protocol, port in ports.items())
        protocols = ",".join(f"{protocol}:{protocol}" for protocol in ports)
        properties = (
            f"{PROPERTIES}controller.quorum.voters=1@{self.host}:{self._controller_port}\n"
            f"listeners={listeners},CONTROLLER://{self.host}:{self._controller_port}\n"
            f"advertised.listeners={listeners}\nlog.dirs={self.data_dir}\n"
            f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}\n"
        ) + "".join(f"{key}={value}\n" for key, value in self._properties.items())
        (self.folder / "server.properties").write_text(properties, "utf-8")
        if not (self.data_dir / "meta.properties").exists():
            shutil.rmtree(self.data_dir, ignore_errors=True)
            shutil.copytree(self._formatted(), self.data_dir)
            meta = self.data_dir / "meta.properties"
            text = meta.read_text("utf-8")
            for key in ("cluster.id", "directory.id"):
                text = re.sub(rf"(?m)^{re.escape(key)}=.*$", f"{key}={_uuid()}", text)
            meta.write_text(text, "utf-8")

    def _formatted(self) -> Path:
        """Return a cached formatted log directory: formatting starts a Java of its own and takes two seconds."""
        main = next(entry for entry in bundle_entries("kafka") if ":kafka_2.13:" in entry.coordinate)

        def build(target: Path) -> None:
            config = target / "server.properties"
            config.write_text(
                f"{PROPERTIES}controller.quorum.voters=1@{self.host}:1\nlog.dirs={target / 'data'}\n"
                f"listeners=PLAINTEXT://{self.host}:2,CONTROLLER://{self.host}:1\n", "utf-8",
            )  # fmt: skip
            (target / "log4j2.yaml").write_text(LOG4J, "utf-8")
            command = [
                str(self._java), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={target / 'log4j2.yaml'}", "-cp", self._class_path(),
                "kafka.tools.StorageTool", "format", "-t", _uuid(), "-c", str(config),
            ]  # fmt: skip
            log_path = target / "format.log"
            process = GuardedProcess.spawn(command, log_path, cwd=target, env=self._environment())
            if not process.wait(120):
                process.kill()
            if process.status != 0:
                msg = f"Kafka's storage was not formatted: {log_path.read_text('utf-8', 'replace')[-2000:]}"
                raise ServerStartError(msg)

        return build_once(cache_folder() / "data" / f"kafka-{main.sha256[:12]}", build) / "data"

    def _class_path(self) -> str:
        return ":".join(map(str, self._jars))

    @override
    def _command(self) -> list[str]:
        return [
            str(self._java), "-Xms128m", f"-Xmx{self._heap_mib}m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
            *self._archive.options(),
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}",
            "-cp", self._class_path(), "kafka.Kafka", str(self.folder / "server.properties"),
        ]  # fmt: skip

    @override
    def _ended(self, *, graceful: bool) -> None:
        (self._archive.adopt if graceful else self._archive.discard)()

    @override
    def _ready(self) -> bool:
        return "Kafka Server started" in self._log_since(self._log_begin) and listening(self.port)


def _uuid() -> str:
    """Kafka's form of an id: 16 random bytes, URL-safe base64 without padding, not starting with a dash."""
    while True:
        text = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def start_kafka(
    run_dir: Path,
    *,
    record_classes: bool = False,
    secure: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    heap_mib: int = HEAP_MIB,
) -> Kafka:
    """Start a broker with its files under `run_dir/kafka`; `record_classes` as in `tidemark.runtime.class_archive`.

    `secure`, `properties` and `heap_mib` as in `Kafka`.

    Raises ArtifactError when its files are unavailable, ServerStartError with the end of the log otherwise.
    """
    return Kafka(
        Path(run_dir), record_classes=record_classes, secure=secure, properties=properties, heap_mib=heap_mib
    ).start()
