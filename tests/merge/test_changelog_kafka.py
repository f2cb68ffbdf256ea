"""Changelogs in topics, of a real broker: folded they are the source, and nothing is lost or doubled, whatever a job dies in."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from kafkaio.topic_admin import TopicAdmin
from schemas.errors import ConfigError, FencedError, RetriableSinkError, SinkError
from schemas.markers import CompleteMarker, HeartbeatMarker
from schemas.settings import RouteSettings, Settings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.jobs.target_rebuild import rebuild
from spark_jobs.merge.context import checkpoint_of
from spark_jobs.sinks.faulty import Faults, InjectedCrashError, faulty
from spark_jobs.sinks.kafka import kafka_client
from spark_jobs.sinks.kafka.kafka_client import KafkaClient
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.conftest import SinkFactory
from tests.merge.history import History
from tests.merge.lake import ORDERS, at, flush, marker, merge_all, topics_of
from tests.merge.test_spark_model import SHAPE, Dying, Played, merge_through_crashes
from tests.support.changelogs import events_of_topic, folded, messages
from tests.support.record_producer import RecordProducer
from tests.support.servers import unique_name


def streamed(settings: Settings, mode: Literal["mirror", "changelog", "both"] = "changelog", **more: Any) -> Settings:
    name = unique_name("stream")
    sink = replace(settings.sink, name=name, type="kafka", mode=mode, topic=f"{name}-$database.$table", **more)
    return replace(settings, sinks=(sink,))


def topic_of(settings: Settings, target: str = "shop.orders") -> str:
    return f"{settings.sink.name}-{target}"


def events(settings: Settings, target: str = "shop.orders") -> list[dict[str, Any]]:
    return events_of_topic(settings.kafka.bootstrap_servers, topic_of(settings, target))


def amounts(settings: Settings) -> dict[str, int]:
    return {row["id"]: row["amount"] for row in folded(events(settings), ["id"]).values()}


def job_dying(spark: SparkSession, settings: Settings, point: str) -> MergeJob:
    layout, faults = SinkLayout.of(settings.sink), Faults()
    faults.crash_at(point)
    return MergeJob(settings, spark=spark, sink=faulty(open_sink(settings, layout, checkpoint_of(layout)), faults))


def test_a_topic_folded_is_the_source_and_nothing_is_twice_after_a_death_inside_a_transaction(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = streamed(merge_settings())
    topics = topics_of(settings, ORDERS)
    for number in range(3):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, number % 2)
    flush(topics)
    with monkeypatch.context() as killed:  # the transaction stays open, as after kill -9
        killed.setattr(KafkaClient, "_end", lambda *_: None)
        killed.setattr(KafkaClient, "close", lambda *_: None)
        with pytest.raises(InjectedCrashError):
            job_dying(spark, settings, "after append").run(until_caught_up=True)
    assert events(settings) == []
    merge_all(spark, settings)
    assert amounts(settings) == {"0": 0, "1": 1, "2": 2}

    topics.change("u", {"id": "1", "amount": 10}, at(200, 1).text, before={"id": "1", "amount": 1})
    topics.change("d", {"id": "2", "amount": 2}, at(202, 1).text)
    marker(topics, HeartbeatMarker, 220, 90)
    flush(topics)
    with pytest.raises(InjectedCrashError):  # committed, and the job does not know of it
        job_dying(spark, settings, "after commit").run(until_caught_up=True)
    merge_all(spark, settings)
    kinds = sorted((one["_tm_op"], one["id"], one["amount"]) for one in events(settings))
    assert kinds == [("+I", "0", 0), ("+I", "1", 1), ("+I", "2", 2), ("+U", "1", 10), ("-D", "2", 2), ("-U", "1", 1)]

    topics.row({"id": "1", "amount": 12}, at(350).text, 1)
    topics.row({"id": "4", "amount": 4}, at(350).text)
    marker(topics, CompleteMarker, 400, 350, request="again", first_bound=at(350), whole_table=True, rows=2)
    flush(topics)
    merge_all(spark, settings)
    merge_all(spark, settings)
    assert amounts(settings) == {"1": 12, "4": 4}
    assert max(Counter(map(str, events(settings))).values()) == 1
    keys = {key for key, value in messages(settings.kafka.bootstrap_servers, topic_of(settings)) if value is not None}
    assert keys == {f'{{"id":"{number}"}}' for number in (0, 1, 2, 4)}


@pytest.mark.slow
def test_a_history_with_deaths_folds_to_the_rows_of_the_source(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = streamed(merge_settings(max_batch_records=400))
    history = History(3, replace(SHAPE, merge="spark", cascades=0.04)).run()
    topics, dying = topics_of(settings, ORDERS), Dying(3)
    for _ in Played(history, topics, 3).produce_pieces(most=130):
        merge_through_crashes(spark, settings, dying)
    merge_all(spark, settings)
    assert amounts(settings) == history.source
    assert dying.deaths > 0


def test_a_job_that_is_fenced_commits_nothing_and_ends(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = streamed(merge_settings())
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    flush(topics)
    other = KafkaClient(settings.kafka, f"tidemark-sink-{settings.sink.name}")
    end = KafkaClient.committed_records

    def then_another_begins(self: KafkaClient, topic: str) -> Any:
        found = list(end(self, topic))
        other.fence()
        return iter(found)

    monkeypatch.setattr(KafkaClient, "committed_records", then_another_begins)
    with pytest.raises(FencedError, match="another merge job writes to the sink"):
        merge_all(spark, settings)
    monkeypatch.undo()
    assert events(settings) == []
    merge_all(spark, settings)
    assert amounts(settings) == {"a": 1}
    with pytest.raises(FencedError), other.transaction() as transaction:
        transaction.produce(topic_of(settings), "k", "v")
    other.close()
    assert amounts(settings) == {"a": 1}


@pytest.mark.slow  # brokers look for such transactions every 10 s
def test_a_transaction_that_was_open_for_too_long_is_not_blamed_on_another_job(
    merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = streamed(merge_settings())
    monkeypatch.setattr(kafka_client, "TRANSACTION_MS", 1_000)
    client = KafkaClient(settings.kafka, f"tidemark-sink-{settings.sink.name}")
    client.create_topic(topic_of(settings), 1, {})
    client.fence()

    def is_late() -> None:
        with client.transaction() as transaction:
            transaction.produce(topic_of(settings), "k", "late")
            transaction.flush()
            time.sleep(25)

    with pytest.raises(RetriableSinkError, match=r"was open for \d+ s, and Kafka aborts one after 1 s"):
        is_late()
    client.fence()
    with client.transaction() as transaction:
        transaction.produce(topic_of(settings), "k", '"again"')
    client.close()
    assert [value for _, value in messages(settings.kafka.bootstrap_servers, topic_of(settings))] == ['"again"']


def test_topics_of_somebody_else_and_topics_that_are_gone_are_refused(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = replace(streamed(merge_settings()), on_table_error="stop")
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    flush(topics)
    servers = {"bootstrap.servers": settings.kafka.bootstrap_servers}
    producer = RecordProducer(servers)
    TopicAdmin(settings.kafka).ensure({topic_of(settings): 1})
    producer.produce(topic_of(settings), b"theirs")
    producer.flush(60)
    with pytest.raises(SinkError, match="has records that this merge job has not written"):
        merge_all(spark, settings)
    KafkaClient(settings.kafka, "tests").delete_topic(topic_of(settings))
    merge_all(spark, settings)
    assert amounts(settings) == {"a": 1}

    KafkaClient(settings.kafka, "tests").delete_topic(topic_of(settings))
    topics.change("c", {"id": "b", "amount": 1}, at(200, 1).text)
    flush(topics)
    settings = replace(settings, on_table_error="set_aside")
    job = MergeJob(settings, spark=spark)
    job.run(until_caught_up=True)
    assert "is gone since batch 0: tidemark rebuild --sink stream" in job.set_aside["shop.orders"]
    rebuild(settings, ["shop.orders"], spark)
    topics.change("c", {"id": "c", "amount": 1}, at(300, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"b": 1, "c": 1}, "inexact until a snapshot has read the rest"

    other = replace(settings, on_table_error="stop", sinks=(replace(settings.sink, path=f"{settings.sink.path}-2"),))
    with pytest.raises(SinkError, match=r"was last written by batch \d of query"):
        merge_all(spark, other)


def test_settings_that_no_topic_can_have_are_refused(merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = streamed(merge_settings())
    wrong = replace(settings, sinks=(replace(settings.sink, name=f"{settings.name}.x"),))
    with pytest.raises(ConfigError, match="which the merge job would read as a table"):
        MergeJob(wrong)
    for name in [one for one in sys.modules if one.startswith(("spark_jobs.sinks.kafka", "kafkaio"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidemark-cdc\[kafka-sink\]'"):
        MergeJob(settings)
    assert not Path(settings.sink.path).exists(), "nothing is written before"


def test_targets_that_would_share_a_topic_end_the_job(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = streamed(merge_settings(), routes=(RouteSettings(tables=r"s\d\.orders", into="ods.$database"),))
    settings = replace(settings, sinks=(replace(settings.sink, topic=f"{settings.sink.name}-$database"),))
    one, two = (topics_of(settings, replace(ORDERS, database=name)) for name in ("s1", "s2"))
    for topics in (one, two):
        topics.change("c", {"id": "a", "amount": 1}, at(200, 1).text)
    flush(one, two)
    with pytest.raises(ConfigError, match=r"would share the topic '\S+-ods'"):
        merge_all(spark, settings)
