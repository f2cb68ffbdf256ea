"""Targets that keep rows which are deleted at the source: `soft_delete`, and with it what Spark merges and no worker does."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas.settings import TransformSettings
from spark_jobs.store.sink_layout import TOMBSTONES
from tests.merge.conftest import SinkFactory
from tests.merge.history import History, Shape
from tests.merge.lake import ORDERS, at, merge_all, progress
from tests.merge.test_routed_merge import PEOPLE, routed, rows, topics_of
from tests.merge.test_spark_model import Dying, Played, merge_through_crashes


@pytest.mark.parametrize("seed", [21, pytest.param(22, marks=pytest.mark.slow), pytest.param(23, marks=pytest.mark.slow)])
def test_rows_that_are_deleted_stay_with_their_last_values(seed: int, spark: SparkSession, merge_settings: SinkFactory) -> None:
    """A history through crashes: what was deleted, truncated or swept is marked; what matched no longer is not there."""
    transform = TransformSettings(
        tables="shop.orders", select=("id", "amount", "amount % 5 AS part"), where="amount % 3 <> 1", soft_delete="gone", partition_by=("part",)
    )
    settings = routed(merge_settings(max_batch_records=500), transforms=(transform,))
    world = History(seed, Shape(keys=30, partitions=2, steps=170, truncates=0.02)).run()
    played = Played(world, topics_of(settings, ORDERS), seed).produce_pieces(most=90)
    dying = Dying(seed)
    while next(played, "end") != "end":
        merge_through_crashes(spark, settings, dying)
    merge_all(spark, settings)
    assert progress(settings)["set_aside"] is None
    found = rows(settings, "shop.orders")
    live = {row["id"]: (row["amount"], row["part"]) for row in found if not row["gone"]}
    assert live == {key: (amount, amount % 5) for key, amount in world.source.items() if amount % 3 != 1}
    dead = {row["id"]: row["amount"] for row in found if row["gone"]}
    assert dead
    assert not dead.keys() & world.source.keys()
    assert all(amount % 3 != 1 for amount in dead.values())
    assert DeltaTable(settings.sink.table_path("shop", "orders")).metadata().partition_columns == ["part"]
    assert dying.deaths > 0


def test_a_deleted_row_has_the_values_that_it_had_also_where_it_changed_just_before(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    transform = TransformSettings(
        tables="crm.people", select=("id", "upper(email) AS mail", "state"), soft_delete="gone", options={"delta.checkpointInterval": "7"}
    )
    settings = routed(merge_settings(), transforms=(transform,))
    topics = topics_of(settings, PEOPLE)
    for number in (1, 2):
        topics.change("c", {"id": number, "email": "a", "state": "new"}, at(100 + number, 1).text)
    topics.flush()
    merge_all(spark, settings)
    tombstones = Path(settings.sink.service_path) / TOMBSTONES
    assert not list(tombstones.rglob("*.parquet")), "Spark writes none where no row leaves one"
    topics.change("u", {"id": 1, "email": "b", "state": "open"}, at(200, 1).text)
    topics.change("d", {"id": 1, "email": "b", "state": "open"}, at(210, 1).text)
    topics.change("c", {"id": 3, "email": "c", "state": "new"}, at(220, 1).text)
    topics.change("d", {"id": 3, "email": "c", "state": "new"}, at(230, 1).text)
    topics.row({"id": 1, "email": "old", "state": "new"}, at(150).text)
    topics.flush()
    merge_all(spark, settings)
    assert rows(settings, "crm.people") == [
        {"id": 2, "mail": "A", "state": "new", "gone": False},
        {"id": 1, "mail": "B", "state": "open", "gone": True},
        {"id": 3, "mail": "C", "state": "new", "gone": True},
    ]
    assert list(tombstones.rglob("*.parquet"))
    topics.change("c", {"id": 1, "email": "again", "state": "new"}, at(300, 1).text)
    topics.flush()
    merge_all(spark, settings)
    assert [row["gone"] for row in rows(settings, "crm.people") if row["id"] == 1] == [False]
    assert DeltaTable(settings.sink.table_path("crm", "people")).metadata().configuration["delta.checkpointInterval"] == "7"
