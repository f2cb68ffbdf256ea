"""The tools that copy the table to Kafka: this or another checkout of Tidemark, and Debezium."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bench.arrivals import PARTITIONS, Arrivals
from bench.bench_figures import Figure
from bench.scene import DATABASE as TABLE
from bench.scene import BenchError
from bench.stage import Stage
from devservers.processes import GuardedProcess
from schemas.overriding import override
from tests.conformance.debezium import Connector, Connectors

ROOT = Path(__file__).resolve().parents[1]
DEBEZIUM = {"max.batch.size": "8192", "max.queue.size": "32768", "poll.interval.ms": "50"}
WORKER = {"linger.ms": "50", "batch.size": "262144", "compression.type": "lz4", "buffer.memory": "67108864"}


class Tool(Protocol):
    """What a workload does with a tool."""

    name: str
    arrivals: Arrivals
    signal_table: str

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
                "tables": [rf"{self._stage.name}\.{TABLE}"],
                "signal_table": f"{self._stage.name}.{self.signal_table}",
            },
            "kafka": {"bootstrap_servers": scene.kafka.bootstrap_servers},
            "format": {"type": "avro", "registry": scene.registry.url},
            "snapshot": {"mode": "never", "readers": 2},
            "sinks": [{"name": "lake", "type": "delta", "path": str(self.lake)}],
            "spark": {"master": "local[2]"},
        }


class _Worker(Connectors):
    """Kafka Connect as a user would tune it: G1, 2 GiB, both compilers, large batches."""

    def __init__(self, stage: Stage, prefix: str, options: Mapping[str, str], worker: Mapping[str, str]) -> None:
        scene = stage.scene
        super().__init__(stage.folder, scene.database, scene.kafka, [Connector(prefix, options)])
        self._prefix = prefix
        self._worker |= {f"{part}.converter.schemas.enable": "false" for part in ("key", "value")}
        self._worker |= {f"producer.{name}": value for name, value in (WORKER | dict(worker)).items()}

    @override
    def _command(self) -> list[str]:
        small = ("-Xms", "-Xmx", "-XX:")
        java, *rest = (word for word in super()._command() if not word.startswith(small))
        return [java, "-Xms512m", "-Xmx2g", "-XX:+UseG1GC", *rest]

    def ask(self, method: str, what: str) -> Any:
        """Send a request about the connector to the worker; return its answer."""
        url = f"http://{self.host}:{self._port}/connectors/{self._prefix}/{what}"
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body = answer.read()
        return json.loads(body) if body else None


class Debezium:
    """Debezium in one JVM, which stays warm while its connector is stopped."""

    name = "debezium"

    def __init__(self, stage: Stage, options: Mapping[str, str] | None = None, worker: Mapping[str, str] | None = None) -> None:
        self.prefix = f"{stage.name}-dbz"
        self.signal_table = "signal_debezium"
        stage.add_signal_table(self.signal_table)
        self.topic = f"{self.prefix}.{stage.name}.{TABLE}"
        self.arrivals = Arrivals(stage.scene.kafka.bootstrap_servers, [self.topic])
        properties = {
            **DEBEZIUM,
            "table.include.list": rf"{stage.name}\.{TABLE}",
            "signal.data.collection": f"{stage.name}.{self.signal_table}",
            "topic.creation.default.partitions": str(PARTITIONS),
            **(options or {}),
        }
        self._server = _Worker(stage, self.prefix, properties, worker or {})
        self._started = False

    def resume(self) -> int:
        """Start the JVM the first time, the connector from then on."""
        if self._started:
            self._server.ask("PUT", "resume")
        else:
            self._server.start()
            self._started = True
        return self._server.pid

    def pause(self) -> None:
        """Stop the connector; the JVM stays."""
        self._server.ask("PUT", "stop")
        deadline = time.monotonic() + 60
        while True:
            status = self._server.ask("GET", "status")
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
