"""Mirrors in topics, of a real broker: folded in their order, the messages are the image of the source, whatever a job dies in.

Each look at the rows folds the topic, and requires of each message that retracts a row that it is the row folded so far.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.identity import TableName
from schemas.markers import CompleteMarker, HeartbeatMarker
from schemas.settings import RouteSettings, Settings, TransformSettings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.target_rebuild import rebuild
from spark_jobs.sinks.faulty import InjectedCrashError
from spark_jobs.sinks.kafka.kafka_client import KafkaClient
from tests.merge.conftest import SinkFactory
from tests.merge.history import History
from tests.merge.lake import ORDERS, at, flush, marker, merge_all, quarantined, topics_of
from tests.merge.test_changelog_kafka import events, job_dying, streamed, topic_of
from tests.merge.test_spark_model import SHAPE, Dying, Played, merge_through_crashes
from tests.sinks.test_kafka_mirror import dying as dying_at
from tests.support.changelogs import folded, folded_in_order, messages
from tidemark.verify.sink_types import open_reader


def rows(settings: Settings, target: str = "shop.orders") -> list[dict[str, Any]]:
    return list(folded_in_order(messages(settings.kafka.bootstrap_servers, topic_of(settings, target))).values())


def amounts(settings: Settings, target: str = "shop.orders") -> dict[str, int]:
    return {row["id"]: row["amount"] for row in rows(settings, target)}


def test_a_topic_folded_in_its_order_is_the_source_also_after_a_death_inside_a_transaction(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = streamed(merge_settings(), "mirror")
    topics = topics_of(settings, ORDERS)
    for number in range(3):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, number % 2)
    flush(topics)
    with monkeypatch.context() as killed, dying_at("recorded"):  # the transaction stays open, as after kill -9
        killed.setattr(KafkaClient, "_end", lambda *_: None)
        killed.setattr(KafkaClient, "close", lambda *_: None)
        with pytest.raises(InjectedCrashError):
            MergeJob(settings, spark=spark).run(until_caught_up=True)
    merge_all(spark, settings)
    assert amounts(settings) == {"0": 0, "1": 1, "2": 2}

    topics.change("u", {"id": "1", "amount": 10}, at(200, 1).text, before={"id": "1", "amount": 1})
    topics.change("u", {"id": "1", "amount": 11}, at(201, 1).text, before={"id": "1", "amount": 10})
    topics.change("u", {"id": "0", "amount": 0}, at(201, 2).text, before={"id": "0", "amount": 0})
    topics.change("d", {"id": "2", "amount": 2}, at(202, 1).text)
    marker(topics, HeartbeatMarker, 220, 90)
    flush(topics)
    with pytest.raises(InjectedCrashError):  # committed, and the job does not know of it
        job_dying(spark, settings, "after commit").run(until_caught_up=True)
    merge_all(spark, settings)
    assert amounts(settings) == {"0": 0, "1": 11}
    sent = messages(settings.kafka.bootstrap_servers, topic_of(settings))
    assert len(sent) == 3 + 3, "net: an update of an update, and one that changes nothing"

    topics.row({"id": "1", "amount": 12}, at(350).text, 1)
    topics.row({"id": "4", "amount": 4}, at(350).text)
    marker(topics, CompleteMarker, 400, 350, request="again", first_bound=at(350), whole_table=True, rows=2)
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"1": 12, "4": 4}, "the floor of a snapshot that is complete"
    found = open_reader(settings).rows(TableName("shop", "orders")).scan(["id"])
    assert sorted(key for batch in found for key in batch["id"].to_pylist()) == ["1", "4"], "what verify compares"


@pytest.mark.slow
def test_filtered_targets_of_several_tables_are_folded_and_made_again(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = streamed(
        merge_settings(),
        "mirror",
        routes=(RouteSettings(tables=r"s\d\.orders", into="ods.orders"),),
        transforms=(TransformSettings(tables=r"s\d\.orders", select=("id", "amount * 2 AS twice"), where="amount > 5"),),
    )
    one, two = (topics_of(settings, replace(ORDERS, database=name)) for name in ("s1", "s2"))
    one.change("c", {"id": "a", "amount": 10}, at(100, 1).text)
    one.change("c", {"id": "b", "amount": 20}, at(101, 1).text)
    flush(one)
    merge_all(spark, settings)
    two.change("c", {"id": "a", "amount": 30}, at(50, 1).text)
    one.change("u", {"id": "b", "amount": 2}, at(110, 1).text, before={"id": "b", "amount": 20})
    flush(one, two)
    merge_all(spark, settings)
    assert sorted((row["_tm_source"].rpartition(":")[2], row["id"], row["twice"]) for row in rows(settings, "ods.orders")) == [
        ("s1.orders", "a", 20), ("s2.orders", "a", 60),
    ]  # fmt: skip
    rebuild(settings, ["ods.orders"], spark)
    two.change("c", {"id": "c", "amount": 7}, at(60, 1).text)
    flush(two)
    merge_all(spark, settings)
    assert [(row["id"], row["twice"]) for row in rows(settings, "ods.orders")] == [("c", 14)], "inexact until it is read again"


def test_a_sink_with_both_has_a_mirror_and_its_changelog(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = streamed(merge_settings(), "both")
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    topics.change("u", {"id": "a", "amount": 2}, at(101, 1).text, before={"id": "a", "amount": 1})
    flush(topics)
    with pytest.raises(InjectedCrashError):  # the mirror is committed, and the changelog is not
        job_dying(spark, settings, "after append").run(until_caught_up=True)
    merge_all(spark, settings)
    assert amounts(settings) == {"a": 2}
    assert [(one["_tm_op"], one["amount"]) for one in events(settings, "shop.orders__changelog")] == [("+I", 1), ("-U", 1), ("+U", 2)]


@pytest.mark.slow
def test_both_leave_out_what_has_no_image_and_quarantine_it_once(spark: SparkSession, merge_settings: SinkFactory) -> None:
    transform = TransformSettings(tables=r"shop\.orders", select=("id", "amount", "100 / amount AS share"))
    settings = streamed(merge_settings(), "both", transforms=(transform,))
    topics = topics_of(settings, ORDERS)
    row = {"id": "a", "amount": 10}
    topics.change("c", row, at(100, 1).text)
    topics.change("c", {"id": "b", "amount": 4}, at(101, 1).text)
    flush(topics)
    with pytest.raises(InjectedCrashError):  # the mirror is committed, and the changelog is not
        job_dying(spark, settings, "after append").run(until_caught_up=True)
    merge_all(spark, settings)
    for number, amount in enumerate((0, 20, 25)):  # the first of them has no image, and is not the newest
        topics.change("u", {"id": "a", "amount": amount}, at(200 + number, 1).text, before=row)
        row = {"id": "a", "amount": amount}
    topics.change("u", {"id": "b", "amount": 0}, at(210, 1).text, before={"id": "b", "amount": 4})
    flush(topics)
    with dying_at("recorded"), pytest.raises(InjectedCrashError):
        MergeJob(settings, spark=spark).run(until_caught_up=True)
    merge_all(spark, settings)
    assert amounts(settings) == {"a": 25, "b": 4}
    found = events(settings, "shop.orders__changelog")
    assert {one["id"]: one["amount"] for one in folded(found, ["id"]).values()} == {"a": 25, "b": 4}
    assert sorted((one["_tm_op"], one["id"], one["amount"]) for one in found) == [
        ("+I", "a", 10), ("+I", "b", 4), ("+U", "a", 20), ("+U", "a", 25), ("-U", "a", 20),
    ]  # fmt: skip
    assert len(quarantined(settings)) == 2, "each record once, though the mirror leaves out one of them, too"


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "cascades"), [(5, 0.1), (3, 0.0)])
def test_a_history_with_deaths_folds_in_order_to_the_rows_of_the_source(
    seed: int, cascades: float, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = streamed(merge_settings(max_batch_records=400), "mirror")
    history = History(seed, replace(SHAPE, steps=120, merge="spark", cascades=cascades)).run()
    topics, dying = topics_of(settings, ORDERS), Dying(seed)
    for number, _ in enumerate(Played(history, topics, seed).produce_pieces(most=130)):
        with dying_at(("kept", "recorded", "committed")[number % 3]):
            try:
                MergeJob(settings, spark=spark).run(until_caught_up=True)
            except InjectedCrashError:
                dying.deaths += 1
        merge_through_crashes(spark, settings, dying)
    merge_all(spark, settings)
    assert amounts(settings) == history.source
    assert dying.deaths > 0
