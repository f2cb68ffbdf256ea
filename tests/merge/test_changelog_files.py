"""Changelogs in files, of a real broker and registry: folded they are the source, whatever step the job dies in, and nothing is twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.identity import Target
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker
from schemas.settings import RouteSettings, Settings, TransformSettings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.merge.context import checkpoint_of
from spark_jobs.sinks.faulty import Faults, InjectedCrashError, faulty
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.conftest import SinkFactory
from tests.merge.history import History
from tests.merge.lake import ORDERS, at, flush, marker, merge_all, progress, quarantined, topics_of
from tests.merge.test_spark_model import SHAPE, Dying, Played, merge_through_crashes
from tests.support.changelogs import events_of_files, folded


def changelog(settings: Settings, form: str | None = None, **more: Any) -> Settings:
    return replace(settings, sinks=(replace(settings.sink, type="files", mode="changelog", format=form, **more),))


def events(settings: Settings, target: str = "shop.orders") -> list[dict[str, Any]]:
    return events_of_files(Path(settings.sink.table_path(*target.split("."))))


def amounts(settings: Settings, target: str = "shop.orders") -> dict[str, int]:
    return {row["id"]: row["amount"] for row in folded(events(settings, target), ["id"]).values()}


def ops(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["_tm_op"], one.get("id"), one.get("amount")) for one in found]


def merge(spark: SparkSession, settings: Settings, point: str | None = None) -> None:
    """Merge all, through a crash at a point of the sink if one is given."""
    layout = SinkLayout.of(settings.sink)
    faults = Faults()
    if point is not None:
        faults.crash_at(point)
        sink = faulty(open_sink(settings, layout, checkpoint_of(layout)), faults)
        with pytest.raises(InjectedCrashError):
            MergeJob(settings, spark=spark, sink=sink).run(until_caught_up=True)
    merge_all(spark, settings)


@pytest.mark.parametrize("form", ["parquet", pytest.param("changelog-json", marks=pytest.mark.slow)])
def test_a_changelog_folded_is_the_source_whatever_step_the_job_dies_in(
    form: str, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = changelog(merge_settings(), form)
    topics = topics_of(settings, ORDERS)
    for number in range(3):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, number % 2)
    topics.put(topics.changes, 0, b"garbage", b"\x01garbage")
    flush(topics)
    merge(spark, settings, "after append")
    assert sorted(ops(events(settings))) == [("+I", "0", 0), ("+I", "1", 1), ("+I", "2", 2)]
    assert [offset for _, _, offset, _ in quarantined(settings)] == [2]

    one = {"id": "1", "amount": 1}
    topics.change("u", {"id": "1", "amount": 10}, at(200, 1).text, before=one)
    topics.change("u", {"id": "1", "amount": 11}, at(201, 1).text, before={"id": "1", "amount": 10})
    topics.change("d", {"id": "2", "amount": 2}, at(202, 1).text)
    marker(topics, HeartbeatMarker, 220, 90)
    flush(topics)
    merge(spark, settings, "before save")
    news = ops(events(settings))[3:]
    assert news == [("-U", "1", 1), ("+U", "1", 10), ("-U", "1", 10), ("+U", "1", 11), ("-D", "2", 2)], "all changes, once, in order"

    topics.row({"id": "2", "amount": 2}, at(150).text)  # late: the delete has a higher position
    topics.row({"id": "0", "amount": 5}, at(250).text)
    marker(topics, HeartbeatMarker, 300, 100)
    flush(topics)
    merge(spark, settings)
    assert amounts(settings) == {"0": 5, "1": 11}

    topics.row({"id": "1", "amount": 12}, at(350).text, 1)
    topics.row({"id": "4", "amount": 4}, at(350).text)
    marker(topics, CompleteMarker, 400, 350, request="again", first_bound=at(350), whole_table=True, rows=2)
    flush(topics)
    merge(spark, settings, "after commit")
    assert amounts(settings) == {"1": 12, "4": 4}, "the floor of a snapshot that is complete"
    assert progress(settings)["consistent_at"] == at(400).text
    whole = events(settings)
    merge_all(spark, settings)
    assert events(settings) == whole, "a run without news appends nothing"
    assert max(Counter(map(str, whole)).values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "cascades"), [(5, 0.1), (1, 0.0)])
def test_a_history_with_deaths_folds_to_the_rows_of_the_source(
    seed: int, cascades: float, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = changelog(merge_settings(max_batch_records=400))
    history = History(seed, replace(SHAPE, steps=120, merge="spark", cascades=cascades)).run()
    topics, dying = topics_of(settings, ORDERS), Dying(seed)
    for _ in Played(history, topics, seed).produce_pieces(most=130):
        merge_through_crashes(spark, settings, dying)
    merge_all(spark, settings)
    assert amounts(settings) == history.source
    assert dying.deaths > 0
    assert history.counts["sweeps of children"] > 0 or not cascades


@pytest.mark.parametrize("form", ["changelog-json", pytest.param("parquet", marks=pytest.mark.slow)])
def test_every_change_before_a_truncate_of_the_same_batch_is_appended_before_its_floor(
    form: str, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = changelog(merge_settings(), form)
    topics = topics_of(settings, ORDERS)
    marker(topics, FloorMarker, 50, reason="create")
    flush(topics)
    merge_all(spark, settings)
    rows = [{"id": "201", "amount": 1}, {"id": "201", "amount": 2}, {"id": "202", "amount": 3}, {"id": "203", "amount": 4}]
    topics.change("c", rows[0], at(100, 1).text)
    topics.change("u", rows[1], at(101, 1).text, before=rows[0])
    topics.change("d", rows[1], at(102, 1).text)
    topics.change("c", rows[2], at(103, 1).text, 1)
    marker(topics, FloorMarker, 200, reason="truncate")
    topics.change("c", rows[3], at(201, 1).text)
    marker(topics, FloorMarker, 300, reason="drop")
    flush(topics)
    merge_all(spark, settings)
    found = events(settings)
    assert [one["_tm_position"] for one in found] == sorted(one["_tm_position"] for one in found), "a floor is between the changes"
    assert ops(found) == [
        ("floor", None, None), ("+I", "201", 1), ("-U", "201", 1), ("+U", "201", 2), ("-D", "201", 2), ("+I", "202", 3),
        ("floor", None, None), ("+I", "203", 4), ("floor", None, None),
    ]  # fmt: skip
    assert amounts(settings) == {}


def of_folder(settings: Settings, name: str) -> Settings:
    """Return the settings with a changelog in a folder of this name."""
    return changelog(settings, path=f"{settings.sink.path}-{name}")


def appended(spark: SparkSession, settings: Settings, history: History, seed: int, most: int) -> Counter[tuple[str, str, Any]]:
    """Merge a history into a changelog in batches that end at random records; return its events."""
    topics = topics_of(settings, ORDERS)
    for _ in Played(history, topics, seed).produce_pieces(most):
        merge_all(spark, settings)
    assert amounts(settings) == history.source
    return Counter((one["_tm_op"], one["_tm_position"], one.get("id")) for one in events(settings))


@pytest.mark.parametrize(
    ("seed", "cascades"),
    [(3, 0.0), *(pytest.param(seed, seed % 2 / 10, marks=pytest.mark.slow) for seed in (11, 12, 13, 14, 15, 17, 18, 19))],
)
def test_the_events_of_a_history_are_the_same_wherever_its_batches_end(
    seed: int, cascades: float, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    shape = replace(SHAPE, steps=60, truncates=0.05, cascades=cascades, zombies=0.3)
    history = History(seed, shape).run()
    assert history.counts["truncates"] > 0
    whole = appended(spark, of_folder(merge_settings(), "whole"), history, 1, 10_000)
    assert whole.total() > len([one for part in history.changes for one in part])
    for bounds in (2, 3) if cascades else (2,):
        other = appended(spark, of_folder(merge_settings(), f"pieces-{bounds}"), history, bounds, 25)
        assert other == whole, f"bounds {bounds}: {other - whole} more, {whole - other} less"


def test_rows_that_start_and_stop_to_match_come_and_go(spark: SparkSession, merge_settings: SinkFactory) -> None:
    transform = TransformSettings(tables=r"shop\.orders", into="ods.many", select=("id", "amount", "100 / amount AS share"), where="amount > 5")
    settings = changelog(
        merge_settings(),
        routes=(RouteSettings(tables=r"s(.+)\.orders", into="ods.many"), RouteSettings(tables=r"s(.+)\.orders", into="ods.all")),
        transforms=(transform,),
    )
    topics = topics_of(settings, ORDERS)
    rows = [{"id": "a", "amount": amount} for amount in (1, 10, 20, 2, 3)]
    topics.change("c", rows[0], at(100, 1).text)
    for number in range(1, 5):
        topics.change("u", rows[number], at(100 + number, 1).text, before=rows[number - 1])
    topics.row({"id": "b", "amount": 1}, at(50).text)
    topics.change("d", {"id": "c", "amount": 1}, at(110, 1).text)
    flush(topics)
    merge_all(spark, settings)
    many = sorted(ops(events(settings, "ods.many")), key=lambda one: one[1])
    assert many == [("+I", "a", 10), ("-U", "a", 10), ("+U", "a", 20), ("-D", "a", 20), ("-D", "b", None)], (
        "a snapshot row that does not match retracts what a lost record may have left"
    )
    assert amounts(settings, "ods.many") == {}
    assert amounts(settings, "ods.all") == {"a": 3, "b": 1}


def test_a_change_on_which_an_expression_fails_is_quarantined_and_leaves_the_version_before(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = changelog(merge_settings(), transforms=(TransformSettings(tables=".*", select=("id", "amount", "100 / amount AS share")),))
    topics = topics_of(settings, ORDERS)
    one, none, two = ({"id": "a", "amount": amount} for amount in (1, 0, 2))
    topics.change("c", one, at(100, 1).text)
    topics.change("u", none, at(101, 1).text, before=one)
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"a": 1}
    assert ["DIVIDE_BY_ZERO" in reason for *_, reason in quarantined(settings)] == [True]
    topics.change("u", two, at(102, 1).text, before=none)
    flush(topics)
    merge_all(spark, settings)
    assert ops(events(settings)) == [("+I", "a", 1), ("+U", "a", 2)]


def test_shards_fold_by_their_source_and_a_truncate_takes_the_rows_of_one(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = changelog(merge_settings(), routes=(RouteSettings(tables=r"s\d\.orders", into="ods.orders"),))
    one, two = (topics_of(settings, replace(ORDERS, database=name)) for name in ("s1", "s2"))
    one.change("c", {"id": "a", "amount": 1}, at(200, 1).text)
    two.change("c", {"id": "a", "amount": 2}, at(100, 1).text)
    flush(one, two)
    merge_all(spark, settings)
    ends = two.change_offsets
    two.marker(FloorMarker(table="s2.orders", partitions=2, position=at(250), horizon=at(250), change_offsets=ends, reason="truncate"))
    two.change("c", {"id": "b", "amount": 3}, at(300, 1).text)
    flush(two)
    merge_all(spark, settings)
    found = folded(events(settings, "ods.orders"), ["id"])
    assert {key: row["amount"] for key, row in found.items()} == {
        (f"{settings.name}:s1.orders", "a"): 1, (f"{settings.name}:s2.orders", "b"): 3,
    }  # fmt: skip


def test_what_a_table_had_appended_when_it_was_set_aside_is_not_appended_again(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changelog(merge_settings())
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    flush(topics)
    layout = SinkLayout.of(settings.sink)
    faults = Faults()
    faults.fail_at("after commit", ValueError("a mistake of one table"))
    job = MergeJob(settings, spark=spark, sink=faulty(open_sink(settings, layout, checkpoint_of(layout)), faults))
    job.run(until_caught_up=True)
    assert job.set_aside == {"shop.orders": "a mistake of one table"}
    topics.change("u", {"id": "a", "amount": 2}, at(101, 1).text, before={"id": "a", "amount": 1})
    flush(topics)
    merge_all(spark, settings)
    assert ops(events(settings)) == [("+I", "a", 1), ("-U", "a", 1), ("+U", "a", 2)]
    assert Target("lake", "shop.orders").text
