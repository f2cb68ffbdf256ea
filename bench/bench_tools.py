"""The tools that copy the table to Kafka: this or another checkout of Tidemark, and Debezium."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bench.arrivals import PARTITIONS, Arrivals
from bench.bench_figures import Figure
from bench.scene import DATABASE as TABLE
from bench.scene import BenchError
from bench.stage import BOTH_TABLES, LOAD_TABLE, Stage
from devservers.processes import GuardedProcess
from schemas.overriding import override
from tests.conformance.debezium import Connector, Connectors

ROOT = Path(__file__).resolve().parents[1]
DEBEZIUM = {"max.batch.size": "8192", "max.queue.size": "32768", "poll.interval.ms": "50"}
WORKER = {"linger.ms": "50", "batch.size": "262144", "compression.type": "lz4", "buffer.memory": "67108864"}

_HEADERS = {"Content-Type": "application/json"}
_NOT_YET = (404, 409)  # the worker does not know the connector yet, or rebalances


class Tool(Protocol):
    """What a workload does with a tool."""

    name: str
    arrivals: Arrivals
    signal_table: str
    topic: str
    load_topic: str

    def resume(self) -> int:
        """Continue where it stopped; return the process whose tree is measured."""

    def pause(self) -> None:
        """Stop reading."""

    def close(self) -> None:
        """End its processes."""


class Tidemark:
    """A checkout of Tidemark: `root` is its folder, which may have a `.venv` of its own."""

    def __init__(self, stage: Stage, name: str, root: Path = ROOT, options: Mapping[str, Any] | None = None) -> None:
        self.name, self._stage, self._root = name, stage, root
        self.prefix = f"{stage.name}-{name}"
        self.signal_table = f"signal_{name}"
        stage.add_signal_table(self.signal_table)
        self._folder = stage.folder / name
        self._folder.mkdir()
        self.lake = self._folder / "lake"
        self._config = self._folder / "tidemark.yaml"
        self._config.write_text(json.dumps(self._document() | dict(options or {})), encoding="utf-8")
        self.topic = f"{self.prefix}.{stage.name}.{TABLE}"
        topics = (self.topic, f"{self.prefix}-snapshot.{stage.name}.{TABLE}")
        self.load_topic = f"{self.prefix}.{stage.name}.{LOAD_TABLE}"
        self.arrivals = Arrivals(stage.scene.kafka.bootstrap_servers, topics)
        self._children: dict[str, GuardedProcess] = {}

    def resume(self) -> int:
        """Start the producer."""
        return self.start("run").pid

    def pause(self) -> None:
        """Stop the producer."""
        child = self._children.pop("run", None)
        if child is not None:
            child.signal(signal.SIGTERM)
            child.wait(60)
            child.kill()

    def close(self) -> None:
        """Kill what still runs."""
        for child in self._children.values():
            child.kill()

    def start(self, verb: str, *arguments: str) -> GuardedProcess:
        """Start a verb of the command."""
        own = self._root / ".venv" / "bin" / "python"
        python = str(own) if own.exists() else sys.executable
        command = [python, "-m", "tidemark", verb, "--config", str(self._config), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self._root)}
        child = GuardedProcess.spawn(command, self.log(verb), cwd=self._folder, env=environment)
        self._children[verb] = child
        return child

    def log(self, verb: str) -> Path:
        """Return the path of a verb's log."""
        return self._folder / f"{verb}.log"

    def _document(self) -> dict[str, Any]:
        database, scene = self._stage.scene.database, self._stage.scene
        return {
            "name": self.prefix,
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": [rf"{self._stage.name}\.{BOTH_TABLES}"],
                "signal_table": f"{self._stage.name}.{self.signal_table}",
            },
            "kafka": {"bootstrap_servers": scene.kafka.bootstrap_servers},
            "format": {"type": "avro", "registry": scene.registry.url},
            "snapshot": {"mode": "never", "readers": 2},
            "sinks": [{"name": "lake", "type": "delta", "path": str(self.lake)}],
            "spark": {"master": "local[2]"},
        }


class Worker(Connectors):
    """Kafka Connect as a user would tune it: G1, 2 GiB, both compilers, large batches."""

    def __init__(self, stage: Stage, slug: str, worker: Mapping[str, str] | None = None) -> None:
        scene = stage.scene
        self._database, self._kafka = scene.database, scene.kafka
        super().__init__(stage.folder / slug, scene.database, scene.kafka, [])
        self._worker |= {f"{part}.converter.schemas.enable": "false" for part in ("key", "value")}
        self._worker |= {f"producer.{name}": value for name, value in (WORKER | dict(worker or {})).items()}

    @override
    def _command(self) -> list[str]:
        small = ("-Xms", "-Xmx", "-XX:")
        java, *rest = (word for word in super()._command() if not word.startswith(small))
        return [java, "-Xms512m", "-Xmx2g", "-XX:+UseG1GC", *rest]

    def create(self, prefix: str, options: Mapping[str, str]) -> None:
        """Create a connector and start it."""
        properties = self._properties(self._database, self._kafka, Connector(prefix, options))
        self.ask("POST", "", {"name": prefix, "config": properties})

    def delete(self, prefix: str) -> None:
        """Stop a connector and forget it."""
        self.ask("DELETE", prefix)

    def ask(self, method: str, what: str, document: Any = None) -> Any:
        """Send a request about connectors to the worker, once it answers; return its answer."""
        url = f"http://{self.host}:{self._port}/connectors/{what}".rstrip("/")
        body = None if document is None else json.dumps(document).encode()
        deadline = time.monotonic() + 60
        while True:
            request = urllib.request.Request(url, body, _HEADERS, method=method)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                if error.code not in _NOT_YET or time.monotonic() > deadline:
                    message = f"{method} {url}: {error.code} {error.read().decode(errors='replace')[:500]}"
                    raise BenchError(message) from None
            time.sleep(0.2)


class Debezium:
    """Debezium in one JVM, which stays warm while its connector is stopped."""

    name = "debezium"

    def __init__(
        self,
        stage: Stage,
        options: Mapping[str, str] | None = None,
        worker: Mapping[str, str] | None = None,
        *,
        name: str = name,
        slug: str = "dbz",
    ) -> None:
        self.name = name
        self.prefix = f"{stage.name}-{slug}"
        self.signal_table = f"signal_{slug}"
        stage.add_signal_table(self.signal_table)
        self.topic = f"{self.prefix}.{stage.name}.{TABLE}"
        self.load_topic = f"{self.prefix}.{stage.name}.{LOAD_TABLE}"
        self.arrivals = Arrivals(stage.scene.kafka.bootstrap_servers, [self.topic])
        self._properties = properties_of(stage, self.signal_table) | dict(options or {})
        self._server = Worker(stage, slug, worker)
        self._started = False

    def resume(self) -> int:
        """Start the JVM the first time, the connector from then on."""
        if self._started:
            self._server.ask("PUT", f"{self.prefix}/resume")
        else:
            self._server.start()
            self._server.create(self.prefix, self._properties)
            self._started = True
        return self._server.pid

    def pause(self) -> None:
        """Stop the connector; the JVM stays."""
        self._server.ask("PUT", f"{self.prefix}/stop")
        deadline = time.monotonic() + 60
        while True:
            status = self._server.ask("GET", f"{self.prefix}/status")
            if status["connector"]["state"] == "STOPPED" and not status["tasks"]:
                return
            if time.monotonic() > deadline:
                message = f"the connector does not stop: {status}"
                raise BenchError(message)
            time.sleep(0.2)

    def close(self) -> None:
        """End the JVM."""
        self._server.kill()
        self._server.close()


def properties_of(stage: Stage, signal_table: str) -> dict[str, str]:
    """Return the properties of a tuned connector for the tables of the stage."""
    return {
        **DEBEZIUM,
        "table.include.list": rf"{stage.name}\.{BOTH_TABLES}",
        "signal.data.collection": f"{stage.name}.{signal_table}",
        "topic.creation.default.partitions": str(PARTITIONS),
    }


def bring_to_end(tool: Tool, stage: Stage) -> None:
    """Start a tool for the first time, wait until a row of the log has arrived, and stop it there."""
    before = tool.arrivals.total()
    tool.resume()
    tool.arrivals.wait_for_more(before, stage.probe)
    time.sleep(1.0)
    tool.pause()


def noted(figure: Figure, note: str) -> Figure:
    """Return the figure with a note."""
    return Figure(figure.rows, figure.seconds, figure.cpu_s, figure.peak_mib, figure.extra, note)
