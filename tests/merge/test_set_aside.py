"""One table that cannot be merged: it is set aside with its reason, the others continue, and nothing of it is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.columns import ColumnType
from schemas.errors import SchemaMismatchError, SinkError
from schemas.markers import MARKER_KEY, CompleteMarker, HeartbeatMarker
from schemas.settings import Settings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.merge import table_set_aside
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
    quarantined,
    rows,
    table,
    topics_of,
    wait_for,
)
from tests.merge.shared_job import DIED, MERGED, Outcomes, Runs, SharedJob, Tables
from tests.merge.topics import TableTopics

OTHER = replace(ORDERS, name="other")
JOB = SharedJob()


def complete(topics: TableTopics, low: int, *ids: str) -> None:
    """A snapshot of a whole ORDERS-like table, whose amounts are its low watermark."""
    for key in ids:
        topics.row({"id": key, "amount": low}, at(low).text)
    more = {"request": str(low), "first_bound": at(low), "whole_table": True, "rows": len(ids)}
    marker(topics, CompleteMarker, low + 50, **more)


def with_another(tables: Tables, name: str) -> tuple[TableTopics, TableTopics]:
    """The topics of a table like ORDERS, and of one beside it that nothing happens to."""
    one, other = (tables.topics_of(replace(ORDERS, name=f"{name}{more}")) for more in ("", "beside"))
    return one, other


def aside(settings: Settings, schema: Any = ORDERS) -> dict[str, Any]:
    """What progress.json says of a table that is set aside."""
    found: dict[str, Any] = progress(settings, schema)["set_aside"]
    return found


def test_a_column_with_the_sinks_own_name_sets_its_table_aside_until_it_is_renamed(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """In any case of letters, from the first record on or by an ALTER; other names of ours are just names."""
    settings = merge_settings()
    names = ("_tm_reason", "_tm_deleted", "_TM_Topic", "_tm_partition", "_tm_offset", "_tm_snapshot", "_tm_number", "_tm_frame")
    ours = table("ours", *(column(name) for name in (*names, "t", "s", "_tm_value_0", "_tm_unproven")))
    first, altered = table("first", column("_TM_Position", ColumnType.VARCHAR)), table("altered", column("a"))
    reserved, new, old = (topics_of(settings, one) for one in (ours, first, altered))
    for number in (1, 2):
        reserved.change("c", {one.name: number for one in ours.columns}, at(100 + number, 1).text)
        new.change("c", {"id": number, "_TM_Position": "x"}, at(100 + number, 1).text, number % 2)
        old.change("c", {"id": number, "a": number}, at(100 + number, 1).text)
    marker(new, HeartbeatMarker, 110)
    flush(reserved, new, old)
    merge_all(spark, settings)
    old.alter(table("altered", column("a"), column("_tm_position")))
    old.change("c", {"id": 3, "a": 3, "_tm_position": 3}, at(203, 1).text)
    old.change("d", {"id": 1, "a": 1, "_tm_position": None}, at(204, 1).text)
    marker(old, HeartbeatMarker, 210)
    reserved.change("u", {one.name: 1 if one.name == "id" else 7 for one in ours.columns}, at(203, 1).text)
    reserved.change("d", {one.name: 2 for one in ours.columns}, at(204, 1).text)
    flush(reserved, old)
    merge_all(spark, settings)

    assert rows(settings, ours) == [{one.name: 1 if one.name == "id" else 7 for one in ours.columns}]
    assert progress(settings, ours)["set_aside"] is None
    assert aside(settings, first)["reason"].startswith("its column _TM_Position has the name of the one column that the sink adds")
    assert not Path(settings.sink.table_path("shop", "first")).exists()
    assert (progress(settings, first)["change_offsets"], progress(settings, first)["applied_position"]) == ({}, None)
    assert aside(settings, altered)["attempts"] == 1
    assert progress(settings, altered)["change_offsets"] == {"0": 2, "1": 0}
    assert [row["id"] for row in rows(settings, altered)] == [1, 2]

    new.alter(table("first", column("b", ColumnType.VARCHAR)))
    new.change("u", {"id": 1, "b": "y"}, at(301, 1).text, 1)
    old.alter(table("altered", column("a"), column("b")))
    old.change("c", {"id": 4, "a": 4, "b": 4}, at(301, 1).text)
    flush(new, old)
    merge_all(spark, settings)
    assert rows(settings, first) == [{"id": 1, "b": "y"}, {"id": 2, "b": None}]
    assert [(row["id"], row["a"], row["b"]) for row in rows(settings, altered)] == [(2, 2, None), (3, 3, None), (4, 4, 4)]
    assert aside(settings, first) is aside(settings, altered) is None
    assert progress(settings, altered)["applied_position"] == at(210).text

    new.alter(table("first", column("b", ColumnType.VARCHAR), column("_Tm_position")))
    new.change("u", {"id": 1, "b": "z", "_Tm_position": 1}, at(401, 1).text, 1)
    flush(new)
    with pytest.raises(SchemaMismatchError, match="_Tm_position"):
        merge_all(spark, replace(settings, on_table_error="stop"))


def test_a_table_that_failed_half_way_is_merged_once_it_can_be(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """Its rows were written, its tombstones could not be: what was appended must not be appended again."""
    settings = merge_settings()
    numbered = table("numbered", column("a"))
    topics, other = topics_of(settings, numbered), topics_of(settings, OTHER)
    topics.change("c", {"id": 1, "a": 1}, at(101, 1).text)
    flush(topics)
    merge_all(spark, settings)
    blocked = Path(settings.sink.service_path) / "tombstones" / "shop" / "numbered"
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file where a folder belongs")
    for number in (2, 3):
        topics.change("c", {"id": number, "a": number}, at(200 + number, 1).text)
    topics.change("d", {"id": 3, "a": 3}, at(210, 1).text)
    topics.put(topics.changes, 1, b"none of ours", b"none of ours")
    topics.put(topics.snapshots, 1, MARKER_KEY, b"{")
    other.change("c", {"id": "one", "amount": 1}, at(200, 1).text)
    flush(topics, other)
    for attempt in (1, 2):
        merge_all(spark, settings)
        other.change("c", {"id": "two", "amount": 2}, at(300 + attempt, 1).text)
        flush(other)
        assert aside(settings, numbered)["attempts"] == attempt
    assert [row["id"] for row in rows(settings, numbered)] == [1, 2], "appended, its deletes not remembered"
    blocked.unlink()
    topics.row({"id": 3, "a": 3}, at(205).text)  # read before the delete
    flush(topics)
    merge_all(spark, settings)
    assert [row["id"] for row in rows(settings, numbered)] == [1, 2]
    assert (aside(settings, numbered), progress(settings, numbered)["tombstones"]) == (None, 1)
    assert [record[:3] for record in quarantined(settings)] == [(topics.snapshots, 1, 0), (topics.changes, 1, 0)]
    assert progress(settings, numbered)["quarantined"] == 2
    assert set(rows(settings, OTHER)[0].values()) == {"one", 1}


def test_a_table_that_vanished_is_set_aside_until_it_is_put_back(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = merge_settings()
    topics, other = topics_of(settings, ORDERS), topics_of(settings, OTHER)
    for one in (topics, other):
        one.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics, other)
    merge_all(spark, settings)
    path = Path(settings.sink.table_path("shop", "orders"))
    gone = path.rename(path.with_name("gone"))
    for one in (topics, other):
        one.change("c", {"id": "two", "amount": 2}, at(200, 1).text)
    flush(topics, other)
    merge_all(spark, settings)
    assert "is gone" in aside(settings)["reason"]
    assert len(rows(settings, OTHER)) == 2
    gone.rename(path)
    merge_all(spark, settings)  # without a new record
    assert (amounts(settings), aside(settings)) == ({"one": 1, "two": 2}, None)


def test_a_table_is_retried_by_a_job_that_gets_no_records(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_set_aside, "FIRST_PAUSE_MS", 1_000)
    settings = merge_settings(trigger_s=1)
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    path = Path(settings.sink.table_path("shop", "orders"))
    gone = path.rename(path.with_name("gone"))
    topics.change("c", {"id": "two", "amount": 2}, at(200, 1).text)
    flush(topics)
    job = MergeJob(settings, spark=spark)
    running = Thread(target=lambda: job.run(until_caught_up=False))
    running.start()
    try:
        wait_for(lambda: progress(settings)["set_aside"] is not None and aside(settings)["attempts"] > 1)
        gone.rename(path)
        wait_for(lambda: progress(settings)["set_aside"] is None)
    finally:
        job.stop()
        running.join(60)
    assert not running.is_alive()
    assert amounts(settings) == {"one": 1, "two": 2}


@JOB.case_of("topic", "changes", "snapshots")
def test_records_that_kafka_dropped_unread_leave_one_table_incomplete_until_it_is_read_again(tables: Tables, topic: str) -> Runs:
    settings = tables.settings
    topics, other = with_another(tables, f"dropped{topic}")
    topics.change("c", {"id": "one", "amount": 1}, at(50, 1).text)
    topics.change("c", {"id": "two", "amount": 2}, at(51, 1).text, 1)
    complete(topics, 100, "one", "two")
    yield MERGED
    assert progress(settings, topics.table)["consistent_at"] == at(150).text
    topics.change("d", {"id": "one", "amount": 1}, at(160, 1).text)
    complete(topics, 170, "two")
    topics.change("c", {"id": "three", "amount": 3}, at(230, 1).text)
    other.change("c", {"id": "one", "amount": 1}, at(231, 1).text)
    flush(topics, other)
    name = getattr(topics, topic)
    topics.trim(name, 0, topics.ends[name][0] - 1)
    yield MERGED
    found = progress(settings, topics.table)
    assert f"records of topic {name} that were not merged yet are no longer in Kafka" in found["incomplete"]
    assert (found["consistent_at"], found["set_aside"]) == (None, None)
    assert amounts(settings, topics.table).keys() >= {"two", "three"}
    assert len(rows(settings, other.table)) == 1
    complete(topics, 300, "two", "three")
    yield MERGED
    assert amounts(settings, topics.table) == {"two": 300, "three": 300}
    found = progress(settings, topics.table)
    assert (found["incomplete"], found["consistent_at"]) == (None, at(350).text)


def test_topics_that_were_created_again_are_a_matter_of_their_table(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """The producer's state topic is the one it was: as after a broker that lost the creation of a topic."""
    settings = merge_settings()
    topics, other = topics_of(settings, ORDERS), topics_of(settings, OTHER)
    other.register()
    for one in (topics, other):
        one.change("c", {"id": "one", "amount": 1}, at(50, 1).text)
        complete(one, 100, "one", "two")
    for _ in range(20):  # left out at offsets that the new topic does not reach
        topics.put(topics.changes, 0, b"none of ours", b"none of ours")
    flush(topics, other)
    merge_all(spark, settings)
    topics.create_again()
    topics.put(topics.changes, 0, b"another one", b"another one")
    topics.put(topics.changes, 0, b"another one", b"another one")
    for key in ("two", "three", "four"):
        topics.change("u", {"id": key, "amount": 2}, at(300, 1).text)
    complete(topics, 250)
    for one in (topics, other):
        one.change("c", {"id": "five", "amount": 5}, at(310, 1).text)
    flush(topics, other)
    merge_all(spark, settings)
    assert "was deleted and created again" in aside(settings)["reason"]
    assert progress(settings)["incomplete"].endswith("snapshot this table when this reason asks for it"), "one in this batch does not count"
    assert amounts(settings) == {"one": 100, "two": 100}
    assert len(rows(settings, OTHER)) == 3
    other.change("c", {"id": "six", "amount": 6}, at(320, 1).text)
    flush(other)
    merge_all(spark, settings)
    found = progress(settings)
    assert (found["set_aside"], found["consistent_at"]) == (None, None)
    assert found["incomplete"].endswith("may be lost: snapshot this table again")
    assert [record[2] for record in quarantined(settings)] == [0, 1, 1, *range(2, 21)], "two have one place"
    assert amounts(settings) == {"one": 100, "two": 2, "three": 2, "four": 2, "five": 5}
    marker(topics, HeartbeatMarker, 330)
    complete(topics, 400, "two", "three")
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"two": 400, "three": 400}
    assert (progress(settings)["incomplete"], progress(settings)["consistent_at"]) == (None, at(450).text)

    topics.delete()
    other.change("c", {"id": "seven", "amount": 7}, at(500, 1).text)
    flush(other)
    merge_all(spark, settings)
    assert "ends before that: it was deleted, or this Kafka user" in aside(settings)["reason"]
    assert len(rows(settings, OTHER)) == 5


def test_a_table_whose_new_topics_are_empty_asks_for_a_snapshot(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = merge_settings()
    topics, other = topics_of(settings, ORDERS), topics_of(settings, OTHER)
    other.register()
    for one in (topics, other):
        one.change("c", {"id": "one", "amount": 1}, at(50, 1).text)
        complete(one, 100, "one")
    flush(topics, other)
    merge_all(spark, settings)
    topics.create_again()
    for number, expected in enumerate(("when this reason asks for it", "may be lost: snapshot this table again")):
        other.change("c", {"id": f"more {number}", "amount": 1}, at(310 + number, 1).text)
        flush(other)
        merge_all(spark, settings)
        assert progress(settings)["incomplete"].endswith(expected)
    assert progress(settings)["set_aside"] is None
    marker(topics, HeartbeatMarker, 330)
    complete(topics, 400, "one")
    flush(topics)
    merge_all(spark, settings)
    assert (progress(settings)["incomplete"], progress(settings)["consistent_at"]) == (None, at(450).text)


def crash_once_merged(step: str, _batch_id: int) -> None:
    if step == "merged":
        raise Crash


@JOB.case
def test_topics_created_again_between_two_attempts_at_a_batch_are_read(tables: Tables) -> Runs:
    """The first attempt has written to the table: that commit is ours, whatever the second one reads."""
    settings = tables.settings
    topics, other = with_another(tables, "attempted")
    other.register()
    for number, (key, runs) in enumerate((("one", MERGED), ("two", DIED))):
        for one in (topics, other):
            one.change("c", {"id": key, "amount": 1}, at(50 + number, 1).text)
        yield runs
    assert len(amounts(settings, topics.table)) == 2, "the first attempt has written"
    topics.create_again()
    topics.change("u", {"id": "two", "amount": 2}, at(300, 1).text)
    for key in ("three", "four"):
        other.change("c", {"id": key, "amount": 1}, at(310, 1).text)
        yield MERGED
    assert progress(settings, topics.table)["set_aside"] is None
    assert amounts(settings, topics.table) == {"one": 1, "two": 2}
    assert len(rows(settings, other.table)) == 4


def test_a_batch_that_has_written_keeps_its_offsets(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """Where it finds a topic missing, it is not to look for other records under the same number: Delta would skip them."""
    settings = merge_settings()
    topics, other = topics_of(settings, ORDERS), topics_of(settings, OTHER)
    other.register()
    for one in (topics, other):
        one.change("c", {"id": "one", "amount": 1}, at(50, 1).text)
    flush(topics, other)
    merge_all(spark, settings)
    other.change("c", {"id": "two", "amount": 2}, at(60, 1).text)
    flush(other)
    with pytest.raises(Crash):
        merge_all(spark, settings, crash_once_merged)
    offsets = Path(settings.sink.service_path) / "checkpoint" / "offsets"
    batch = max(offsets.glob("[0-9]*"), key=lambda file: int(file.name))
    *head, ends = batch.read_text(encoding="utf-8").splitlines()
    seen = {name: found for name, found in json.loads(ends).items() if name not in (topics.changes, topics.snapshots)}
    batch.write_text("\n".join((*head, json.dumps(seen))), encoding="utf-8")  # as from a broker that was behind
    batch.with_name(f".{batch.name}.crc").unlink()
    with pytest.raises(SinkError, match="ends before that"):
        merge_all(spark, replace(settings, on_table_error="stop"))
    other.change("c", {"id": "three", "amount": 3}, at(70, 1).text)
    flush(other)
    merge_all(spark, settings)
    assert {row["id"] for row in rows(settings, OTHER)} == {"one", "two", "three"}
    assert aside(settings) is None


@pytest.fixture(scope="module")
def one_job(request: pytest.FixtureRequest, spark: SparkSession, shared_settings: Settings) -> Outcomes:
    return JOB.play_tables(request, spark, shared_settings)
