"""`snapshot.via: spark` with a real Kafka and registry: rows that the merge job reads, under load and over restarts, are the source's.

The test plays the merge job: it finds load markers in the snapshot topic, reads the rows as executors do, and answers. What a sink
would have is the newest record of each key, of the change topic and of the loaded rows.
"""

from __future__ import annotations

import io
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import fastavro
import pytest

from kafkaio.committed_reader import CommittedReader
from kafkaio.schema_registry import HttpRegistry
from producer.app import Producer
from schemas.loads import LOAD_ANSWER, LoadAnswer
from schemas.markers import CloseMarker, CompleteMarker, LoadMarker, is_marker, parse_marker
from schemas.settings import Settings, SinkSettings
from spark_jobs.loads.chunk_source import TableChunks
from tests.integration.among_changes import COLUMNS, create, ended, signal, writers
from tests.support.played_loads import Pairs, pairs
from tests.support.producers import Source, running
from tests.support.servers import database
from tests.support.topics import read_topic
from tidemark.api.observe import Observer

Play = Callable[[TableChunks, LoadMarker], LoadAnswer | None]


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.fixture
def mysql(mysql80, kafka, fresh_database) -> Iterator[Source]:
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def settings_of(source: Source, url: str, **snapshot: Any) -> Settings:
    settings = source.settings()
    return replace(
        settings,
        format=replace(settings.format, type="avro", registry=url),
        sinks=(SinkSettings(path="/lake"),),
        snapshot=replace(settings.snapshot, **{"via": "spark", "load_rows": 100, "loads": 4, "chunk_rows": 100, **snapshot}),
    )


class PlayedJob:
    """A thread that reads the snapshot topic of a table as the merge job does."""

    def __init__(self, settings: Settings, table: str, play: Play | None = None) -> None:
        self._topic = f"{settings.name}-snapshot.{settings.source.signal_names[0]}.{table}"
        self._database, self._table = settings.source.signal_names[0], table
        self._reader = CommittedReader(settings.kafka, uuid.uuid4().hex)
        self._chunks = TableChunks(settings)
        self._play = play or self.load
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="played-merge-job")
        self.rows: dict[str, Pairs] = {}
        self.asked: list[str] = []

    def load(self, chunks: TableChunks, load: LoadMarker) -> LoadAnswer:
        self.rows[load.window] = pairs(chunks.read(self._database, self._table, load))
        return LoadAnswer(load.window, len(self.rows[load.window]))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        self._reader.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._end.is_set() and not self._reader.partitions(self._topic):
                time.sleep(0.2)
            self._reader.begin({(self._topic, 0): 0})
            while not self._end.is_set():
                record = self._reader.next_record(0.1)
                if record is None or not is_marker(record.key):
                    continue
                marker = parse_marker(record.value)
                if isinstance(marker, LoadMarker) and marker.window not in self.asked:
                    self.asked.append(marker.window)
                    answer = self._play(self._chunks, marker)
                    if answer is not None:
                        self._chunks.answer([answer])
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self._error = error


class Reader:
    """Avro records of one table, decoded with the registry's schemas."""

    def __init__(self, url: str, topic: str) -> None:
        registry = HttpRegistry(url)
        self._schemas = {
            one.id: fastavro.parse_schema(json.loads(one.text))
            for subject in (f"{topic}-key", f"{topic}-value")
            for one in registry.versions(subject)
        }

    def decoded(self, data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), self._schemas[int.from_bytes(data[1:5], "big")], None)


def newest(source: Source, url: str, table: str, loaded: Pairs) -> dict[int, Any]:
    """What a sink would have by the merge rule, when everything is there."""
    topic = f"{source.name}.{source.schema}.{table}"
    reader = Reader(url, topic)
    changes = [(one.key, one.value) for one in read_topic(source.bootstrap_servers, topic, raw=True) if one.value is not None]
    rows: dict[bytes, tuple[tuple[str, bool], Any]] = {}
    for key, value in [*changes, *loaded]:
        record = reader.decoded(value)
        rank = (record["source"]["sequence"], record["op"] != "d")
        if key not in rows or rank > rows[key][0]:
            rows[key] = (rank, record["after"])
    return {after["id"]: after for _, after in rows.values() if after is not None}


def stored(source: Source, table: str) -> dict[int, Any]:
    with source.connection.cursor() as cursor:
        cursor.execute(f"SELECT id, v, w FROM {table}")
        return {row[0]: {"id": row[0], "v": row[1], "w": row[2]} for row in cursor.fetchall()}


def markers(source: Source, table: str) -> list[Any]:
    records = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{table}", raw=True)
    assert all(is_marker(record.key) for record in records), "rows went to the snapshot topic"
    return [parse_marker(record.value) for record in records if record.partition == 0]


def test_a_table_read_by_the_merge_job_while_it_changes_is_the_source(source, registry):
    create(source, "t", COLUMNS, [(number, 0, "x") for number in range(1500)])
    settings = settings_of(source, registry.url)
    with running(settings) as run, PlayedJob(settings, "t") as job:
        with writers(source, "t", 1800):
            signal(source, "s", ["t"])
            run.until(lambda: ended(run, "s"), "the snapshot has ended")
        run.caught_up(source)
    with Observer(settings) as observer:
        (status,) = [one for one in observer.read().tables if one.table == f"{source.schema}.t"]
    assert (status.via, status.via_reason) == ("spark", None)
    found = markers(source, "t")
    closed = [one for one in found if isinstance(one, CloseMarker)]
    assert len(closed) >= 10
    assert all(one.loaded and not one.first_offsets for one in closed)
    asked = {one.window: one for one in found if isinstance(one, LoadMarker)}
    assert {one.window for one in closed} <= asked.keys()
    assert all(one.horizon <= one.low for one in asked.values())
    (complete,) = [one for one in found if isinstance(one, CompleteMarker)]
    rows = [pair for one in closed for pair in job.rows[one.window]]
    assert complete.rows == len(rows)
    assert complete.first_bound <= min(one.low for one in asked.values())
    assert newest(source, registry.url, "t", rows) == stored(source, "t")


def test_a_restart_in_the_middle_asks_once_more_for_what_was_not_closed(mysql, registry):
    create(mysql, "t", COLUMNS, [(number, 0, "x") for number in range(800)])
    settings = settings_of(mysql, registry.url, loads=2)

    def three(chunks: TableChunks, load: LoadMarker) -> LoadAnswer | None:
        return first.load(chunks, load) if len(first.asked) <= 3 else None

    def done(producer: Producer) -> int:
        assert producer.coordinator is not None
        return sum(one.chunks_done for one in producer.coordinator.progress())

    with running(settings) as run, PlayedJob(settings, "t", three) as first:
        signal(mysql, "s", ["t"])
        run.until(lambda: done(run.producer) == 3 and len(first.asked) >= 5, "three chunks are closed, others asked for")
    mysql.execute("UPDATE t SET v = 7 WHERE id % 10 = 3", "DELETE FROM t WHERE id % 10 = 4")
    with running(settings) as run, PlayedJob(settings, "t") as second:
        run.until(lambda: ended(run, "s"), "the snapshot has ended")
        run.caught_up(mysql)
    closed = [one.window for one in markers(mysql, "t") if isinstance(one, CloseMarker)]
    assert len([window for window in closed if window in first.rows]) >= 3
    late = {**second.rows, **first.rows}
    rows = [pair for window in closed for pair in late[window]]
    assert newest(mysql, registry.url, "t", rows) == stored(mysql, "t")
    everything = [pair for one in late.values() for pair in one]
    assert newest(mysql, registry.url, "t", everything) == stored(mysql, "t"), "what was read for void windows does harm"


def test_answers_are_rows_of_the_signal_table_and_no_signals(mysql, registry):
    create(mysql, "t", COLUMNS, [(1, 2, "x")])
    settings = settings_of(mysql, registry.url)
    with running(settings) as run, PlayedJob(settings, "t"):
        signal(mysql, "s", ["t"])
        run.until(lambda: ended(run, "s"), "the snapshot has ended")
        run.caught_up(mysql)
    with mysql.connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tidemark_signal WHERE type = %s", (LOAD_ANSWER,))
        assert cursor.fetchone() == (1,)
    notified = read_topic(mysql.bootstrap_servers, f"{mysql.name}.notifications", raw=True)
    assert not [record for record in notified if b"REJECTED" in record.value]
