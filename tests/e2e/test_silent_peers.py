"""Peers that say nothing: every command reports what it waits for, and ends when it is asked to.

A peer is silent from the start (`SilentPeer`), or stops in the middle of its work (`Proxy.stall`). The bounds are about
waiting for ever: a machine that is busy with other tests is slow.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pytest
from deltalake import DeltaTable

from devservers import Database, Kafka, Registry
from devservers._guard import children_of
from devservers.processes import GuardedProcess
from tests.chaos.proxy import Proxy
from tests.e2e.child_processes import environment
from tests.e2e.pipeline import create_signal_table, spark_section
from tests.support.servers import unique_name
from tests.support.silent import SilentPeer

SAID_WITHIN_S: Final = 60.0
"""After five seconds of silence; the start of the command on a busy machine is on top."""
SILENT_S: Final = range(5, 13)
"""What the report may say of how long the silence has lasted: five seconds, and a busy machine."""
ENDED_WITHIN_S: Final = 15.0
"""Five seconds are promised."""
PATIENCE_S: Final = 180.0
PEERS: Final = ("source", "kafka", "registry")
SILENT_NAMES: Final = """
import socket, time
asked = socket.getaddrinfo
def getaddrinfo(host, *arguments, **more):
    if host == "nobody.invalid":
        time.sleep(600)
    return asked(host, *arguments, **more)
socket.getaddrinfo = getaddrinfo
"""


class World:
    """A source with one table, and proxies before source, broker and registry; writes configurations for commands."""

    def __init__(self, folder: Path, server: Database, database: str, kafka: Kafka, registry: Registry) -> None:
        self.folder, self.server, self.database = folder, server, database
        self.name = unique_name("silent")
        kafka_port = int(kafka.bootstrap_servers.rpartition(":")[2])
        address, _, self.registry_path = registry.url.removeprefix("http://").partition("/")
        registry_port = int(address.rpartition(":")[2])
        self.ports = {"source": server.port, "kafka": kafka_port, "registry": registry_port}
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            create_signal_table(connection)
            cursor.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(50))")
            cursor.execute("INSERT INTO items VALUES (1, 'one'), (2, 'two')")

    def config(self, ports: dict[str, int] | None = None, source_more: dict[str, Any] | None = None, **more: Any) -> Path:
        """A configuration file; `ports` replaces those of some peers."""
        port = {**self.ports, **(ports or {})}
        document: dict[str, Any] = {
            "name": self.name,
            "source": {
                "host": "127.0.0.1",
                "port": port["source"],
                "user": self.server.user,
                "password": self.server.password,
                "tables": [rf"{self.database}\.items"],
                "signal_table": f"{self.database}.tidemark_signal",
                **(source_more or {}),
            },
            "kafka": {"bootstrap_servers": f"127.0.0.1:{port['kafka']}"},
            "format": {"type": "avro", "registry": f"http://127.0.0.1:{port['registry']}/{self.registry_path}"},
            "sinks": [{"name": "lake", "type": "delta", "path": str(self.folder / "lake")}],
            "spark": spark_section(),
        } | more
        path = self.folder / f"{unique_name('tidemark')}.yaml"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    def merged(self) -> list[tuple[int, str]]:
        """The rows in the lake."""
        table = DeltaTable(self.folder / "lake" / self.database / "items")
        return sorted((row["id"], row["name"]) for row in table.to_pyarrow_table().to_pylist())

    def sql(self, statement: str) -> None:
        with self.server.connect(database=self.database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)


class Command:
    """`tidemark <verb>` as a process of its own; killed at the end of the `with` block if it still runs."""

    def __init__(self, folder: Path, config: Path, verb: str, *arguments: str, python_path: Path | None = None) -> None:
        self._log = folder / f"{unique_name(verb)}.log"
        line = [sys.executable, "-m", "tidemark", verb, "--config", str(config), *arguments]
        env = environment()
        if python_path is not None:
            env["PYTHONPATH"] = os.pathsep.join((str(python_path), env["PYTHONPATH"]))
        self.process = GuardedProcess.spawn(line, self._log, cwd=folder, env=env)
        self.begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """What it has logged."""
        lines = [line for line in self.text().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def waits(self, peer: str, after: int = 0) -> list[dict[str, Any]]:
        found = self.events()[after:]
        return [event for event in found if event["event"] == "waiting.for_peer" and event["peer"] == peer]

    def until(self, what: str, done: Callable[[], object], seconds: float = PATIENCE_S) -> float:
        """Wait; the seconds it took."""
        begun = time.monotonic()
        while not done():
            assert time.monotonic() - begun < seconds, f"after {seconds:g} s still not: {what}\n{self.text()}"
            assert self.process.status is None, f"ended with {self.process.status}\n{self.text()}"
            time.sleep(0.05)
        return time.monotonic() - begun

    def until_event(self, name: str) -> float:
        return self.until(name, lambda: any(event["event"] == name for event in self.events()))

    def until_said(self, peer: str, after: int = 0) -> float:
        """Until it reports that it waits for a peer; the seconds that took."""
        took = self.until(f"waiting for {peer}", lambda: self.waits(peer, after), SAID_WITHIN_S)
        event = self.waits(peer, after)[0]
        assert event["what"], event
        assert event["seconds"] in SILENT_S, event
        assert ":" in event["address"], event
        return took

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int | None, float]:
        """Send the signal: exit status, and the seconds until the end."""
        begun = time.monotonic()
        children = children_of(self.process.pid)
        self.process.signal(number)
        assert self.process.wait(ENDED_WITHIN_S), f"did not end within {ENDED_WITHIN_S:g} s\n{self.text()}"
        took = time.monotonic() - begun
        sys.stderr.write(f"ended {took:.1f} s after {number.name}\n")
        while any(Path(f"/proc/{child}").exists() for child in children):
            assert time.monotonic() - begun < ENDED_WITHIN_S, f"children are left: {children}"
            time.sleep(0.05)
        return self.process.status, took


@pytest.fixture
def world(tmp_path: Path, mysql80: Database, kafka: Kafka, registry: Registry, fresh_database: Any) -> World:
    return World(tmp_path, mysql80, fresh_database(mysql80), kafka, registry)


@contextmanager
def frozen(kafka: Kafka) -> Iterator[None]:
    """A broker that takes connections and says nothing; the address that it names to clients is its own."""
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kafka.pid, signal.SIGCONT)


@pytest.mark.parametrize("peer", PEERS)
def test_a_producer_reports_a_peer_that_is_silent_from_the_start(world: World, peer: str) -> None:
    with SilentPeer() as silent, Command(world.folder, world.config({peer: silent.port}), "run") as producer:
        said = producer.until_said(peer)
        status, took = producer.end()
    assert status == 0, (said, took)


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["source", "registry"])
def test_a_name_server_that_does_not_answer_is_reported_as_the_peer_that_is_waited_for(world: World, peer: str) -> None:
    """The client of Kafka looks names up in threads of its own: there it is a broker that is not reached, as any other."""
    (world.folder / "sitecustomize.py").write_text(SILENT_NAMES, "utf-8")
    registry = {"type": "avro", "registry": "http://nobody.invalid:8080/apis/ccompat/v7"}
    config = world.config(source_more={"host": "nobody.invalid"}) if peer == "source" else world.config(format=registry)
    with Command(world.folder, config, "run", python_path=world.folder) as producer:
        said = producer.until_said(peer)
        status, took = producer.end()
    assert status == 0, (said, took)


@pytest.mark.parametrize(("peer", "verb"), [("source", "signal"), ("source", "verify"), ("kafka", "status")])
def test_a_short_command_reports_a_silent_peer_and_is_interrupted(world: World, peer: str, verb: str) -> None:
    arguments = {"signal": ("pause-snapshot",)}.get(verb, ())
    with SilentPeer() as silent, Command(world.folder, world.config({peer: silent.port}), verb, *arguments) as command:
        command.until_said(peer)
        status, _ = command.end(signal.SIGINT)
    assert status == 130


def test_a_source_that_stops_sending_its_log_is_reported(world: World) -> None:
    """Nothing is written there, so nothing but heartbeats is missing."""
    with Proxy(world.server.port) as proxy:
        port = {"source": proxy.port}
        config = world.config(port, source_more={"heartbeat_s": 1}, snapshot={"mode": "never"})
        with Command(world.folder, config, "run") as producer:
            producer.until_event("producer.started")
            before = len(producer.events())
            proxy.stall()
            producer.until_said("source", before)
            status, _ = producer.end()
        proxy.heal()
    assert status == 0


def test_a_broker_that_freezes_under_a_pipeline_is_reported_and_every_part_ends(world: World, kafka: Kafka) -> None:
    """The producer has a transaction open, the merge job asks for offsets; the next start has everything."""
    config = world.config()
    with Command(world.folder, config, "run") as producer, Command(world.folder, config, "merge") as merge:
        producer.until_event("producer.started")
        merge.until("the table is merged", lambda: list((world.folder / "lake").glob("*/items/*.parquet")))
        said = len(producer.events()), len(merge.events())
        with frozen(kafka):
            world.sql("INSERT INTO items VALUES (3, 'three')")
            producer.until_said("kafka", said[0])
            merge.until_said("kafka", said[1])
            statuses = [command.end()[0] for command in (producer, merge)]
        assert statuses == [0, 0]
    with Command(world.folder, config, "run") as producer, Command(world.folder, config, "merge") as merge:
        everything = [(1, "one"), (2, "two"), (3, "three")]
        merge.until("all rows are merged", lambda: world.merged() == everything)
        statuses = [command.end(signal.SIGINT)[0] for command in (producer, merge)]
    assert statuses == [0, 0]
