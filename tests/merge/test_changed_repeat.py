"""The repeat of a batch whose world has changed since its first attempt: it is the same batch, or it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.columns import ColumnType
from schemas.errors import SinkError
from schemas.settings import Settings, TransformSettings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.target_rebuild import rebuild
from spark_jobs.kafka.schema_registry import HttpRegistry, RegisteredSchema, SchemaRegistry
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    ORDERS,
    Crash,
    at,
    column,
    flush,
    merge_all,
    progress,
    quarantined,
    topics_of,
)
from tests.merge.test_routed_merge import routed
from tests.merge.test_routed_merge import rows as rows_of

ALSO = replace(ORDERS, columns=(*ORDERS.columns, column("note", ColumnType.INT)))


def dies_after_its_writes(name: str, _batch_id: int) -> None:
    """Play kill -9 after the rows of a batch were written."""
    if name == "merged":
        raise Crash


def die(spark: SparkSession, settings: Settings, registry: SchemaRegistry | None = None) -> None:
    """Run a batch up to a crash after its last write to a target."""
    with pytest.raises(Crash):
        MergeJob(settings, spark=spark, on_step=dies_after_its_writes, registry=registry).run(until_caught_up=True)


def by(plain: Settings, **transform: Any) -> Settings:
    """The sink with one transform of ORDERS."""
    return routed(plain, transforms=(TransformSettings(tables="shop.orders", **transform),))


class OldRegistry:
    """A registry that knows only the first version of each subject."""

    def __init__(self, url: str | None) -> None:
        self._registry = HttpRegistry(url or "")

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        return self._registry.versions(subject)[:1]


def ids(settings: Settings, target: str = "shop.orders") -> list[str]:
    return sorted(row["id"] for row in rows_of(settings, target))


def test_a_repeat_with_another_filter_is_refused_until_it_is_changed_back_or_the_target_is_made_again(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(topics)
    low, high = by(plain, where="amount < 3"), by(plain, where="amount >= 3")
    die(spark, low)
    for changed in (high, plain):
        with pytest.raises(SinkError, match=r"shop.orders has rows of shop.orders by another rule: an attempt at batch 0 .* tidemark rebuild"):
            merge_all(spark, changed)
    assert rebuild(high, ["shop.orders"], spark) == (), "no batch of it has ended: its records are all in the one to be repeated"
    merge_all(spark, high)
    assert ids(plain) == ["3", "4"]
    with pytest.raises(SinkError, match=r"shop.orders was built of shop.orders by another rule"):
        merge_all(spark, low)


def test_a_repeat_by_the_same_rules_is_not_refused_after_they_were_changed_back(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(5):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(topics)
    die(spark, by(plain, where="amount < 3"))
    with pytest.raises(SinkError):
        merge_all(spark, by(plain, where="amount < 4"))
    merge_all(spark, by(plain, where="amount < 3"))
    assert ids(plain) == ["0", "1", "2"]


def test_a_repeat_that_sees_more_schemas_is_the_same_batch_as_the_first_attempt(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    topics.alter(ALSO)
    topics.change("c", {"id": "b", "amount": 2, "note": 2}, at(110, 1).text)
    flush(topics)
    die(spark, plain, OldRegistry(plain.format.registry))
    merge_all(spark, plain)
    assert ids(plain) == ["a"], "the record that the first attempt could not read is in quarantine, and named"
    assert [offset for _, _, offset, _ in quarantined(plain)] == [1]
    assert progress(plain)["quarantined"] == 1
    topics.change("u", {"id": "b", "amount": 3, "note": 3}, at(120, 1).text)
    flush(topics)
    merge_all(spark, plain)
    assert [(row["id"], row["note"]) for row in rows_of(plain, "shop.orders")] == [("a", None), ("b", 3)]


def test_a_batch_that_has_written_nothing_sees_the_world_as_it_is(spark: SparkSession, merge_settings: SinkFactory) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    topics.alter(ALSO)
    topics.change("c", {"id": "b", "amount": 2, "note": 2}, at(110, 1).text)
    flush(topics)

    def dies_at_once(name: str, _batch_id: int) -> None:
        if name == "begun":
            raise Crash

    with pytest.raises(Crash):
        MergeJob(
            by(plain, where="amount < 3"), spark=spark, on_step=dies_at_once, registry=OldRegistry(plain.format.registry)
        ).run(until_caught_up=True)
    merge_all(spark, by(plain, where="amount < 2"))
    assert ids(plain) == ["a"]


def test_a_repeat_with_another_expression_is_refused_while_rows_of_the_first_are_in_quarantine(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, ORDERS)
    topics.register()
    for number in range(6):
        topics.change("c", {"id": str(number), "amount": number % 3}, at(100 + number, 1).text)
    flush(topics)
    divided, tried = (by(plain, select=("*", f"{text} AS share")) for text in ("100 / amount", "try_divide(100, amount)"))
    die(spark, divided)
    assert len(quarantined(plain)) == 2
    with pytest.raises(SinkError, match="by another rule"):
        merge_all(spark, tried)
    rebuild(tried, ["shop.orders"], spark)
    assert quarantined(plain) == [], "records that the batch is to read again are not left there"
    merge_all(spark, tried)
    assert ids(plain) == [str(number) for number in range(6)]
    assert progress(plain)["quarantined"] == 0
