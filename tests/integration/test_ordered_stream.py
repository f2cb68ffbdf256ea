"""`order.group` on real servers: what commit records say of topics, times and promises, under load and through kills."""

from __future__ import annotations

import json
import os
import random
import signal as signals
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymysql
import pytest

import tidemark
from devservers.processes import GuardedProcess
from kafkaio.topic_admin import TopicAdmin
from schemas.commit_records import CommitRecord, RowTimes
from schemas.position import Position
from schemas.settings import Settings, from_mapping
from schemas.topics import change_topic, commits_topic, schema_change_topic
from tests.e2e.binlog import logged_changes
from tests.e2e.topics import RecordReader
from tests.integration.among_changes import ended, signal
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database
from tests.support.topics import read_topic
from tests.support.writing_threads import writing_threads

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of mysql-replication
TABLES = ("a", "b")
COLUMNS = "id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(1000)"
STATEMENTS = (
    "REPLACE INTO {} (id, v) VALUES ({}, {})", "DELETE FROM {} WHERE id = {}", "UPDATE {0} SET v = {2} WHERE id = {1}"
)  # fmt: skip
RUN = """
import sys
from tidemark.cli import main
sys.exit(main(["run", "--config", sys.argv[1]]))
"""
DIES_IN_A_PART = """
import os, signal
import kafkaio.transactional_writer
from producer.stream.log_reader import LogReader
kafkaio.transactional_writer.LONGEST_SHARE = 0.0
commit_part, parts = LogReader._commit_part, []
def commit(reader):
    commit_part(reader)
    parts.append(reader)
    if len(parts) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
LogReader._commit_part = commit
"""
"""A producer that publishes long transactions in parts, and is killed behind the third of them."""


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def mapping_of(source: Source, registry: str, *, group: str | None = "shop") -> dict[str, Any]:
    return {
        **source.mapping(),
        "format": {"type": "avro", "registry": registry},
        "snapshot": {"mode": "never", "merge": "producer", "chunk_rows": 40, "readers": 1},
        "order": {"group": group, "heartbeat_ms": 200},
    }


# ---- load


def written(source: Source, keys: int, count: int = 3) -> AbstractContextManager[None]:
    """Threads that write transactions of some rows in both tables; some set the time of their statements."""

    def write(cursor: Any, dice: random.Random, number: int) -> float:
        if dice.random() < 0.1:
            cursor.execute(f"SET timestamp = {time.time() + dice.choice([-90, 0.5, 600])}")
        write_transaction(cursor, dice, [1, 1, 1, 2, 5], lambda: number + count * dice.randrange(keys))
        cursor.execute("SET timestamp = DEFAULT")
        return dice.choice([0.0, 0.001, 0.01])

    return writing_threads(source, write, count)


def write_transaction(cursor: Any, dice: random.Random, sizes: list[int], key: Callable[[], int]) -> None:
    """Write some rows of both tables in one transaction; one in four is rolled back."""
    cursor.execute("BEGIN")
    with suppress(pymysql.err.OperationalError):  # a deadlock: gaps between keys are locked, too
        for _ in range(dice.choice(sizes)):
            cursor.execute(dice.choice(STATEMENTS).format(dice.choice(TABLES), key(), dice.randrange(1 << 40)))
    cursor.execute(dice.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))


def end_of_log(source: Source) -> tuple[str, int]:
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, pos = cursor.fetchone()[:2]
        return str(file), int(pos)


class Process:
    """A producer in a process of its own, which the test kills."""

    def __init__(self, mapping: dict[str, Any], folder: Path, before: str = "") -> None:
        (folder / "tidemark.json").write_text(json.dumps(mapping))
        (folder / "some.py").write_text(before + RUN)
        self.child = GuardedProcess.spawn(
            [sys.executable, str(folder / "some.py"), str(folder / "tidemark.json")],
            folder / "run.log",
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(tidemark.__file__).parents[1])},
        )

    def kill(self) -> None:
        assert self.child.status is None
        self.child.signal(signals.SIGKILL)
        assert self.child.wait(30)


# ---- the view of a reader


@dataclass(frozen=True)
class Row:
    """A record of a topic of the stream: its offset, its position in the log, and its own time."""

    topic: str
    partition: int
    offset: int
    op: str
    position: Position
    ts_us: int

    @property
    def transaction(self) -> Position:
        return replace(self.position, ordinal=0)


class Stream:
    """All records of a source, as a reader of committed records gets them."""

    def __init__(self, settings: Settings, schema: str) -> None:
        self.name = settings.name
        commits = read_topic(settings.kafka.bootstrap_servers, commits_topic(settings.name), raw=True)
        self.commits = [CommitRecord.parse(one.value) for one in commits]
        reader = RecordReader(settings)
        tables = [change_topic(settings.name, schema, table) for table in (*TABLES, "tidemark_signal")]
        self.rows: list[Row] = []
        self.count: Counter[str] = Counter()
        self.visible: dict[tuple[str, int], list[int]] = {}
        for topic in (*tables, schema_change_topic(settings.name)):
            for partition, offset, _, value in reader.records(topic):
                self.count[topic] += 1
                self.visible.setdefault((topic, partition), []).append(offset)
                if value is not None and not (value.get("ddl") is not None and value["source"]["snapshot"] == "true"):
                    block = value["source"]
                    where = Position.parse(block["sequence"])
                    self.rows.append(Row(topic, partition, offset, value.get("op") or "ddl", where, block["ts_us"]))
        self.record_at = {
            (topic, partition, offset): record
            for record in self.commits
            for topic, spans in record.spans.items()
            for partition, (first, end) in spans.items()
            for offset in range(first, end)
        }

    def record_of(self, row: Row) -> CommitRecord:
        """The record with the end of the row's transaction."""
        return next(one for one in self.commits if one.begin <= row.transaction < one.to)

    @property
    def logged(self) -> list[Row]:
        """Rows and statements of the log, in its order."""
        return sorted((row for row in self.rows if row.op != "r"), key=lambda row: (row.position, row.offset))


def require_cover(stream: Stream) -> None:
    """O1: spans partition the topics; up to `to` they have the rows of the log, and nothing else."""
    assert [one.n for one in stream.commits] == list(range(1, len(stream.commits) + 1))
    for one, other in pairwise(stream.commits):
        assert (one.to, one.promise_us) == (other.begin, other.since_us)
    ends: dict[tuple[str, int], int] = {}
    seen: dict[tuple[str, int], list[int]] = {}
    for record in stream.commits:
        for topic, spans in record.spans.items():
            read = [
                (partition, offset)
                for partition, (first, end) in spans.items()
                for offset in stream.visible.get((topic, partition), [])
                if first <= offset < end
            ]
            assert len(read) == record.rows[topic], f"{topic} of record {record.n}"
            for partition, (first, end) in spans.items():
                assert first >= ends.get((topic, partition), 0), f"{topic} of record {record.n} begins before the end of the last"
                ends[topic, partition] = end
            for partition, offset in read:
                seen.setdefault((topic, partition), []).append(offset)
    assert seen == stream.visible, "there are records that no span has"
    assert {bool(record.signals) == any(".tidemark_signal" in topic for topic in record.rows) for record in stream.commits} == {True}
    for row in stream.logged:
        record = stream.record_at[row.topic, row.partition, row.offset]
        is_of_part = record.open is not None and row.transaction == record.open.position
        ends_here = record.begin <= row.transaction < record.to
        assert ends_here or is_of_part, f"{row} in record {record.n}"


def require_times(stream: Stream) -> None:
    """O2: the time of each row is the running maximum, which begins with the promise before its record, and never decreases."""
    by_transaction: dict[Position, list[Row]] = {}
    for row in stream.logged:
        by_transaction.setdefault(row.transaction, []).append(row)
    maximum, last = 0, 0
    now_us = time.time_ns() // 1000
    for position in sorted(by_transaction):
        rows = by_transaction[position]
        record = stream.record_of(rows[0])
        cap = dict(record.caps).get(position)
        own = max(row.ts_us for row in rows)
        if cap is not None:
            assert own > cap + 2_000_000 - 100_000
            assert cap < now_us
        maximum = max(maximum, record.since_us, own if cap is None else cap)
        time_of = RowTimes(record)
        assert {time_of(row.position, row.ts_us) for row in rows} == {maximum}, f"{position.text} in record {record.n}"
        assert maximum >= last
        assert maximum <= record.promise_us
        last = maximum


def broken_promises(stream: Stream) -> int:
    """O3: how many transactions have in themselves an earlier time than the server's clock that was promised before them."""
    clocks = {}
    for record in stream.commits:
        own = [RowTimes(record)(row.position, row.ts_us) for row in stream.logged if record.begin <= row.transaction < record.to]
        if record.open is None and record.promise_us > max(own, default=record.since_us):
            clocks[record.n] = record.promise_us
    broken, promised = set(), 0
    for record in stream.commits:
        rows = [row for row in stream.logged if record.begin <= row.transaction < record.to]
        broken |= {row.transaction for row in rows if row.ts_us < promised}
        promised = clocks.get(record.n, promised)
    assert clocks, "the server's clock was never promised"
    return len(broken)


def test_commit_records_cover_the_topics_and_their_times_are_the_running_maximum(source, registry, tmp_path):
    """Random load, a statement, a snapshot, a transaction in parts (MySQL), and kills."""
    mapping = mapping_of(source, registry.url)
    settings = from_mapping(mapping)
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in TABLES))
    source.execute("INSERT INTO a SELECT seq, 0, NULL FROM seq_1_to_200" if source.server.name == "mariadb114" else "DO 0")
    start = end_of_log(source)
    dice = random.Random(11)
    with running(settings) as run, written(source, keys=100):
        time.sleep(1)
        source.execute("ALTER TABLE b ADD COLUMN x INT")
        signal(source, "one", ["a", "b"])
        run.until(lambda: ended(run, "one"), "the snapshot has ended")
    for _ in range(2):
        with written(source, keys=100):
            process = Process(mapping, tmp_path)
            wait_for_commits(settings)
            signal(source, f"killed-{dice.random()}", ["a"])
            time.sleep(0.3 + dice.random())
            process.kill()
    rows = ",".join(f"({number}, 1, '{'x' * 900}')" for number in range(1_000, 1_200))
    source.execute("BEGIN", f"INSERT INTO a (id, v, w) VALUES {rows}", "UPDATE a SET v = 2 WHERE id >= 1000", "COMMIT")
    if source.server.name == "mysql80":
        Process(mapping, tmp_path, DIES_IN_A_PART).child.wait(120)
    with running(settings) as run:
        source.execute("DELETE FROM b", "TRUNCATE TABLE a")
        run.caught_up(source)
        time.sleep(1)  # the clock passes
    stream = Stream(settings, source.schema)
    require_cover(stream)
    require_times(stream)
    changes = logged_changes(source.server, source.schema, {table: ["id"] for table in TABLES}, start)
    expected = Counter([*((one.table, one.op) for one in changes), ("a", "t")])  # a truncate is a statement of the log
    published = Counter((row.topic.rpartition(".")[2], row.op) for row in stream.logged if row.op != "ddl")
    assert {key: count for key, count in published.items() if key[0] in TABLES} == expected
    assert [record.open is not None for record in stream.commits].count(True) >= (3 if source.server.name == "mysql80" else 0)
    *_, altered = read_topic(settings.kafka.bootstrap_servers, schema_change_topic(settings.name), raw=True)
    session = json.loads(altered.headers["tidemark.session"])
    assert session["database"] == source.schema
    assert session["sql_mode"] is not None
    require_chunks(stream, source.schema)
    if source.server.name == "mysql80":
        assert broken_promises(stream) == 0


@pytest.mark.parametrize("snapshot", [{}, {"consistency": "one_transaction"}], ids=["chunks", "one view"])
def test_rows_of_a_first_snapshot_are_in_chunks(source, registry, snapshot):
    mapping = mapping_of(source, registry.url)
    settings = from_mapping({**mapping, "snapshot": {**mapping["snapshot"], "mode": "initial", **snapshot}})
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in TABLES))
    rows = ",".join(f"({number}, 1, 'x')" for number in range(130))
    source.execute(*(f"INSERT INTO {table} VALUES {rows}" for table in TABLES))
    with running(settings) as run:
        source.execute("UPDATE a SET v = 2 WHERE id < 10")
        run.until(lambda: all(one.state == "done" for one in run.producer.coordinator.progress()), "the tables are read")
        source.execute("DELETE FROM b WHERE id < 10")
        run.caught_up(source)
    stream = Stream(settings, source.schema)
    require_cover(stream)
    require_times(stream)
    require_chunks(stream, source.schema, "initial")
    assert sum(row.op == "r" for row in stream.rows) >= 250


def require_chunks(stream: Stream, schema: str, request: str = "one") -> None:
    """Rows of snapshots are counted by the chunk that they name, and a table is complete once."""
    counted: Counter[tuple[str, int]] = Counter()
    for record in stream.commits:
        for one in record.chunks:
            counted[one.table, one.pos] += one.rows
            assert record.since_us <= one.us <= record.promise_us
            assert record.begin <= one.at <= record.to
    read: Counter[str] = Counter(row.topic.partition(".")[2] for row in stream.rows if row.op == "r")
    assert read
    assert read == sum((Counter({table: rows}) for (table, _), rows in counted.items()), Counter())
    complete = [(one.request, one.table) for record in stream.commits for one in record.complete]
    assert {(request, f"{schema}.{table}") for table in TABLES} <= set(complete)
    assert len(complete) == len(set(complete))


def wait_for_commits(settings: Settings) -> None:
    """Until a record was written after this call."""
    admin, topic = TopicAdmin(settings.kafka), commits_topic(settings.name)
    before, deadline = admin.end_offsets([topic]), time.monotonic() + 120
    while admin.end_offsets([topic]) == before:
        assert time.monotonic() < deadline, "no commit record within 120 s"
        time.sleep(0.05)


def test_without_a_group_there_is_no_record_and_no_topic(source, registry):
    settings = from_mapping(mapping_of(source, registry.url, group=None))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in TABLES))
    with running(settings) as run:
        source.execute("INSERT INTO a VALUES (1, 1, NULL)")
        run.caught_up(source)
        assert run.producer.reader.committed.stream is None
    assert not TopicAdmin(settings.kafka).partitions_now([commits_topic(settings.name)])
    state = read_topic(source.bootstrap_servers, f"{source.name}.state")
    assert all("stream" not in record.value for record in state if record.key == "offset")


def test_the_promise_follows_the_clock_of_a_server_where_nothing_changes(source, registry):
    """Through a restart, too: the promise is in the offset."""
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in TABLES))
    for _ in range(2):
        with running(settings) as run:
            source.execute("REPLACE INTO a VALUES (1, 1, NULL)")
            run.caught_up(source)
            time.sleep(2)
            last = run.producer.reader.committed.stream
            assert last is not None
            assert abs(last.promise_us - time.time_ns() // 1000) < 1_500_000
    stream = Stream(settings, source.schema)
    require_cover(stream)
    require_times(stream)
    idle = [record for record in stream.commits if not record.spans and record.begin == record.to]
    assert sum(one.promise_us > one.since_us for one in idle) >= 8
