"""The merge job over Iceberg tables, on a real broker and registry: what a job on Delta leaves, with crashes in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.columns import ColumnType
from schemas.errors import ConfigError
from schemas.identity import SourceTable
from schemas.markers import CompleteMarker, FloorMarker
from schemas.settings import RouteSettings, Settings, TransformSettings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.merge.context import checkpoint_of
from spark_jobs.sinks.faulty import Faults, InjectedCrashError, faulty
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.conftest import SinkFactory
from tests.merge.lake import at, column, flush, marker, merge_all, progress, quarantined, table, topics_of
from tests.support.iceberg_tables import open_iceberg

PLAIN = table("plain", column("a"))
ALTERED = table("plain", column("a", ColumnType.BIGINT), column("five", nullable=False, default="5"), column("maybe", ColumnType.VARCHAR))


def iceberg(settings: Settings, **more: Any) -> Settings:
    return replace(settings, sinks=(replace(settings.sink, type="iceberg", **more),))


def merge(spark: SparkSession, settings: Settings, point: str) -> None:
    """Merge all, through a crash at a point."""
    layout, faults = SinkLayout.of(settings.sink), Faults()
    faults.crash_at(point)
    sink = faulty(open_sink(settings, layout, checkpoint_of(layout)), faults)
    with pytest.raises(InjectedCrashError):
        MergeJob(settings, spark=spark, sink=sink).run(until_caught_up=True)
    merge_all(spark, settings)


def rows(settings: Settings, database: str = "shop", name: str = "plain") -> dict[int, dict[str, Any]]:
    found = open_iceberg(settings.sink.table_path(database, name)).scan().to_arrow().drop_columns("_tm_position").to_pylist()
    assert len({(row["id"], row.get("_tm_source")) for row in found}) == len(found)
    return {row.pop("id"): row for row in found}


def test_rows_columns_floors_and_sweeps_reach_an_iceberg_table_once_whatever_step_the_job_dies_in(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = iceberg(merge_settings())
    topics = topics_of(settings, PLAIN)
    for number in range(4):
        topics.change("c", {"id": number, "a": number or None}, at(100 + number, 1).text, number % 2)
    topics.put(topics.changes, 0, b"garbage", b"\x01garbage")
    flush(topics)
    merge(spark, settings, "after put")
    assert rows(settings) == {number: {"a": number or None} for number in range(4)}
    assert [offset for _, _, offset, _ in quarantined(settings)] == [2]

    topics.alter(ALTERED)
    topics.change("u", {"id": 1, "a": 2**40, "five": 8, "maybe": "x"}, at(200, 1).text)
    topics.change("d", {"id": 2, "a": 2, "five": 5, "maybe": None}, at(201, 1).text)
    flush(topics)
    merge(spark, settings, "after evolve")
    assert rows(settings) == {
        0: {"a": None, "five": 5, "maybe": None},
        1: {"a": 2**40, "five": 8, "maybe": "x"},
        3: {"a": 3, "five": 5, "maybe": None},
    }

    marker(topics, FloorMarker, 300, reason="truncate")
    topics.row({"id": 7, "a": 7, "five": 7, "maybe": None}, at(350).text)
    topics.row({"id": 0, "a": 0, "five": 0, "maybe": None}, at(250).text)  # late: it is below the floor
    marker(topics, CompleteMarker, 400, 350, request="again", first_bound=at(350), whole_table=True, rows=1)
    flush(topics)
    merge(spark, settings, "before save")
    assert rows(settings) == {7: {"a": 7, "five": 7, "maybe": None}}
    assert progress(settings, PLAIN)["consistent_at"] == at(400).text


@pytest.mark.slow
def test_shards_go_into_one_iceberg_table_by_their_identity(spark: SparkSession, merge_settings: SinkFactory) -> None:
    into = RouteSettings(tables=r"s\d\.plain", into="ods.plain")
    settings = iceberg(merge_settings(), routes=(into,))
    shards = [topics_of(settings, replace(PLAIN, database=name)) for name in ("s1", "s2")]
    shards[0].change("c", {"id": 1, "a": 1}, at(100, 1).text)
    flush(*shards)
    merge_all(spark, settings)
    for number, shard in enumerate(shards):
        shard.change("c", {"id": 2 + number, "a": number}, at(200, 1).text)
    flush(*shards)
    merge_all(spark, settings)
    found = rows(settings, "ods")
    assert {key: (row["a"], SourceTable.parse(row["_tm_source"]).name.database) for key, row in found.items()} == {
        1: (1, "s1"), 2: (0, "s1"), 3: (1, "s2"),
    }  # fmt: skip


def test_settings_that_an_iceberg_sink_does_not_have_are_refused(merge_settings: SinkFactory) -> None:
    from schemas.settings.sink_section import check_sinks

    settings = merge_settings()
    for change in ({"writer": "jvm"}, {"deletion_vectors": False}):
        with pytest.raises(ConfigError, match=r"a sink of type iceberg has no such setting, only delta"):
            check_sinks((replace(settings.sink, type="iceberg", **change),))
    transform = TransformSettings(tables=".*", options={"format-version": "2"})
    layout = SinkLayout.of(settings.sink)
    with pytest.raises(ConfigError, match=r"transforms\.0\.options: format-version cannot be chosen"):
        open_sink(iceberg(settings, transforms=(transform,)), layout, checkpoint_of(layout))
