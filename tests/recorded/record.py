"""Record what a version of Tidemark leaves behind: `python -m tests.recorded.record CHECKOUT [TARGET]`.

CHECKOUT is a checkout of that version (`git worktree add ../old 16a9550`); its producer and merge job run with the
dependencies of this environment. TARGET is a folder, `tests/recorded/<commit>` by default. The steps::

    1. a first snapshot is finished; DDL, deletes, TRUNCATE, cascades and a snapshot merged by the producer follow
    2. a record that cannot be decoded goes to quarantine
    3. a second snapshot is in progress: the largest table is locked, so that chunks of it stay open; XA is prepared
    4. the merge job is killed between its write to a table and the end of that batch; the producer publishes more
    5. the producer is killed inside a Kafka transaction
    6. changes follow that nobody reads; the servers end in order, and what is on their disks is packed
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from devservers import Database, Kafka, start_database, start_kafka, start_registry
from schemas import topics
from tests.e2e.pipeline import Pipeline
from tests.recorded import recorded_workload as workload
from tests.recorded.archive import pack
from tests.recorded.recorded_workload import DATABASE
from tests.recorded.table_dump import dump
from tests.support.record_producer import RecordProducer

NAME = "recorded"
SETTINGS = {"kafka": {"partitions": 2}, "snapshot": {"mode": "never", "readers": 2, "chunk_rows": 60}}
OPEN_CHUNKS = 12
_ATTEMPTS = 20


def main(arguments: list[str]) -> None:
    """Record a checkout."""
    checkout = Path(arguments[0]).absolute()
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    target = Path(arguments[1]) if len(arguments) > 1 else Path(__file__).with_name(commit)
    run = Path(tempfile.mkdtemp(prefix="tidemark-record-"))
    try:
        record(checkout, run, target)
    except BaseException:
        _say(f"the servers' folders and the logs are in {run}")
        raise
    shutil.rmtree(run)


def record(checkout: Path, run: Path, target: Path) -> None:
    """Play the steps with servers in `run`, and write the recording to `target`."""
    with ExitStack() as stack:
        server = stack.enter_context(start_database("mysql80", run, {"binlog_expire_logs_seconds": "0"}))
        kafka = stack.enter_context(start_kafka(run, properties={"broker.session.timeout.ms": "120000"}))
        registry = stack.enter_context(start_registry(run))
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {DATABASE}")
            for statement in workload.SCHEMA:
                cursor.execute(statement)
            workload.fill(cursor)
        more = {"kafka": {"bootstrap_servers": kafka.bootstrap_servers} | SETTINGS["kafka"], "snapshot": SETTINGS["snapshot"]}
        pipeline = stack.enter_context(Pipeline(NAME, run / NAME, server, DATABASE, kafka, registry, more))
        pipeline.env["PYTHONPATH"] = str(checkout)
        with _Recording(pipeline, server, kafka) as recording:
            recording.play()
        statements = "".join(f"{statement};\n" for statement in dump(server, DATABASE))
    target.mkdir(parents=True, exist_ok=True)  # the servers have ended in order
    (server.data_dir / "tables.sql").write_text(statements, encoding="utf-8")
    logs = sorted(path.name for path in server.data_dir.glob("binlog.*"))
    pack(server.data_dir, target / "source.tar.xz", ["auto.cnf", "tables.sql", *logs])
    pack(kafka.data_dir, target / "broker.tar.xz")
    pack(registry.folder / "data", target / "registry.tar.xz")
    pack(run / NAME / "lake", target / "sink.tar.xz")
    (target / "settings.json").write_text(json.dumps({"name": NAME, **SETTINGS}, indent=2) + "\n", encoding="utf-8")
    for path in sorted(target.iterdir()):
        _say(f"{path.stat().st_size:9,} {path.name}")


class _Recording:
    """The steps, on servers that run."""

    def __init__(self, pipeline: Pipeline, server: Database, kafka: Kafka) -> None:
        self._pipeline, self._server, self._kafka = pipeline, server, kafka
        self._churned = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._owner = self._stack.enter_context(closing(self._pipeline.connect()))  # locks the largest table
        self._preparer = self._stack.enter_context(closing(self._pipeline.connect()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self) -> None:
        """Play all steps; both processes are dead afterwards."""
        self._first_snapshot()
        self._quarantine()
        self._second_snapshot()
        self._kill_merge_job()
        self._kill_producer()
        self._tail()

    def _first_snapshot(self) -> None:
        pipeline = self._pipeline
        pipeline.start("merge", "run")
        pipeline.wait("the producer", lambda status: status.log is not None, 1800)  # its kernels may have to be compiled
        self._churn()
        pipeline.request_snapshot(*workload.READ_FIRST)
        self._churn()
        pipeline.wait_for_snapshot(*workload.READ_FIRST)
        pipeline.request_snapshot("mixed", merge="producer")
        pipeline.wait_for_snapshot("mixed")
        pipeline.sql(*workload.EVOLVED, *workload.FOLLOWED)
        pipeline.wait_for_log()
        pipeline.wait("children", lambda s: not s.snapshot_running and not any(t.inexact for t in s.tables))
        pipeline.wait_for_sink(*workload.READ_FIRST, "mixed")
        _say("first snapshot and what follows it are in the sink")

    def _quarantine(self) -> None:
        producer = RecordProducer({"bootstrap.servers": self._kafka.bootstrap_servers})
        producer.produce(topics.change_topic(NAME, DATABASE, "damaged"), key=b"\0not Avro", value=b"\0nor this", partition=0)
        producer.flush(30)
        self._pipeline.wait("quarantine", lambda s: any(table.quarantined for table in s.tables))
        _say("a record is in quarantine")

    def _second_snapshot(self) -> None:
        """Lock the largest table as soon as some of its chunks are done."""
        with self._pipeline.connect() as connection, connection.cursor() as cursor, self._owner.cursor() as owner:
            cursor.execute(f"SELECT COUNT(*) FROM {workload.SIGNALS}")
            (before,) = cursor.fetchone()
            self._pipeline.request_snapshot("big", "kinds")
            _until(lambda: _one(cursor, f"SELECT COUNT(*) FROM {workload.SIGNALS}") > before + 2 * OPEN_CHUNKS, "chunks", 0.002)
            owner.execute("LOCK TABLES big WRITE")
            for statement in workload.LOCKED_BIG:
                owner.execute(statement)
        with self._preparer.cursor() as cursor:
            for statement in ("XA START 'one'", "INSERT INTO mixed VALUES (9001, 1)", "XA END 'one'", "XA PREPARE 'one'"):
                cursor.execute(statement)
        self._churn()
        self._pipeline.wait_for_sink("big", "kinds", consistent=False)  # deletes that chunks on their way may not undo
        table = self._big()
        assert table.snapshot == "running", f"the snapshot was over before the lock: {table}"
        _say(f"the second snapshot has read {table.rows_read} rows of about {table.rows_estimated}")

    def _kill_merge_job(self) -> None:
        """Kill -9 in a batch that has written to a table, and publish more."""
        for _ in range(_ATTEMPTS):
            self._churn()
            _until(self._in_write, "a batch that writes", 0.001)
            self._pipeline.kill("merge")
            if self._in_write():
                break
            self._pipeline.start("merge")
        else:
            raise AssertionError("the merge job was never killed inside a batch")
        _say(f"the merge job was killed in batch {self._batch('offsets')}")
        for _ in range(4):
            self._churn()
        self._pipeline.wait_for_log()

    def _kill_producer(self) -> None:
        """Kill -9 while records of a Kafka transaction are written and not committed."""
        for _ in range(_ATTEMPTS):
            for _ in range(10):
                self._churn()
            self._pipeline.kill("run")
            hidden = _uncommitted(self._kafka.bootstrap_servers)
            if hidden:
                break
            self._pipeline.start("run")
            self._pipeline.wait_for_log()
        else:
            raise AssertionError("the producer was never killed inside a Kafka transaction")
        assert self._big().snapshot == "running"
        _say(f"the producer was killed; uncommitted records: {hidden}")

    def _tail(self) -> None:
        with self._owner.cursor() as owner:
            for statement in workload.TAIL_OF_BIG:
                owner.execute(statement)
            owner.execute("UNLOCK TABLES")
        with self._preparer.cursor() as cursor:
            cursor.execute("XA COMMIT 'one'")
        self._churn()
        self._pipeline.sql(*workload.TAIL)
        self._pipeline.wait_for_killed()
        assert self._in_write(), "the merge job's batch was ended"

    def _churn(self) -> None:
        self._churned += 1
        self._pipeline.sql(*workload.churn(self._churned))

    def _big(self) -> Any:
        return next(table for table in self._pipeline.status().tables if table.table == f"{DATABASE}.big")

    def _batch(self, kind: str) -> int:
        checkpoint = Path(self._pipeline.settings.sink.service_path) / "checkpoint"
        return max((int(path.name) for path in (checkpoint / kind).glob("[0-9]*")), default=-1)

    def _in_write(self) -> bool:
        """Whether the newest batch has written to a table and has not ended."""
        batch = self._batch("offsets")
        if self._batch("commits") >= batch:
            return False
        logs = (Path(self._pipeline.settings.sink.path) / DATABASE).glob("*/_delta_log")
        newest = [max(log.glob("[0-9]*.json"), default=None) for log in logs]
        return any(path is not None and f'"version":{batch}' in path.read_text("utf-8") for path in newest)


def _uncommitted(bootstrap_servers: str) -> dict[str, int]:
    """The records of open transactions in each topic that has some."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    found: dict[str, int] = {}
    described = admin.list_topics(timeout=30).topics
    partitions = [TopicPartition(name, number) for name, topic in described.items() for number in topic.partitions if name[0] != "_"]
    ends = [
        {partition: future.result().offset for partition, future in admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation_level=level).items()}
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    ]
    for partition in partitions:
        if hidden := ends[0][partition] - ends[1][partition]:
            found[partition.topic] = found.get(partition.topic, 0) + hidden
    return found


def _one(cursor: Any, statement: str) -> int:
    cursor.execute(statement)
    return int(cursor.fetchone()[0])


def _until(condition: Callable[[], bool], what: str, pause_s: float) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"not within two minutes: {what}"
        time.sleep(pause_s)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
