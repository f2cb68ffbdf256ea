"""The producer of a workload of the lake: it fills topics from which any number of merge jobs then read the same records."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from bench.scene import BenchError
from bench.stage import Stage
from devservers.processes import GuardedProcess
from mysqlio.server_facts import current_position
from schemas.position import file_number
from schemas.settings import Settings
from schemas.settings.database_url import DATABASES
from schemas.topics import change_topic
from tidemark.api.observe import Observer
from tidemark.process import config

ROOT = Path(__file__).resolve().parents[1]
Ends = Mapping[str, Mapping[int, int]]
"""The end of each partition of a table's change topic, by table."""
_CONF = {"spark.network.timeout": "3600s"}
"""The time that a job was stopped for the other one's turn must not look like a lost executor."""


class Feed:
    """`tidemark run` on tables of a stage. `options` are further settings, of the producer and of every merge job."""

    def __init__(self, stage: Stage, tables: Sequence[str], options: Mapping[str, Any] | None = None) -> None:
        self.stage, self.tables = stage, tuple(tables)
        self._options = dict(options or {})
        stage.add_signal_table("tidemark_signal")
        self.servers = stage.scene.kafka.bootstrap_servers
        self.registry = stage.scene.registry.url
        self._config = self.config("run", stage.folder / "no-lake")
        self.settings: Settings = config.load(self._config, {})
        self._child: GuardedProcess | None = None
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})

    def config(self, name: str, lake: Path, sink: Mapping[str, Any] | None = None, udfs: Sequence[Any] = ()) -> Path:
        """Write the settings of a process with a sink in this folder, and return the path. `sink` has further settings of it."""
        path = self.stage.folder / f"{name.replace(' ', '-')}.yaml"
        document = self._document(lake)
        document["sinks"] = [sink_document(lake, sink or {})]
        document |= {"udfs": list(udfs)} if udfs else {}
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    def topic(self, table: str) -> str:
        """Return the change topic of a table."""
        return change_topic(self.stage.name, self.stage.name, table)

    @property
    def pid(self) -> int:
        """The id of the producer's process, which runs."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """Start the producer, and wait until it follows the log."""
        self._child = spawned(["run", "--config", str(self._config)], self._log, ROOT)
        self.wait_until_read(("", 0))

    def stop(self) -> None:
        """Stop the producer; what it has written is committed then."""
        child, self._child = self._child, None
        if child is not None:
            child.signal(signal.SIGTERM)
            if not child.wait(60):
                child.kill()

    def fill(self, work: Callable[[], None]) -> Ends:
        """Do the work while the producer runs, wait until all of it is in Kafka, and return where the topics end then."""
        self.start()
        work()
        self.wait_until_read(self.end_of_log())
        self.stop()
        return self.ends()

    def end_of_log(self) -> tuple[str, int]:
        """Return file and offset behind the last transaction of the source."""
        with self.stage.connect() as connection:
            end = current_position(connection)
        return end.file, end.pos

    def wait_until_read(self, end: tuple[str, int], seconds: float = 400.0) -> None:
        """Wait until the producer has committed everything before this end of the log."""
        wanted = (file_number(end[0]), end[1]) if end[0] else (0, 0)
        deadline = time.monotonic() + seconds
        with Observer(self.settings) as observer:
            while True:
                log = observer.read().log
                if log is not None and (log.position.file, log.position.offset) >= wanted:
                    return
                if self._child is None or self._child.status is not None or time.monotonic() > deadline:
                    message = f"the producer did not read the log to its end:\n{tail(self._log)}"
                    raise BenchError(message)
                time.sleep(0.1)

    def ends(self) -> Ends:
        """Return where the change topics end now; a topic that does not exist yet has no partitions."""
        listed = self._admin.list_topics(timeout=30).topics
        topics = {table: self.topic(table) for table in self.tables}
        partitions = {table: sorted(listed[topic].partitions) for table, topic in topics.items() if topic in listed}
        deadline = time.monotonic() + 30
        while True:
            try:
                return self._ends(partitions)
            except KafkaException:  # a new partition has no leader yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _ends(self, partitions: Mapping[str, Sequence[int]]) -> Ends:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.topic(table), number): table for table in partitions for number in partitions[table]}
        found: dict[str, dict[int, int]] = {table: {} for table in partitions}
        for partition, future in self._admin.list_offsets(dict.fromkeys(asked, latest)).items():
            found[asked[partition]][partition.partition] = future.result().offset
        return found

    @property
    def _log(self) -> Path:
        return self.stage.folder / "run.log"

    def _document(self, lake: Path) -> dict[str, Any]:
        database, name = self.stage.scene.database, self.stage.name
        document: dict[str, Any] = {
            "name": name,
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": [rf"{name}\.bench.*"],
                "signal_table": f"{name}.tidemark_signal",
            },
            "kafka": {"bootstrap_servers": self.servers},
            "format": {"type": "avro", "registry": self.registry},
            "snapshot": {"mode": "never", "readers": 2},
            "sinks": [sink_document(lake, {})],
            "spark": {"master": "local[2]", "conf": _CONF},
        }
        for section, values in self._options.items():
            document[section] = {**document.get(section, {}), **values}
        return document


def sink_document(folder: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a sink in a folder, which is the `work` of a database: of Delta, or as `more` says."""
    key = "work" if more.get("type") in DATABASES else "path"
    return {"name": "lake", "type": "delta", key: str(folder), **more}


def spawned(arguments: Sequence[str], log: Path, root: Path, module: str = "tidemark") -> GuardedProcess:
    """Start a module of a checkout, with the checkout's own Python where it has one."""
    own = root / ".venv" / "bin" / "python"
    command = [str(own) if own.exists() else sys.executable, "-m", module, *arguments]
    return GuardedProcess.spawn(command, log, cwd=log.parent, env={**os.environ, "PYTHONPATH": str(root)})


def tail(path: Path) -> str:
    """Return the end of a log; nothing where there is none."""
    with suppress(OSError):
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])
    return ""
