"""The merge job on a real broker, registry and Delta: what it does besides merging, and what it refuses.

Each test runs several tables through one query: a run costs seconds, a table little.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from schemas.errors import ConfigError, SinkError
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, Sweep
from schemas.settings import from_mapping
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.merge.layout_plan import NO_KEY
from spark_jobs.merge.old_file_turns import TURNS
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    ORDERS,
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
from tests.merge.shared_job import DIED, MERGED, PLAIN, Runs, Tables


@PLAIN.case
def test_bad_records_go_to_quarantine_and_the_rest_is_merged(tables: Tables) -> Runs:
    settings = tables.settings
    topics, lost = tables.topics_of(ORDERS), tables.topics_of(replace(ORDERS, name="lost"))
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    topics.put(topics.changes, 0, b"garbage", b"\x01garbage")
    topics.put(topics.changes, 1, topics.key({"id": "two"}), b"\0\0\0\xff\xff..........")
    topics.put(
        topics.snapshots, 1, topics.key({"id": "three"}), topics.value("r", None, None, at(1).text)[:20]
    )
    topics.put(topics.snapshots, 0, b"tidemark:marker", b"{not a marker")
    topics.change("c", {"id": "four", "amount": 4}, at(101, 1).text, 1)
    lost.put(lost.changes, 0, b"k", b"v")
    yield DIED
    yield MERGED
    assert amounts(settings) == {"one": 1, "four": 4}
    found = quarantined(settings, topics, lost)
    assert [(topic, partition, offset) for topic, partition, offset, _ in found] == [
        (topics.snapshots, 0, 0),
        (topics.snapshots, 1, 0),
        (lost.changes, 0, 0),
        (topics.changes, 0, 1),
        (topics.changes, 1, 0),
    ]
    assert [reason.split(":")[0] for *_, reason in found] == [
        "not a marker",
        "value does not fit its schema",
        "value is not in Confluent wire format",
        "value is not in Confluent wire format",
        "value has a schema id unknown to its subject",
    ]
    assert (progress(settings)["quarantined"], progress(settings)["rows"]) == (4, 2)


@PLAIN.case
def test_a_table_without_a_key_is_passed_over_and_no_snapshot_of_then_makes_it_consistent_when_it_has_one(tables: Tables) -> Runs:
    settings = tables.settings
    keyed = table("keyless", column("n"))
    topics = tables.topics_of(replace(keyed, primary_key=()))
    topics.change("c", {"id": 1, "n": 1}, at(100, 1).text)
    topics.change("r", {"id": 2, "n": 2}, at(90).text)  # with snapshot.merge: producer it is read, too
    marker(topics, CompleteMarker, 150, 90, request="first", first_bound=at(90), whole_table=True, rows=1)
    yield MERGED
    assert progress(settings, keyed)["skipped"] == NO_KEY
    assert progress(settings, keyed)["consistent_at"] is None
    topics.alter(keyed)
    topics.change("c", {"id": 3, "n": 3}, at(200, 1).text)
    yield MERGED
    assert progress(settings, keyed)["skipped"] is None
    assert progress(settings, keyed)["consistent_at"] is None
    assert rows(settings, keyed) == [{"id": 3, "n": 3}]


@PLAIN.case
def test_floors_and_sweeps_delete_once_and_for_all(tables: Tables) -> Runs:
    settings = tables.settings
    truncated, swept, empty = (
        table("truncated", column("a")),
        table("swept", column("a")),
        table("empty", column("a")),
    )
    one, two, three = (tables.topics_of(schema) for schema in (truncated, swept, empty))
    for topics in (one, two):
        topics.change("c", {"id": 1, "a": 1}, at(100, 1).text)
        topics.change("c", {"id": 2, "a": 2}, at(150, 1).text, 1)
    yield MERGED

    marker(one, FloorMarker, 200, reason="truncate")
    one.change("c", {"id": 3, "a": 3}, at(300, 1).text)
    two.row({"id": 2, "a": 2}, at(250).text)
    marker(two, CompleteMarker, 400, 250, request="again", first_bound=at(250), whole_table=True, rows=1)
    marker(three, CompleteMarker, 400, request="first", first_bound=at(250), whole_table=True, rows=0)
    yield MERGED
    assert rows(settings, truncated) == [{"id": 3, "a": 3}]
    assert rows(settings, swept) == [{"id": 2, "a": 2}]
    assert rows(settings, empty) == [], "an empty table is a table"
    assert progress(settings, swept)["consistent_at"] == at(400).text

    # Rows and changes from below the floor return in neither way, in this batch or a later one.
    for topics in (one, two):
        topics.row({"id": 1, "a": 1}, at(120).text)
        topics.change("u", {"id": 1, "a": 9}, at(160, 1).text, 1)
    yield MERGED
    assert rows(settings, truncated) == [{"id": 3, "a": 3}]
    assert rows(settings, swept) == [{"id": 2, "a": 2}]


@PLAIN.case
def test_a_batch_that_found_nothing_to_write_is_no_write_that_is_missed_later(tables: Tables) -> Runs:
    """Delta makes no commit where a floor deletes no row; a batch that is run again finds its new columns there."""
    settings, schema = tables.settings, table("above", column("a"))
    topics, other = tables.topics_of(schema), tables.topics_of(table("altered", column("a")))
    for one in (topics, other):
        one.change("c", {"id": 1, "a": 1}, at(100, 1).text)
    yield MERGED

    marker(topics, CompleteMarker, 400, 90, request="first", first_bound=at(90), whole_table=True, rows=1)
    other.alter(table("altered", column("a"), column("five", default="5")))
    marker(other, HeartbeatMarker, 400)
    yield DIED
    yield MERGED
    assert rows(settings, other.table) == [{"id": 1, "a": 1, "five": 5}]

    topics.change("c", {"id": 2, "a": 2}, at(500, 1).text)
    other.change("c", {"id": 2, "a": 2, "five": 6}, at(500, 1).text)
    yield MERGED
    assert [row["id"] for row in rows(settings, schema)] == [1, 2]
    assert [row["five"] for row in rows(settings, other.table)] == [5, 6]


@PLAIN.case
def test_rows_are_appended_once_when_the_job_dies_after_it(tables: Tables) -> Runs:
    """New keys above all others are appended without a MERGE: only the commit's own memory stops a second time."""
    settings, schema = tables.settings, table("appended", column("a"))
    topics = tables.topics_of(schema)
    for start in (0, 10):
        for number in range(start, start + 10):
            topics.change("c", {"id": number, "a": number}, at(100 + number, 1).text, number % 2)
        yield DIED
        yield MERGED
    assert [row["id"] for row in rows(settings, schema)] == list(range(20))
    log = Path(settings.sink.table_path("shop", "appended")) / "_delta_log"
    lines = [
        json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()
    ]
    made, *infos = [action["commitInfo"] for action in lines if "commitInfo" in action]
    assert made["operation"] == "CREATE TABLE"
    assert [info["operation"] for info in infos] == ["WRITE", "WRITE"]
    stamps = [json.loads(info["userMetadata"]) for info in infos]
    assert {stamp["table"] for stamp in stamps} == {"shop.appended"}
    first, second = (stamp["batch_id"] for stamp in stamps)
    assert first < second
    assert all(stamp["change_offsets"] for stamp in stamps)


@PLAIN.case
def test_children_that_left_stay_away_when_the_job_dies_after_the_batch_that_made_the_table(tables: Tables) -> Runs:
    """The batch appends the first time, for there is no table; the second time it would merge what a sweep has taken."""
    settings, schema = tables.settings, table("log", column("a"))
    topics = tables.topics_of(schema)
    for number in range(4):
        topics.change("c", {"id": number, "a": number % 2}, at(100, number + 1).text)
    gone = Sweep(("a",), frozenset({("1",)}))
    marker(topics, CompleteMarker, 400, request="children", first_bound=at(300), whole_table=False, rows=0, sweep=gone)
    yield DIED
    assert [row["id"] for row in rows(settings, schema)] == [0, 2]
    yield MERGED
    assert [row["id"] for row in rows(settings, schema)] == [0, 2]


def test_a_clock_that_is_set_back_does_not_end_catching_up_too_early(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.jobs.merge_job.WallClock.was_set_back", lambda _clock: True)
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert amounts(settings) == {"1": 1}


def test_small_files_become_large_ones_and_the_rows_stay(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.merge.target_batch.COMPACT_AFTER", 2)
    monkeypatch.setattr("spark_jobs.merge.target_batch.COMPACT_SPREAD", 1)
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    path = settings.sink.table_path("shop", "orders")
    for number, compactions in ((1, 0), (2, 1), (3, 1)):
        topics.change("c", {"id": str(number), "amount": number}, at(100 * number, 1).text)
        flush(topics)
        merge_all(spark, settings)
        history = DeltaTable(path).history()
        assert [one["operation"] for one in history].count("OPTIMIZE") == compactions
    assert amounts(settings) == {"1": 1, "2": 2, "3": 3}
    assert len(DeltaTable(path).file_uris()) == 2  # one compacted, one newer


def test_a_job_removes_old_files_of_a_table_beside_its_batches_and_before_it_ends(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = merge_settings()
    topics, path = topics_of(settings, ORDERS), Path(settings.sink.table_path("shop", "orders"))
    turns = SinkLayout.of(settings.sink).files
    for number, hours, stays in ((1, 24, True), (2, 0, True), (3, 24, False)):
        topics.change("c", {"id": str(number), "amount": number}, at(100 * number, 1).text)
        flush(topics)
        merge_all(spark, replace(settings, sinks=(replace(settings.sink, vacuum_hours=hours),)))
        left = path / "of_a_lost_batch.parquet"
        assert left.exists() == (stays and number > 1)
        left.write_bytes(b"")
        os.utime(left, (0, 0))
        turns.write(TURNS, json.dumps(dict.fromkeys(json.loads(turns.read(TURNS)), 0.0)))  # each had its turn in 1970
    assert amounts(settings) == {"1": 1, "2": 2, "3": 3}


@PLAIN.case
def test_rows_keep_their_order_when_the_key_becomes_another(tables: Tables) -> Runs:
    """The new key's values lie above all that the old key had: none of them is new."""
    settings = tables.settings
    by_id = table("moved", column("code", nullable=False), column("n"))
    topics = tables.topics_of(by_id)
    for number in (1, 2, 3):
        topics.change("c", {"id": number, "code": 100 + number, "n": 0}, at(100 + number, 1).text)
    yield MERGED

    topics.alter(replace(by_id, primary_key=("code",)))
    for number in (1, 2):
        topics.change("u", {"id": number, "code": 100 + number, "n": 5}, at(200 + number, 1).text)
        yield MERGED
    found = [(row["code"], row["n"]) for row in rows(settings, topics.table)]
    assert found == [(101, 5), (102, 5), (103, 0)]


@PLAIN.case
def test_a_key_that_comes_back_is_the_key_again(tables: Tables) -> Runs:
    """The registry gives an old schema its old place: its order of versions does not say today's key."""
    settings = tables.settings
    by_id = table("back", column("code", nullable=False), column("n"))
    topics = tables.topics_of(by_id)
    by_code = replace(by_id, primary_key=("code",))
    for phase, schema in ((100, by_id), (200, by_code), (300, by_id)):
        topics.alter(schema)
        for number in (1, 2):
            row = {"id": number, "code": 7 if phase == 300 else number, "n": phase}
            topics.change("u", row, at(phase, number).text)
        yield MERGED
    topics.change("d", {"id": 1, "code": 7, "n": 300}, at(400, 1).text)
    yield MERGED
    found = [(row["id"], row["code"], row["n"]) for row in rows(settings, topics.table)]
    assert found == [(2, 7, 300)]


@PLAIN.case
def test_a_first_write_that_was_cut_off_is_made_again(tables: Tables) -> Runs:
    settings = tables.settings
    topics = tables.topics_of(replace(ORDERS, name="halved"))
    path = Path(settings.sink.table_path("shop", "halved"))
    (path / "_delta_log").mkdir(parents=True)  # Delta makes it before the first file
    (path / "part-00000-of-nobody.snappy.parquet").write_bytes(b"half")
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    yield MERGED
    assert amounts(settings, topics.table) == {"one": 1}


@PLAIN.case
def test_spellings_of_one_key_are_keys_of_their_own(tables: Tables) -> Runs:
    settings = tables.settings
    topics = tables.topics_of(replace(ORDERS, name="spellings"))
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    yield MERGED
    topics.change("d", {"id": "a", "amount": 1}, at(200, 1).text)
    topics.change("c", {"id": "A", "amount": 2}, at(200, 1).text, 1)
    yield MERGED
    assert amounts(settings, topics.table) == {"A": 2}
    topics.row({"id": "A", "amount": 2}, at(150).text)
    topics.row({"id": "a", "amount": 1}, at(150).text)
    yield MERGED
    assert amounts(settings, topics.table) == {"A": 2}


def test_a_second_job_on_the_same_sink_is_refused(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = merge_settings(trigger_s=1)
    topics = topics_of(settings, ORDERS)
    published = threading.Event()
    job = MergeJob(settings, spark=spark, on_step=lambda step, _: published.set() if step == "published" else None)
    running = threading.Thread(target=job.run, kwargs={"until_caught_up": False})
    running.start()
    try:
        topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
        flush(topics)
        assert published.wait(120)
        with pytest.raises(SinkError, match="another merge job writes"):
            merge_all(spark, settings)
        # A table whose topics appear while the query runs is merged as well.
        other = topics_of(settings, table("newcomer", column("a")))
        other.change("c", {"id": 1, "a": 1}, at(200, 1).text)
        flush(other)
        wait_for(lambda: Path(settings.sink.table_path("shop", "newcomer"), "_delta_log").is_dir())
    finally:
        job.stop()
        running.join(120)
    assert not running.is_alive()
    merge_all(spark, settings)
    assert (amounts(settings), rows(settings, other.table)) == ({"one": 1}, [{"id": 1, "a": 1}])


def test_an_error_of_a_job_that_is_being_stopped_is_not_taken_for_the_end_of_its_jvm(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = merge_settings()
    (SinkLayout.of(settings.sink).service / "lock").mkdir(parents=True)
    job = MergeJob(settings, spark=spark)

    lock = LocalFiles.lock

    def stopped_while_it_locks(*arguments: Any) -> Any:
        job.stop()
        return lock(*arguments)

    monkeypatch.setattr(LocalFiles, "lock", stopped_while_it_locks)
    monkeypatch.setattr("spark_jobs.jobs.jvm_start._ENDS_S", 0.5)  # the JVM does not end
    with pytest.raises(Py4JError, match="FileNotFoundException"):
        job.run(until_caught_up=True)


def test_settings_the_job_cannot_serve_are_refused() -> None:
    common = {"name": "x", "source": {"tables": [".*"]}}
    sink = {"sinks": [{"path": "lake"}]}
    with pytest.raises(ConfigError, match="reads Avro only"):
        MergeJob(from_mapping(common | sink | {"format": {"type": "json"}}))
    with pytest.raises(ConfigError, match="none is given"):
        MergeJob(from_mapping(common | {"format": {"registry": "http://r"}}))
