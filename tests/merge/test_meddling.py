"""The merge job and what others do to its sink, its checkpoint and its topics, and where it may be killed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from schemas.columns import TableSchema
from schemas.errors import SinkError
from schemas.markers import CompleteMarker, HeartbeatMarker
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.kafka.read import stream
from spark_jobs.merge.table_input import TableInput, inputs_of
from spark_jobs.sinks.delta import writes as merge
from spark_jobs.sinks.stamp import Stamp
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    ORDERS,
    Crash,
    amounts,
    at,
    column,
    flush,
    marker,
    merge_all,
    progress,
    rows,
    table,
    topics_of,
    wait_for,
)
from tests.merge.shared_job import MERGED, PLAIN, Runs, Tables


def test_killed_between_two_tables_of_a_batch_each_has_its_rows_once(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New keys are appended: only Delta's memory of the batch stops a second time; the other table has none."""
    settings = merge_settings(writer="jvm")
    schemas = table("one", column("a")), table("two", column("a"))
    one, two = (topics_of(settings, schema) for schema in schemas)
    log_of_one = Path(settings.sink.table_path("shop", "one")) / "_delta_log"
    real = merge.append

    def dies_at_the_second(rows: DataFrame, path: str, commit: Stamp, *shape: Any) -> None:
        if path.endswith("two"):
            wait_for((log_of_one / f"{commit.batch_id:020}.json").exists)
            raise Crash
        real(rows, path, commit, *shape)

    for batch in (0, 1):
        for number in range(batch * 5, batch * 5 + 5):
            for topics in (one, two):
                topics.change("c", {"id": number, "a": number}, at(100 + number, 1).text, number % 2)
        flush(one, two)
        if batch == 1:
            with monkeypatch.context() as patched:
                patched.setattr(merge, "append", dies_at_the_second)
                with pytest.raises(Crash):
                    merge_all(spark, settings)
            assert [len(rows(settings, schema)) for schema in schemas] == [10, 5]
        merge_all(spark, settings)
    assert [[row["id"] for row in rows(settings, schema)] for schema in schemas] == [list(range(10))] * 2


def compact(session: SparkSession, path: str) -> None:
    DeltaTable.forPath(session, path).optimize().executeCompaction()


def label(session: SparkSession, path: str) -> None:
    session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('kept.by' = 'somebody')")


@pytest.mark.parametrize(
    ("meddle", "operation"),
    [(compact, "OPTIMIZE"), pytest.param(label, "SET TBLPROPERTIES", marks=pytest.mark.slow)],
)
def test_who_compacts_a_table_while_it_is_merged_into_costs_a_second_try_and_nothing_else(
    spark: SparkSession,
    merge_settings: SinkFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    meddle: Callable[[SparkSession, str], None],
    operation: str,
) -> None:
    """OPTIMIZE begins when our MERGE reads its source, behind the version it rests on, and is over before it commits."""
    settings = merge_settings(max_batch_records=1, writer="jvm")
    topics = topics_of(settings, ORDERS, snapshot=False)
    for number, key in enumerate(("one", "two", "three")):
        topics.change("c", {"id": key, "amount": number}, at(100 + number, 1).text)
    flush(topics)
    merge_all(spark, settings)
    path = settings.sink.table_path("shop", "orders")
    reads, done = tmp_path / "reads", tmp_path / "done"
    conflicts: list[bool] = []
    real = merge.merge

    def change() -> None:
        wait_for(reads.exists)
        meddle(spark.newSession(), path)
        done.touch()

    def until_done(_position: str) -> bool:
        reads.touch()
        deadline = time.monotonic() + 120
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return True

    def merge_beside(rows: DataFrame, *rest: Any) -> None:
        try:
            waits = F.udf(until_done, T.BooleanType(), useArrow=False)
            real(rows.where(waits(F.col(POSITION))), *rest)
        except PySparkException as error:
            conflicts.append(merge.is_conflict(error))
            raise

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    monkeypatch.setattr(merge, "merge", merge_beside)
    topics.change("u", {"id": "one", "amount": 10}, at(200, 1).text)
    topics.change("d", {"id": "two", "amount": 1}, at(201, 1).text)
    topics.change("c", {"id": "four", "amount": 4}, at(202, 1).text)
    flush(topics)
    somebody = threading.Thread(target=change)
    somebody.start()
    merge_all(spark, settings)
    somebody.join()
    assert conflicts == [True], "no conflict: this proves nothing"
    written = [row["operation"] for row in DeltaTable.forPath(spark, path).history().orderBy("version").collect()]
    assert written.count(operation) == 1
    assert written[-3:] == ["MERGE"] * 3
    assert [(row["id"], row["amount"]) for row in rows(settings)] == [("four", 4), ("one", 10), ("three", 2)]


def test_topics_are_named_by_the_state_of_their_producer(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """Names that Kafka does not bear come back as they are, and what a producer of a longer name wrote is left alone."""
    settings = merge_settings()
    odd = TableSchema("my shop", "old/orders", ORDERS.columns, ORDERS.primary_key)
    ours = topics_of(settings, odd)
    others = topics_of(replace(settings, name=f"{settings.name}.eu"), replace(ORDERS, name="not_ours"))
    for topics in (ours, others):
        topics.register()
        topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
        topics.row({"id": "two", "amount": 2}, at(90).text)
    flush(ours, others)
    merge_all(spark, settings)
    assert [row["id"] for row in rows(settings, odd)] == ["one", "two"]
    found = {path.parent.relative_to(settings.sink.path).as_posix() for path in Path(settings.sink.path).rglob("_delta_log")}
    assert found == {"my@0020shop/old@002forders"}

    others.delete()
    ours.change("d", {"id": "one", "amount": 1}, at(200, 1).text)
    flush(ours)
    merge_all(spark, settings)
    assert [row["id"] for row in rows(settings, odd)] == ["two"]


def test_partitions_that_somebody_added_stop_the_job(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = replace(merge_settings(), on_table_error="stop")
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    marker(topics, HeartbeatMarker, 200)
    flush(topics)
    merge_all(spark, settings)
    topics.widen(topics.snapshots, 3)
    topics.row({"id": "two", "amount": 2}, at(90).text, 2)
    flush(topics)
    with pytest.raises(SinkError, match=r"has 3 partitions, the producer knows 2: .*sinks\.path, of a database sinks\.work.*tables read again"):
        merge_all(spark, settings)
    assert amounts(settings) == {"one": 1}


def test_topics_that_were_deleted_and_created_again_stop_the_job(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """Also where the new ones are longer than what was read of the old ones: their beginning would be taken as read."""
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    for key in ("one", "two"):
        topics.change("c", {"id": key, "amount": 1}, at(100, 1).text)
    marker(topics, HeartbeatMarker, 200)
    flush(topics)
    merge_all(spark, settings)
    topics.create_again()
    for key in ("one", "two", "three"):
        topics.change("c", {"id": key, "amount": 2}, at(300, 1).text)
        topics.row({"id": key, "amount": 2}, at(290).text)
    more = {"request": "again", "first_bound": at(290), "whole_table": True, "rows": 3}
    marker(topics, CompleteMarker, 400, 290, **more)
    flush(topics)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"was deleted and created again.*snapshot again"):
            merge_all(spark, settings)
        assert amounts(settings) == {"one": 1, "two": 1}


def test_a_start_that_finds_other_topics_leaves_the_checkpoint_as_it_was(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """A wrong name, another Kafka, a right that was taken away: the next start, with all as it was, continues."""
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    with pytest.raises(SinkError, match=rf"{topics.changes}.*name"):
        merge_all(spark, replace(settings, name=f"{settings.name}-wrong"))
    topics.change("c", {"id": "two", "amount": 2}, at(200, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"one": 1, "two": 2}


def test_topics_that_were_out_of_sight_for_a_moment_are_resumed_at_the_next_start(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is behind, a right that was taken away: Spark has noted down that they have no ends, for a batch that never was."""
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    in_sight = replace(settings, name=f"{settings.name}-others")
    others = topics_of(in_sight, ORDERS)
    others.change("c", {"id": "three", "amount": 3}, at(100, 1).text)
    flush(others)
    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.jobs.merge_job.stream", lambda spark, _: stream(spark, in_sight))
        for _ in range(2):
            with pytest.raises(SinkError, match=rf"{topics.changes} partition 0 was read up to 1 and ends before that"):
                merge_all(spark, settings)
    topics.change("c", {"id": "two", "amount": 2}, at(200, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"one": 1, "two": 2}


def test_topics_that_are_created_again_while_the_job_runs_stop_it(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """Between two batches, so that none sees the shorter topic."""
    settings = merge_settings(trigger_s=1)
    topics = topics_of(settings, ORDERS)
    published, created_again = threading.Event(), threading.Event()

    def waits(step: str, _: int) -> None:
        if step == "published":
            published.set()
            created_again.wait(240)

    job, raised = MergeJob(settings, spark=spark, on_step=waits), []

    def run() -> None:
        try:
            job.run(until_caught_up=False)
        except SinkError as error:
            raised.append(str(error))

    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics)
    running = threading.Thread(target=run)
    running.start()
    try:
        assert published.wait(120)
        topics.create_again()
        for key in ("one", "two"):
            topics.change("u", {"id": key, "amount": 2}, at(300, 1).text)
        flush(topics)
        created_again.set()
        running.join(120)
    finally:
        created_again.set()
        job.stop()
        running.join(120)
    assert amounts(settings) == {"one": 1}
    assert raised
    assert "was deleted and created again" in raised[0]


@pytest.mark.parametrize("topic", ["changes", "snapshots"])
def test_records_that_kafka_has_dropped_before_they_were_read_stop_the_job_with_a_clear_error(
    spark: SparkSession, merge_settings: SinkFactory, topic: str
) -> None:
    """As after a stop that lasted longer than the retention: a retry would not help."""
    settings = replace(merge_settings(), on_table_error="stop")
    topics = topics_of(settings, ORDERS)
    for position in (100, 200, 300):
        topics.change("c", {"id": str(position), "amount": 1}, at(position, 1).text)
        topics.row({"id": str(position), "amount": 1}, at(position).text)
        flush(topics)
        if position == 100:
            merge_all(spark, settings)
    topics.trim(getattr(topics, topic), 0, 2)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"no longer in Kafka.*empty sink path.*snapshot") as raised:
            merge_all(spark, settings)
        assert "retried" not in str(raised.value)
        assert "failOnDataLoss" not in str(raised.value)


@PLAIN.case
def test_a_snapshot_whose_beginning_kafka_no_longer_has_does_not_make_a_new_table_consistent(tables: Tables) -> Runs:
    """Its last marker is there; rows, or changes that came after them, went with the retention before the job first ran."""
    settings = tables.settings
    whole, rowless, changeless = (tables.topics_of(replace(ORDERS, name=name)) for name in ("whole", "rowless", "changeless"))

    def read_at(position: int, *ids: str) -> None:
        for topics in (whole, rowless, changeless):
            for key in ids:
                topics.row({"id": key, "amount": position}, at(position).text)
            more = {"request": str(position), "first_bound": at(position), "whole_table": True, "rows": len(ids)}
            marker(topics, CompleteMarker, position + 50, **more)
        flush(whole, rowless, changeless)

    for topics in (whole, rowless, changeless):
        topics.change("u", {"id": "one", "amount": 1}, at(120, 1).text)
        topics.change("c", {"id": "three", "amount": 1}, at(121, 1).text, 1)
    read_at(100, "one", "two")
    rowless.trim(rowless.snapshots, 0, 1)
    changeless.trim(changeless.changes, 0, 1)
    yield MERGED
    known = {topics.table.name: progress(settings, topics.table) for topics in (whole, rowless, changeless)}
    assert {name: one["consistent_at"] for name, one in known.items()} == {
        "whole": at(150).text,
        "rowless": None,
        "changeless": None,
    }
    assert {one["applied_position"] for one in known.values()} == {at(150).text}

    read_at(200, "one", "two", "three")
    yield MERGED
    for topics in (whole, rowless, changeless):
        assert progress(settings, topics.table)["consistent_at"] == at(250).text
        assert {row["amount"] for row in rows(settings, topics.table)} == {200}


def test_what_kafka_drops_after_a_look_at_where_it_begins_is_missed(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first batch of many tables takes minutes: retention may take the beginning of one before its turn comes."""
    settings = replace(merge_settings(), on_table_error="stop")
    topics = topics_of(settings, ORDERS)
    for key in ("one", "two"):
        topics.row({"id": key, "amount": 1}, at(100).text)
    marker(topics, CompleteMarker, 150, request="all", first_bound=at(100), whole_table=True, rows=2)
    flush(topics)

    def trims(*arguments: Any) -> list[TableInput]:
        works = inputs_of(*arguments)
        topics.trim(topics.snapshots, 0, 1)
        return works

    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.merge.batch.inputs_of", trims)
        with pytest.raises(SinkError, match=r"no longer in Kafka.*next start"):
            merge_all(spark, settings)
    merge_all(spark, settings)
    assert (amounts(settings), progress(settings)["consistent_at"]) == ({"two": 1}, None)
