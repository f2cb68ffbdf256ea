"""Records that cannot be merged: nothing is deleted, swept or called consistent on account of a snapshot they may be of."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from kafkaio.schema_registry import HttpRegistry, RegisteredSchema
from schemas.columns import TableSchema
from schemas.json_codec import decode, encode
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker
from schemas.merge_rule import TableState
from schemas.settings import Settings
from schemas.topics import key_subject, value_subject
from spark_jobs.jobs.redrive import Redrive
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.merge.retried_table import Retried
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    at,
    column,
    flush,
    marker,
    merge_all,
    merge_with,
    progress,
    quarantined,
    rows,
    sole_writer,
    table,
    topics_of,
)
from tests.merge.topics import TableTopics


def forget(settings: Settings, *subjects: str) -> None:
    """Have the registry lose subjects."""
    for subject in subjects:
        for more in ("", "?permanent=true"):
            url = f"{settings.format.registry}/subjects/{subject}{more}"
            with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")) as answer:  # noqa: S310 - loopback
                assert answer.status == 200


def ids(settings: Settings, schema: TableSchema) -> list[int]:
    return [row["id"] for row in rows(settings, schema)]


def retry(spark: SparkSession, settings: Settings) -> dict[str, Retried]:
    registry = HttpRegistry(settings.format.registry or "")
    with sole_writer(spark, settings, wait_s=1):
        return {result.table: result for result in Redrive(settings, spark, registry).retry([])}


def snapshot(topics: TableTopics, numbers: range, bound: int, end: int) -> None:
    """The rows of a snapshot of the whole table, and its completion."""
    for number in numbers:
        topics.row({"id": number, "a": number}, at(bound).text, number % 2)
    name = f"of-{bound}"
    marker(topics, CompleteMarker, end, bound, request=name, first_bound=at(bound), whole_table=True, rows=len(numbers))


def test_a_registry_that_lost_the_subject_of_a_key_empties_no_table(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = merge_settings()
    orders = table("orders", column("a"))
    topics = topics_of(settings, orders)
    for number in range(1, 8):
        topics.change("c", {"id": number, "a": number}, at(100, number).text, number % 2)
    flush(topics)
    merge_all(spark, settings)

    forget(settings, key_subject(topics.changes))
    topics.change("d", {"id": 7, "a": 7}, at(200, 1).text, 1)
    snapshot(topics, range(1, 7), 300, 400)
    flush(topics)
    merge_all(spark, settings)
    assert ids(settings, orders) == list(range(1, 8)), "nothing is deleted on an unknown"
    found = progress(settings, orders)
    assert (found["consistent_at"], found["skipped"], found["quarantined"]) == (None, None, 7)
    assert f"no longer has {key_subject(topics.changes)}" in found["lacks"]

    # The producer registers it again: later records are merged, and nothing is concluded from the snapshot that was not.
    topics.alter(orders)
    topics.change("c", {"id": 8, "a": 8}, at(500, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert ids(settings, orders) == list(range(1, 9))
    assert progress(settings, orders)["consistent_at"] is None
    assert "tidemark quarantine retry" in progress(settings, orders)["lacks"]

    # The quarantine brings everything back, and with the last record what the snapshot said is carried out.
    result = retry(spark, settings)["shop.orders"]
    assert (result.settled, result.left) == (7, 0)
    assert ids(settings, orders) == [1, 2, 3, 4, 5, 6, 8]
    found = progress(settings, orders)
    assert (found["consistent_at"], found["quarantined"], found["lacks"]) == (at(400).text, 0, None)
    topics.row({"id": 7, "a": 7}, at(90).text, 1)
    flush(topics)
    merge_all(spark, settings)
    assert ids(settings, orders) == [1, 2, 3, 4, 5, 6, 8]


def test_a_registry_that_lost_its_memory_and_gave_its_ids_again_misleads_no_record(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """Ids that the registry gives again are new ones; what has the old ones is read by what this sink keeps of them."""
    settings = merge_settings()
    orders = table("orders", column("a"))
    topics = topics_of(settings, orders)
    for number in (1, 2):
        topics.change("c", {"id": number, "a": number}, at(100, number).text)
    flush(topics)
    merge_all(spark, settings)
    known = (topics.key_id, topics.value_id)
    topics.change("u", {"id": 1, "a": 10}, at(200, 1).text)  # in Kafka when the registry loses its memory

    forget(settings, key_subject(topics.changes), value_subject(topics.changes))
    wider = table("orders", column("a"), column("b"))
    topics.alter(wider)
    assert topics.value_id not in known
    topics.change("c", {"id": 3, "a": 3, "b": 3}, at(300, 1).text, 1)
    snapshot_rows = [{"id": number, "a": number, "b": 0} for number in (1, 2, 3)]
    for row in snapshot_rows:
        topics.row(row, at(400).text)
    marker(topics, CompleteMarker, 500, 400, request="again", first_bound=at(400), whole_table=True, rows=3)
    flush(topics)
    merge_all(spark, settings)
    assert rows(settings, wider) == snapshot_rows
    found = progress(settings, wider)
    assert (found["consistent_at"], found["quarantined"]) == (at(500).text, 0)


class Renumbering:
    """A registry that lost its memory, and gave the ids that it had given to others then."""

    def __init__(self) -> None:
        self.subjects: dict[str, tuple[RegisteredSchema, ...]] = {}

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        return self.subjects.get(subject, ())


def test_an_id_that_was_given_twice_reads_each_record_by_the_schema_that_fits_it(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """Where both fit, as after a column was renamed, nobody knows: such a record is kept, and the table says so."""
    settings = merge_settings()
    orders = table("orders", column("a"))
    topics = topics_of(settings, orders)
    real, registry = HttpRegistry(settings.format.registry or ""), Renumbering()
    key, value = key_subject(topics.changes), value_subject(topics.changes)
    registry.subjects = {subject: real.versions(subject) for subject in (key, value)}
    ident = topics.value_id
    topics.change("c", {"id": 1, "a": 1}, at(100, 1).text)
    flush(topics)
    merge_with(spark, settings, registry)

    def alter(to: TableSchema) -> None:
        topics.alter(to)
        topics.value_id = ident
        registry.subjects[value] = (replace(real.versions(value)[-1], version=1, id=ident),)

    topics.change("c", {"id": 2, "a": 2}, at(200, 1).text)  # not yet merged when its id gets another meaning
    alter(table("orders", column("a"), column("b")))
    topics.change("c", {"id": 3, "a": 3, "b": 3}, at(300, 1).text)
    flush(topics)
    merge_with(spark, settings, registry)
    expected = [{"id": 1, "a": 1, "b": None}, {"id": 2, "a": 2, "b": None}, {"id": 3, "a": 3, "b": 3}]
    assert rows(settings, orders) == expected
    assert progress(settings, orders)["lacks"] is None

    alter(table("orders", column("a"), column("c")))
    topics.change("u", {"id": 3, "a": 4, "c": 4}, at(400, 1).text)
    flush(topics)
    merge_with(spark, settings, registry)
    assert [{name: row[name] for name in "ab"} for row in rows(settings, orders)][2] == {"a": 3, "b": 3}
    assert [reason.split(":")[0] for *_, reason in quarantined(settings)] == [
        "value has a schema id that the registry gave to two schemas, and fits both"
    ]
    assert progress(settings, orders)["lacks"] is not None


def test_a_snapshot_that_began_after_the_records_that_were_left_out_is_merged_whole(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """A truncate is a fact of the log, and takes its rows; what a snapshot says waits while rows of it may be missing."""
    settings = merge_settings()
    orders, emptied = table("orders", column("a")), table("emptied", column("a"))
    topics, truncated = topics_of(settings, orders), topics_of(settings, emptied)
    for number in (1, 2, 3):
        for one in (topics, truncated):
            one.change("c", {"id": number, "a": number}, at(100, number).text, number % 2)
    flush(topics, truncated)
    merge_all(spark, settings)

    for one in (topics, truncated):
        one.put(one.changes, 0, one.key({"id": 9}), b"\0\0\0\xff\xff..........")
    snapshot(topics, range(1, 2), 200, 300)
    marker(truncated, FloorMarker, 200, reason="truncate")
    truncated.change("c", {"id": 4, "a": 4}, at(250, 1).text)
    flush(topics, truncated)
    merge_all(spark, settings)
    assert ids(settings, orders) == [1, 2, 3]
    assert ids(settings, emptied) == [4]
    for schema in (orders, emptied):
        assert (progress(settings, schema)["consistent_at"], progress(settings, schema)["quarantined"]) == (None, 1)

    # Markers say where the log reader was when the records had been read: a snapshot from behind it has all that they said.
    marker(topics, HeartbeatMarker, 350)
    flush(topics)
    merge_all(spark, settings)
    snapshot(topics, range(2, 3), 400, 500)
    flush(topics)
    merge_all(spark, settings)
    assert ids(settings, orders) == [2]
    found = progress(settings, orders)
    assert (found["consistent_at"], found["lacks"], found["quarantined"]) == (at(500).text, None, 1)

    # Given up, they are missing for good: what was said of a snapshot with them never counts.
    truncated.put(truncated.changes, 0, truncated.key({"id": 9}), b"\0\0\0\xff\xff..........")
    snapshot(truncated, range(5, 6), 400, 500)
    flush(truncated)
    merge_all(spark, settings)
    with sole_writer(spark, settings, wait_s=1):
        Redrive(settings, spark, HttpRegistry(settings.format.registry or "")).discard([])
    marker(truncated, HeartbeatMarker, 600)
    flush(truncated)
    merge_all(spark, settings)
    assert ids(settings, emptied) == [4, 5]
    found = progress(settings, emptied)
    assert (found["consistent_at"], found["quarantined"]) == (None, 0)
    assert "read again" in found["lacks"]


def test_a_retry_leaves_a_table_that_is_set_aside_where_it_is_resumed(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = merge_settings()
    orders = table("orders", column("a"))
    topics = topics_of(settings, orders)

    def change(number: int) -> None:
        topics.change("c", {"id": number, "a": number}, at(100, number).text)
        flush(topics)
        merge_all(spark, settings)

    change(1)
    forget(settings, key_subject(topics.changes))
    change(2)
    topics.alter(orders)
    path = Path(settings.sink.table_path("shop", "orders"))
    gone = path.rename(path.with_name("gone"))
    change(3)
    gone.rename(path)
    result = retry(spark, settings)["shop.orders"]
    assert (result.settled, result.left) == (1, 0)
    assert "is gone" in progress(settings, orders)["set_aside"]["reason"]
    change(4)
    assert ids(settings, orders) == [1, 2, 3, 4]
    assert (progress(settings, orders)["set_aside"], progress(settings, orders)["quarantined"]) == (None, 0)


def test_a_snapshot_row_is_not_proven_by_a_change_topic_that_was_created_again(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """The delete that came after it was in the former one."""
    settings = merge_settings()
    orders = table("orders", column("a"))
    topics, other = topics_of(settings, orders), topics_of(settings, table("other", column("a")))
    other.register()
    row = {"id": 1, "a": 1}
    topics.change("c", row, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    forget(settings, key_subject(topics.changes))
    topics.row(row, at(150).text)
    flush(topics)
    merge_all(spark, settings)
    topics.alter(orders)
    topics.change("d", row, at(200, 1).text)
    marker(topics, HeartbeatMarker, 250)
    flush(topics)
    merge_all(spark, settings)
    topics.create_again(topics.changes)
    for number in (1, 2):
        other.change("c", {"id": number, "a": 1}, at(300, number).text)
        flush(other)
        merge_all(spark, settings)
    assert (progress(settings, orders)["set_aside"], ids(settings, orders)) == (None, [])
    result = retry(spark, settings)["shop.orders"]
    assert (result.settled, result.unproven, ids(settings, orders)) == (0, 1, [])


def test_a_state_of_before_gaps_were_noted_says_that_records_are_left_out() -> None:
    state = TableState(consistent_at=at(100).text)
    for quarantined_ones, skipped, consistent in ((0, None, True), (3, None, False), (0, "no key", False)):
        record = SourceRecord(state, quarantined=quarantined_ones, skipped=skipped, change_offsets={0: 7})
        document = encode(record)
        assert decode(SourceRecord, document).state == state, "a state of today is what it says"
        del document["state"]["gap"]
        assert decode(SourceRecord, document).state.is_consistent == consistent
