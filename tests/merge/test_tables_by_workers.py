"""Many tables in one job, merged by Python workers: what they do, what they leave to Spark, and where the job may die."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from kafkaio.librdkafka import KafkaReadError
from schemas.columns import ColumnType, TableSchema
from schemas.identity import SourceTable
from schemas.markers import HeartbeatMarker
from schemas.settings import Settings
from spark_jobs.merge import record_readers, tables_by_workers
from spark_jobs.merge.tables_by_workers import TablesByWorkers
from spark_jobs.merge.worker_task import KafkaReads, TaskFailure, TaskResult
from tests.merge.conftest import SinkFactory
from tests.merge.lake import Crash, at, column, flush, marker, merge_all, quarantined, rows, table, topics_of
from tests.merge.topics import TableTopics

SCHEMAS = tuple(table(name, column("a")) for name in ("one", "two", "three"))


class Site:
    """Three tables with five rows each, which are in the sink once `merge_all` has run."""

    def __init__(self, settings: Settings, database: str = "shop") -> None:
        self.settings = settings
        self.schemas = tuple(replace(schema, database=database) for schema in SCHEMAS)
        self.topics = [topics_of(settings, schema) for schema in self.schemas]
        for one in self.topics:
            for number in range(5):
                one.change("c", {"id": number, "a": number}, at(100 + number, 1).text, number % 2)
        flush(*self.topics)

    @property
    def rows(self) -> list[list[dict[str, Any]]]:
        return [rows(self.settings, schema) for schema in self.schemas]

    @property
    def live(self) -> list[list[dict[str, Any]]]:
        return [live(self.settings, schema) for schema in self.schemas]

    @property
    def versions(self) -> list[int]:
        return [version(self.settings, schema) for schema in self.schemas]


@pytest.fixture(scope="module")
def sites(request: pytest.FixtureRequest, spark: SparkSession, shared_settings: Settings) -> Iterator[Site]:
    """A site for each test that is run: all are filled by one run of the job."""
    count = sum("site" in getattr(item, "fixturenames", ()) for item in request.session.items if item.path == request.path)
    made = [Site(shared_settings, f"shop{number}") for number in range(count)]
    merge_all(spark, shared_settings)
    return iter(made)


@pytest.fixture
def site(sites: Iterator[Site]) -> Site:
    return next(sites)


def batches_of_one_row(merge_settings: SinkFactory, count: int) -> Settings:
    """So many new rows of one table, each a batch of its own."""
    settings = merge_settings(max_batch_records=1)
    topics = topics_of(settings, SCHEMAS[0], snapshot=False)
    for number in range(count):
        topics.change("c", {"id": number, "a": number}, at(100 + number, 1).text, 0)
    flush(topics)
    return settings


def changed(topics: Sequence[TableTopics]) -> None:
    """Update, delete and insert one row in each table."""
    for one in topics:
        one.change("u", {"id": 1, "a": 10}, at(200, 1).text, 1)
        one.change("d", {"id": 2, "a": 2}, at(201, 1).text, 0)
        one.change("c", {"id": 7, "a": 7}, at(202, 1).text, 1)
    flush(*topics)


AFTER = [{"id": 0, "a": 0}, {"id": 1, "a": 10}, {"id": 3, "a": 3}, {"id": 4, "a": 4}, {"id": 7, "a": 7}]


def live(settings: Settings, schema: TableSchema) -> list[dict[str, Any]]:
    """The rows of a table that may have deletion vectors, by key."""
    lake = DeltaTable(settings.sink.table_path(schema.database, schema.name))
    found = QueryBuilder().register("t", lake).execute("SELECT id, a FROM t ORDER BY id").read_all()
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows


def done_by_workers(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The tables that workers merge from now on, batch by batch."""
    found: list[set[str]] = []
    real = TablesByWorkers._results

    def noted(self: TablesByWorkers, ready: Any) -> Mapping[SourceTable, TaskResult]:
        results = real(self, ready)
        found.append({one.name.table for one in results})
        return results

    monkeypatch.setattr(TablesByWorkers, "_results", noted)
    return found


def test_workers_merge_all_tables_of_a_batch_in_one_job(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, topics = site.settings, site.topics
    changed(topics)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [{"one", "two", "three"}]
    assert site.rows == [AFTER] * 3


def test_many_records_are_decoded_by_several_workers_and_the_rows_of_a_table_are_written_by_one(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, topics = site.settings, site.topics
    versions = site.versions
    changed(topics)
    topics[0].put(topics[0].changes, 0, b"no key", b"no record")
    flush(*topics)
    monkeypatch.setattr(tables_by_workers, "FEW_RECORDS", 0)
    monkeypatch.setattr(tables_by_workers, "_FEW_CORES", 0)
    decoded: list[int] = []
    real = tables_by_workers.decoding_worker
    monkeypatch.setattr(tables_by_workers, "decoding_worker", lambda tasks: decoded.append(len(tasks)) or real(tasks))
    for number in range(40):
        topics[0].change("u", {"id": 0, "a": 0}, at(150 + number, 1).text, number % 2)
    flush(*topics)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert decoded == [3]
    assert merged == [{"one", "two", "three"}]
    assert site.rows == [AFTER] * 3
    assert site.versions == [before + 1 for before in versions]
    assert [found[0] for found in quarantined(settings, *topics)] == [topics[0].changes]


def test_with_the_writer_of_the_jvm_no_worker_merges(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = merge_settings(writer="jvm")
    site = Site(settings)
    topics = site.topics
    merge_all(spark, settings)
    changed(topics)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [set()]
    assert site.rows == [AFTER] * 3


@pytest.mark.parametrize("other", ["auto", "jvm"])
def test_killed_after_the_commits_of_workers_each_change_is_there_once_whichever_writer_is_next(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """A delete below a floor comes after the rows: what the second attempt merged again would come back with it."""
    settings, topics = site.settings, site.topics
    changed(topics)
    real = TablesByWorkers._results

    def dies(self: TablesByWorkers, ready: Any) -> Mapping[SourceTable, TaskResult]:
        real(self, ready)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(TablesByWorkers, "_results", dies)
        with pytest.raises(Crash):
            merge_all(spark, settings)
    versions = site.versions
    assert site.rows == [AFTER] * 3
    if other == "jvm":
        monkeypatch.setattr(TablesByWorkers, "merged", lambda *_: [])
    merge_all(spark, settings)
    assert site.versions == versions, "no second commit"
    assert site.rows == [AFTER] * 3


def test_killed_after_the_commit_of_the_jvm_a_worker_makes_none(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, topics = site.settings, site.topics
    changed(topics)

    def dies(name: str, _batch: int) -> None:
        if name == "merged":
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(TablesByWorkers, "merged", lambda *_: [])
        with pytest.raises(Crash):
            merge_all(spark, settings, dies)
    versions = site.versions
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [{"one", "two", "three"}]
    assert site.versions == versions, "no second commit"
    assert site.rows == [AFTER] * 3


def test_what_workers_decline_spark_merges_with_deletion_vectors_and_workers_continue_from_there(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, topics = site.settings, site.topics
    changed(topics)

    def declining(_tasks: object) -> Any:
        def run(batches: Any) -> Any:
            import pickle

            import pyarrow as pa

            failure = pickle.dumps(TaskFailure("it is dear", is_declined=True))
            for number in sorted({number for batch in batches for number in batch.column(0).to_pylist()}):
                row = [pa.array([number], pa.int32()), pa.array([failure], pa.binary())]
                yield pa.RecordBatch.from_arrays(row, ["number", "result"])

        return run

    with monkeypatch.context() as patched:
        patched.setattr(tables_by_workers, "worker", declining)
        merge_all(spark, settings)
    tables = [DeltaTable(settings.sink.table_path(schema.database, schema.name)) for schema in site.schemas]
    assert all(one.metadata().configuration["delta.enableDeletionVectors"] == "true" for one in tables)
    assert site.live == [AFTER] * 3
    for one in topics:
        one.change("u", {"id": 3, "a": 30}, at(300, 1).text, 1)
    flush(*topics)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [{"one", "two", "three"}]
    after = [{"id": 3, "a": 30} if row["id"] == 3 else row for row in AFTER]
    assert site.live == [after] * 3


def test_a_table_that_a_worker_cannot_merge_is_merged_by_spark_and_the_others_by_workers(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of a floating point number is one that workers leave alone; a record without a schema goes to quarantine."""
    settings, topics = site.settings, site.topics
    floating = TableSchema("shop", "floating", (column("id", ColumnType.DOUBLE, nullable=False), column("a")), ("id",))
    other = topics_of(settings, floating)
    other.change("c", {"id": 0.5, "a": 1}, at(150, 1).text)
    flush(other)
    merge_all(spark, settings)
    changed(topics)
    other.change("u", {"id": 0.5, "a": 2}, at(250, 1).text)
    topics[0].put(topics[0].changes, 0, b"\0\0\0\0\7key", b"no Avro at all")
    flush(other, *topics)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [{"one", "two", "three"}]
    assert rows(settings, floating) == [{"id": 0.5, "a": 2}]
    assert site.rows == [AFTER] * 3
    assert [found[0] for found in quarantined(settings, *topics)] == [topics[0].changes]


def test_tombstones_of_workers_and_of_spark_stop_older_rows_of_either(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delete of one batch, an older snapshot row in the next: kept by one writer, read by the other."""
    settings, (topics, *_) = site.settings, site.topics
    marker(topics, HeartbeatMarker, 110)
    for position, number, with_workers in ((300, 1, True), (310, 3, False)):
        topics.change("d", {"id": number, "a": number}, at(position, 1).text, number % 2)
        flush(topics)
        with monkeypatch.context() as patched:
            if not with_workers:
                patched.setattr(TablesByWorkers, "merged", lambda *_: [])
            merge_all(spark, settings)
        topics.row({"id": number, "a": 99}, at(250).text)
        flush(topics)
        with monkeypatch.context() as patched:
            if with_workers:
                patched.setattr(TablesByWorkers, "merged", lambda *_: [])
            merge_all(spark, settings)
    assert [row["id"] for row in rows(settings, site.schemas[0])] == [0, 2, 4]


def test_workers_that_fail_again_and_again_are_not_asked_any_more(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = batches_of_one_row(merge_settings, 4)
    attempts: list[int] = []

    def broken(_tasks: object) -> Any:
        attempts.append(1)
        return lambda batches: iter([1 // 0 for _ in batches])

    monkeypatch.setattr(tables_by_workers, "worker", broken)
    merge_all(spark, settings)
    assert len(attempts) == 3
    assert [row["id"] for row in rows(settings, SCHEMAS[0])] == list(range(4))


@pytest.mark.parametrize("is_last", [False, True])
def test_where_workers_cannot_read_kafka_spark_reads_it_for_them_in_the_same_batch(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    """A worker that fails at the end has merged the first tables already."""
    settings, topics = site.settings, site.topics
    versions = site.versions
    changed(topics)
    real = record_readers.with_own_records

    def failing(reads: KafkaReads, work: Any) -> Any:
        def run(batches: Any) -> Any:
            if is_last:
                yield from real(reads, work)(batches)
            message = "of this test"
            raise KafkaReadError(message)

        return run

    monkeypatch.setattr(record_readers, "with_own_records", failing)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [{"one", "two", "three"}]
    assert site.rows == [AFTER] * 3
    assert site.versions == [before + 1 for before in versions]


def test_workers_that_could_not_read_again_and_again_are_given_what_spark_reads(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = batches_of_one_row(merge_settings, 4)
    attempts: list[int] = []

    def broken(_reads: KafkaReads, _work: Any) -> Any:
        attempts.append(1)

        def run(_batches: Any) -> Any:
            message = "of this test"
            raise KafkaReadError(message)

        return run

    monkeypatch.setattr(record_readers, "with_own_records", broken)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert len(attempts) == 3
    assert merged == [{"one"}] * 4
    assert [row["id"] for row in rows(settings, SCHEMAS[0])] == list(range(4))


def test_after_a_worker_that_died_spark_reads_for_the_workers(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch of its death is merged without workers: what killed it may do so again."""
    settings = batches_of_one_row(merge_settings, 3)
    attempts: list[int] = []

    def deadly(_reads: KafkaReads, _work: Any) -> Any:
        attempts.append(1)
        return lambda _batches: os._exit(1)

    monkeypatch.setattr(record_readers, "with_own_records", deadly)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert len(attempts) == 1
    assert merged == [set(), {"one"}, {"one"}]
    assert [row["id"] for row in rows(settings, SCHEMAS[0])] == list(range(3))


def test_without_librdkafka_spark_reads_for_the_workers(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, topics = site.settings, site.topics
    changed(topics)
    monkeypatch.setattr(tables_by_workers, "is_there", lambda: False)
    monkeypatch.setattr(record_readers, "with_own_records", None)
    merged = done_by_workers(monkeypatch)
    merge_all(spark, settings)
    assert merged == [{"one", "two", "three"}]
    assert site.rows == [AFTER] * 3


def test_bins_have_about_the_same_size() -> None:
    assert record_readers.bins_of([5, 100, 5, 5], 2) == [1, 0, 1, 1]
    assert record_readers.bins_of([7], 4) == [0]
    assert sorted(set(record_readers.bins_of([1] * 8, 3))) == [0, 1, 2]


def version(settings: Settings, schema: TableSchema) -> int:
    return DeltaTable(Path(settings.sink.table_path(schema.database, schema.name)).as_uri()).version()
