"""Quarantined records: shown, merged again when they can be read, given up; whatever came of their rows meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkaio.schema_registry import HttpRegistry, RegisteredSchema
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import SinkError
from schemas.markers import CompleteMarker, HeartbeatMarker, Sweep
from schemas.settings import Settings
from spark_jobs.jobs.redrive import Redrive
from spark_jobs.merge.retried_table import Retried
from spark_jobs.sinks.delta import writes as merge
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    Crash,
    at,
    crash,
    flush,
    marker,
    merge_all,
    merge_with,
    progress,
    quarantined,
    rows,
    sole_writer,
    topics_of,
)
from tests.merge.topics import TableTopics
from tidemark.cli import main
from tidemark.commands.quarantine import as_text, listed, retried_text


class Forgetful:
    """A registry that does not know the schemas of some ids, until it has them."""

    def __init__(self, settings: Settings) -> None:
        self._real = HttpRegistry(settings.format.registry or "")
        self.hidden: set[int] = set()

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        return tuple(schema for schema in self._real.versions(subject) if schema.id not in self.hidden)


def table(name: str, *more: str) -> TableSchema:
    columns = [Column("id", ColumnType.BIGINT, nullable=False)]
    columns += [Column(item, ColumnType.INT, nullable=True) for item in ("v", *more)]
    return TableSchema("shop", name, tuple(columns), ("id",))


def retry(spark: SparkSession, settings: Settings, registry: Forgetful, *patterns: str) -> dict[str, Retried]:
    with sole_writer(spark, settings, wait_s=1):
        return {result.table: result for result in Redrive(settings, spark, registry).retry(patterns)}


def heartbeat(topics: TableTopics, position: int) -> None:
    """All that is in the topics now is applied: the horizon, and with it every tombstone, is past `position`."""
    common = {"table": topics.table.full_name, "partitions": 2, "change_offsets": topics.change_offsets}
    topics.marker(HeartbeatMarker(position=at(position), horizon=at(position), **common))  # type: ignore[arg-type]


def test_retried_records_are_merged_as_if_they_had_never_been_unreadable(
    spark: SparkSession,
    merge_settings: SinkFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = merge_settings()
    registry = Forgetful(settings)
    servers, url = settings.kafka.bootstrap_servers, settings.format.registry or ""
    one = TableTopics(servers, url, settings.name, table("one"))
    lost = TableTopics(servers, url, settings.name, table("lost"))
    for number in range(4):
        one.change("c", {"id": number, "v": number}, at(100 + number, 1).text)
    one.flush()
    merge_with(spark, settings, registry)

    # Written with a schema that the registry has lost: an update, a delete, creates, two of them deleted or
    # changed again later, in the known schema again, and a snapshot row whose row was deleted since.
    one.alter(table("one", "more"))
    unreadable = one.value_id
    registry.hidden = {unreadable}
    lost_rows = [("u", 0, 200), ("d", 1, 201), ("c", 10, 202), ("c", 11, 203), ("c", 12, 204)]
    for op, number, position in lost_rows:
        one.change(op, {"id": number, "v": 50 + number, "more": 7}, at(position, 1).text, number % 2)
    one.row({"id": 13, "v": 1, "more": 1}, at(205).text)
    one.row({"id": 14, "v": 14, "more": 1}, at(205).text)
    one.put(one.changes, 0, b"garbage", b"\x01garbage")
    one.alter(table("one"))
    one.change("d", {"id": 11, "v": 1}, at(300, 1).text, 1)
    one.change("u", {"id": 12, "v": 99}, at(301, 1).text)
    one.change("d", {"id": 13, "v": 1}, at(302, 1).text, 1)
    heartbeat(one, 400)
    lost.alter(table("lost", "more"))
    registry.hidden |= {item.id for item in registry.versions(f"{lost.changes}-value")}
    lost.change("c", {"id": 1, "v": 1, "more": 1}, at(200, 1).text)
    lost.flush()
    one.flush()
    merge_with(spark, settings, registry)
    assert [row["id"] for row in rows(settings, one.table)] == [0, 1, 2, 3, 12]
    assert (progress(settings, one.table)["quarantined"], progress(settings, one.table)["tombstones"]) == (8, 0)

    # While the job runs nothing is begun.
    with sole_writer(spark, settings), pytest.raises(SinkError, match="another merge job writes"):
        retry(spark, settings, registry)

    # The registry has the schema of one table again. A crash between the rows and their leaving quarantine harms nothing.
    registry.hidden.remove(unreadable)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaQuarantine, "remove", crash)
        with pytest.raises(Crash):
            retry(spark, settings, registry, r"shop\.one")
    assert progress(settings, one.table)["quarantined"] == 8
    result = retry(spark, settings, registry)
    assert (result["shop.one"].settled, result["shop.one"].left) == (7, 1)
    lost_result = result["shop.lost"]
    assert (lost_result.settled, lost_result.unreadable, lost_result.left) == (0, 1, 1), "nothing changes while it cannot be read"
    expected = {0: 50, 2: 2, 3: 3, 10: 60, 12: 99, 14: 14}
    assert {row["id"]: row["v"] for row in rows(settings, one.table)} == expected
    assert [[offset for _, _, offset, _ in quarantined(settings, topics)] for topics in (one, lost)] == [[7], [0]]
    assert [progress(settings, topics.table)["quarantined"] for topics in (one, lost)] == [1, 1]

    # The job continues with what was written between its batches: no key comes in twice.
    for number in (10, 11, 20):
        one.change("c", {"id": number, "v": number}, at(500 + number, 1).text, 1)
    one.flush()
    merge_with(spark, settings, registry)
    assert [row["id"] for row in rows(settings, one.table)] == [0, 2, 3, 10, 11, 12, 14, 20]

    # Shown, and given up.
    assert [item["table"] for item in listed(settings, [])] == ["shop.lost", "shop.one"]
    shown = listed(settings, [r"shop\.one"])
    assert [(item["table"], item["records"], item["first_offset"]) for item in shown] == [("shop.one", 1, 7)]
    assert shown[0]["first_ms"] is not None
    assert "is not in Confluent wire format" in as_text(shown)
    assert listed(settings, [r"shop\.two"]) == []
    config = tmp_path / "tidemark.yaml"
    document = {"name": settings.name, "source": {"tables": [".*"]}, "sinks": [{"path": settings.sink.path}]}
    config.write_text(json.dumps(document), "utf-8")
    assert main(["quarantine", "discard", "--config", str(config)]) == 1
    said = capsys.readouterr().out
    assert "Tables that may lack rows until they are read again: shop.lost, shop.one" in said
    assert "nothing was discarded; say --yes" in said
    assert listed(settings, [r"shop\.one"]) == shown
    # Killed between the records' leaving and what is remembered of it: the next call counts again.
    with monkeypatch.context() as patched:
        patched.setattr(Redrive, "_remember", crash)
        with sole_writer(spark, settings), pytest.raises(Crash):
            Redrive(settings, spark, registry).discard([r"shop\.one"])
    assert (listed(settings, [r"shop\.one"]), progress(settings, one.table)["quarantined"]) == ([], 1)
    with sole_writer(spark, settings):
        assert Redrive(settings, spark, registry).discard([r"shop\.one"]) == {}
    assert ([item["table"] for item in listed(settings, [])], progress(settings, one.table)["quarantined"]) == (["shop.lost"], 0)


def test_records_that_kafka_no_longer_has_stay_in_quarantine(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = merge_settings()
    registry = Forgetful(settings)
    topics = topics_of(settings, table("one"))
    registry.hidden = {topics.value_id}
    topics.change("c", {"id": 1, "v": 1}, at(100, 1).text)
    topics.change("c", {"id": 2, "v": 2}, at(101, 1).text)
    topics.row({"id": 3, "v": 3}, at(90).text)
    topics.row({"id": 4, "v": 4}, at(150).text)
    topics.change("c", {"id": 5, "v": 5}, at(200, 1).text, 1)
    topics.flush()
    merge_with(spark, settings, registry)
    topics.trim(topics.changes, 0, 1)  # what is published from 101 on: the row of 150 can be judged, that of 90 cannot

    registry.hidden = set()
    result = retry(spark, settings, registry)["shop.one"]
    assert (result.settled, result.gone, result.unproven, result.unreadable) == (3, 1, 1, 0)
    assert [row["id"] for row in rows(settings, topics.table)] == [2, 4, 5]
    said = retried_text(result)
    assert "1 are no longer in Kafka: have the table read again" in said
    assert r"tidemark signal execute-snapshot 'shop\.one'" in said
    assert "1 may have been changed later" in said


def test_a_row_among_the_changes_does_not_say_where_they_begin(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """What the producer merged has the version of its window, which is older than the changes before it."""
    settings = merge_settings()
    registry = Forgetful(settings)
    topics = topics_of(settings, table("one"))
    registry.hidden = {topics.value_id}
    topics.row({"id": 3, "v": 3}, at(90).text)
    topics.change("d", {"id": 3, "v": 3}, at(110, 1).text)
    nine = {"id": 9, "v": 9}
    topics.put(topics.changes, 0, topics.key(nine), topics.value("r", None, nine, at(50).text))
    topics.change("c", {"id": 1, "v": 1}, at(200, 1).text)
    topics.flush()
    merge_with(spark, settings, registry)
    topics.trim(topics.changes, 0, 2)

    registry.hidden = set()
    result = retry(spark, settings, registry)["shop.one"]
    assert (result.settled, result.gone, result.unproven) == (2, 1, 1)
    assert [row["id"] for row in rows(settings, topics.table)] == [1, 9]


def test_a_row_that_a_parent_may_have_taken_with_it_stays_in_quarantine(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """No delete of it is in any topic: the sweep that took it found nothing, for the row could not be read.

    A sweep whose own rows may be among the unreadable ones waits for them, and is carried out when they are merged.
    """
    settings = merge_settings()
    registry = Forgetful(settings)
    early, late = topics_of(settings, table("early")), topics_of(settings, table("late"))
    for topics in (early, late):
        topics.change("c", {"id": 1, "v": 7}, at(100, 1).text)
        topics.change("c", {"id": 2, "v": 8}, at(101, 1).text)
    flush(early, late)
    merge_with(spark, settings, registry)
    for topics in (early, late):
        topics.alter(table(topics.table.name, "more"))
        registry.hidden.add(topics.value_id)
        topics.change("c", {"id": 3, "v": 7, "more": 0}, at(200, 1).text)
    flush(early, late)
    merge_with(spark, settings, registry)
    marker(early, HeartbeatMarker, 250)  # the sweep begins behind what could not be read
    flush(early)
    merge_with(spark, settings, registry)
    children = {"request": "children", "first_bound": at(300), "whole_table": False, "rows": 0}
    for topics in (early, late):
        marker(topics, CompleteMarker, 400, sweep=Sweep(("v",), frozenset({("7",)})), **children)
    late.change("c", {"id": 4, "v": 8, "more": 0}, at(350, 1).text)
    flush(early, late)
    merge_with(spark, settings, registry)
    assert [[row["id"] for row in rows(settings, one.table)] for one in (early, late)] == [[2], [1, 2]]
    early.change("c", {"id": 4, "v": 8, "more": 0}, at(450, 1).text)  # behind the sweep: no parent took it
    flush(early)
    merge_with(spark, settings, registry)
    assert [progress(settings, one.table)["quarantined"] for one in (early, late)] == [2, 2]

    registry.hidden = set()
    results = retry(spark, settings, registry)
    found = [(result.settled, result.unproven, result.left) for result in (results["shop.early"], results["shop.late"])]
    assert found == [(1, 1, 1), (2, 0, 0)]
    assert [[row["id"] for row in rows(settings, one.table)] for one in (early, late)] == [[2, 4], [2, 4]]
    assert "1 may have been changed later" in retried_text(results["shop.early"])


def test_what_somebody_else_changes_meanwhile_is_retried_again(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's commit to the table, then one to the quarantine, both found when ours is made."""
    settings = merge_settings()
    registry = Forgetful(settings)
    topics = topics_of(settings, table("one"))
    registry.hidden = {topics.value_id}
    topics.change("c", {"id": 1, "v": 7}, at(100, 1).text)
    topics.flush()
    merge_with(spark, settings, registry)
    assert progress(settings, topics.table)["quarantined"] == 1
    registry.hidden = set()
    conflict = PySparkException("[DELTA_CONCURRENT_APPEND] files were added by a concurrent update")
    spoiled = {"append": conflict, "remove": conflict}

    def spoil(module: Any, name: str) -> None:
        real = getattr(module, name)

        def spoilt(*arguments: Any) -> Any:
            error = spoiled.pop(name, None)
            if error is not None:
                raise error
            return real(*arguments)

        monkeypatch.setattr(module, name, spoilt)

    spoil(merge, "append")
    spoil(DeltaQuarantine, "remove")
    result = retry(spark, settings, registry)["shop.one"]
    assert not spoiled, "nothing came in between"
    assert (result.settled, result.left) == (1, 0)
    assert [(row["id"], row["v"]) for row in rows(settings, topics.table)] == [(1, 7)]
    assert progress(settings, topics.table)["quarantined"] == 0


def test_an_unfinished_batch_is_finished_before_anything_is_retried(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = merge_settings()
    topics = topics_of(settings, table("one"))
    topics.change("c", {"id": 1, "v": 1}, at(100, 1).text)
    topics.put(topics.changes, 0, b"k", b"v")
    topics.flush()

    def crash_at_last(step: str, _: int) -> None:
        if step == "published":
            raise Crash

    with pytest.raises(Crash):
        merge_all(spark, settings, crash_at_last)
    with pytest.raises(SinkError, match="batch 0 of the merge job was cut off"):
        retry(spark, settings, Forgetful(settings))
