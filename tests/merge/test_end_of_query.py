"""How the merge job ends its query, on a real broker, registry and Delta: no batch runs when the sink's lock is given back."""

from __future__ import annotations

import threading
import time

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.errors import RetriableSinkError
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.merge.context import checkpoint_of
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.merge.tables_by_workers import TablesByWorkers
from spark_jobs.spark_errors import was_cancelled
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, merge_all, topics_of


def test_no_query_runs_after_an_error_of_the_job_beside_it(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[int] = []

    def fails(_questions: object, query: StreamingQuery) -> None:
        active.append(len(spark.streams.active))
        raise ValueError(query.id)

    monkeypatch.setattr("spark_jobs.jobs.merge_job.KafkaQuestions.look", fails)
    settings = merge_settings()
    flush(topics_of(settings, ORDERS))
    with pytest.raises(ValueError, match="-"):
        MergeJob(settings, spark=spark).run(until_caught_up=False)
    assert active == [1]
    assert not spark.streams.active


def test_an_error_of_the_job_beside_its_query_is_raised_when_the_batch_has_ended(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.jobs.merge_job._GRACE_S", 60.0)
    monkeypatch.setattr("spark_jobs.jobs.merge_job._COMMIT_S", 60.0)
    merged, failed = threading.Event(), threading.Event()
    steps: list[str] = []

    def step(name: str, _: int) -> None:
        steps.append(name)
        if name == "merged":
            merged.set()
            assert failed.wait(60)
            time.sleep(1)
            assert spark.range(1).count() == 1  # it is not cancelled

    def look(*_: object) -> None:
        if merged.is_set():
            failed.set()
            raise ValueError(steps)

    monkeypatch.setattr("spark_jobs.jobs.merge_job.KafkaQuestions.look", look)
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    with pytest.raises(ValueError, match="merged"):
        MergeJob(settings, spark=spark, on_step=step).run(until_caught_up=False)
    assert steps[-1] == "published"
    assert not spark.streams.active
    checkpoint = checkpoint_of(SinkLayout.of(settings.sink))
    assert checkpoint.newest_done == checkpoint.newest_begun
    assert amounts(settings) == {"1": 1}


def test_a_batch_that_takes_long_is_waited_for_also_where_spark_cannot_stop_its_query(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    steps: list[str] = []
    stop = StreamingQuery.stop

    def fails(query: StreamingQuery) -> None:
        stopped.set()
        message = "played"
        raise Py4JError(message)

    def step(name: str, _: int) -> None:
        if name == "merged":
            job.stop()
            assert stopped.wait(60)
            time.sleep(1)
        steps.append(name)

    monkeypatch.setattr(StreamingQuery, "stop", fails)
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    job = MergeJob(settings, spark=spark, on_step=step)
    job.run(until_caught_up=False)
    assert steps[-1] == "published"
    for query in spark.streams.active:
        stop(query)


def test_a_batch_that_does_not_end_soon_after_a_stop_is_cancelled_and_run_again(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.jobs.merge_job._GRACE_S", 0.2)
    ends: list[Exception] = []

    def step(name: str, _: int) -> None:
        if name == "merged":
            job.stop()
            try:
                spark.range(1).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L)").collect()
            except (PySparkException, Py4JError) as error:
                ends.append(error)
                raise

    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    job = MergeJob(settings, spark=spark, on_step=step)
    job.run(until_caught_up=False)
    assert was_cancelled(ends[0])
    checkpoint = checkpoint_of(SinkLayout.of(settings.sink))
    assert (checkpoint.newest_begun, checkpoint.newest_done) == (0, -1)
    merge_all(spark, settings)
    assert amounts(settings) == {"1": 1}


def test_what_workers_do_is_not_done_by_the_jvm_when_it_is_cancelled(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.jobs.merge_job._GRACE_S", 0.2)
    steps: list[str] = []

    def rows(*_: object) -> None:
        job.stop()
        spark.range(1).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L)").collect()

    monkeypatch.setattr(TablesByWorkers, "_rows_by_workers_that_read", rows)
    monkeypatch.setattr(TablesByWorkers, "_rows", rows)
    settings = merge_settings(writer="arrow")
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    job = MergeJob(settings, spark=spark, on_step=lambda name, _: steps.append(name))
    job.run(until_caught_up=False)
    assert "merged" not in steps
    assert amounts(settings) == {}


def test_a_checkpoint_that_cannot_be_read_does_not_leave_the_query_running(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def fails(_: SparkCheckpoint) -> int:
        ending.set()
        message = "played"
        raise OSError(message)

    ending = threading.Event()

    def step(name: str, _: int) -> None:
        if name == "merged":
            monkeypatch.setattr(SparkCheckpoint, "newest_begun", property(fails))
            job.stop()
            assert ending.wait(60)
        steps.append(name)

    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    job = MergeJob(settings, spark=spark, on_step=step)
    job.run(until_caught_up=False)
    assert "merged" in steps
    assert not spark.streams.active


def test_a_panic_of_a_library_ends_the_batch_with_an_error(spark: SparkSession, merge_settings: SinkFactory) -> None:
    class Panic(BaseException):
        """As PyO3's PanicException, which is no `Exception`: py4j would never answer the JVM."""

    def step(*_: object) -> None:
        message = "in Rust"
        raise Panic(message)

    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    with pytest.raises(RetriableSinkError, match="Panic: in Rust"):
        merge_all(spark, settings, step)
    merge_all(spark, settings)
    assert amounts(settings) == {"1": 1}
