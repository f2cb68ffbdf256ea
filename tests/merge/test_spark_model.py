"""The Spark job against the same random histories, on a real broker, registry and Delta tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from schemas.columns import Column, ColumnType, TableSchema
from schemas.markers import CompleteMarker, HeartbeatMarker, Marker, Sweep
from schemas.merge_rule import Entry, TableState
from schemas.settings import Settings
from spark_jobs.merge import tombstones
from tests.merge.conftest import SinkFactory
from tests.merge.history import History, Shape
from tests.merge.lake import ORDERS, Crash, amounts, amounts_by_spark, at, merge_all, progress, rows
from tests.merge.shared_job import MERGED, PLAIN, Runs, Tables
from tests.merge.topics import TableTopics

SHAPE = Shape(keys=40, partitions=2, steps=300)
FIRST_ORDINAL = f"{0:010}"  # the ordinal of a snapshot row's version


class Played:
    """A history's topics, produced to Kafka piece by piece, every partition at its own pace."""

    def __init__(self, history: History, topics: TableTopics, seed: int) -> None:
        self._history = history
        self._topics = topics
        self._random = random.Random(seed)
        self._next = {(kind, n): 0 for kind in "cs" for n in range(history.shape.partitions)}
        self._ends = [[0] for _ in history.changes]
        self._rows: dict[str, int | None] = {}

    def produce_pieces(self, most: int) -> Iterator[None]:
        """Produce a random piece of every partition, again and again until all is in Kafka."""
        while any(start < len(self._records(part)) for part, start in self._next.items()):
            for part in self._next:
                if self._random.random() < 0.7:
                    self._produce(part, self._random.randint(0, most))
            self._topics.flush()
            yield

    def _records(self, part: tuple[str, int]) -> list[Entry] | list[Entry | Marker]:
        kind, number = part
        return self._history.changes[number] if kind == "c" else self._history.snapshots[number]

    def _produce(self, part: tuple[str, int], count: int) -> None:
        kind, number = part
        start = self._next[part]
        for record in self._records(part)[start : start + count]:
            if isinstance(record, Marker):
                self._marker(record)
            elif kind == "c":
                op = "d" if record.deleted else "r" if record.version.endswith(FIRST_ORDINAL) else "u"
                row = self._rows.get(record.key) if record.deleted else record.row
                self._rows[record.key] = record.row
                self._topics.change(op, {"id": record.key, "amount": row}, record.version, number)
            else:
                self._topics.row({"id": record.key, "amount": record.row}, record.version, number)
        self._next[part] = min(start + count, len(self._records(part)))

    def _marker(self, marker: Marker) -> None:
        """The marker with offsets of Kafka: a delete is two records there."""
        ends = {number: self._offset(number, count) for number, count in marker.change_offsets.items()}
        self._topics.one_marker(replace(marker, change_offsets=ends))

    def _offset(self, number: int, count: int) -> int:
        return sum(2 if entry.deleted else 1 for entry in self._history.changes[number][:count])


class Dying:
    """Ends the job at random steps: after the tables are written, before or after the state is."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.deaths = 0

    def __call__(self, step: str, batch_id: int) -> None:
        if self._random.random() < 0.12:
            self.deaths += 1
            raise Crash(step)


@pytest.mark.parametrize(
    ("writer", "seed", "merge", "cascades"),
    [
        pytest.param("auto", 1, "spark", 0, marks=pytest.mark.slow),
        pytest.param("auto", 2, "spark", 0, marks=pytest.mark.slow),
        pytest.param("jvm", 6, "spark", 0, marks=pytest.mark.slow),
        ("auto", 4, "producer", 0),
        ("auto", 5, "spark", 0.04),
    ],
)
def test_a_history_ends_in_the_rows_of_the_source(
    writer: str,
    seed: int,
    merge: Literal["spark", "producer"],
    cascades: float,
    spark: SparkSession,
    merge_settings: SinkFactory,
) -> None:
    settings = merge_settings(max_batch_records=400, writer=writer)
    history = History(seed, replace(SHAPE, merge=merge, cascades=cascades)).run()
    topics = topics_of(settings)
    dying = Dying(seed)
    for _ in Played(history, topics, seed).produce_pieces(most=130):
        merge_through_crashes(spark, settings, dying)
    merge_all(spark, settings)
    assert amounts(settings) == history.source
    assert amounts_by_spark(spark, settings) == history.source
    assert history.counts["deletes in windows"] > 0
    assert dying.deaths > 0
    assert history.counts["sweeps of children"] > 5 or not cascades
    assert progress(settings)["tombstones"] == 0


def topics_of(settings: Settings) -> TableTopics:
    return TableTopics(
        settings.kafka.bootstrap_servers, settings.format.registry or "", settings.name, ORDERS, partitions=2
    )


def merge_through_crashes(spark: SparkSession, settings: Settings, dying: Dying) -> None:
    while True:
        try:
            merge_all(spark, settings, dying)
        except Crash:
            continue
        return


@PLAIN.case
def test_late_rows_stay_away(tables: Tables) -> Runs:
    settings, topics = tables.settings, tables.topics_of(replace(ORDERS, name="late"))
    yield from late_rows(settings, topics)
    assert amounts(settings, topics.table) == {"two": 2}


@pytest.mark.parametrize(("mutant", "writer"), [("horizon", "auto"), ("guard", "auto"), (None, "jvm")])
def test_late_rows_stay_away_only_with_horizon_and_guard(
    mutant: str | None,
    writer: str,
    spark: SparkSession,
    merge_settings: SinkFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if mutant == "horizon":
        monkeypatch.setattr(tombstones, "needed", lambda _folders, _state: ())
    if mutant == "guard":
        monkeypatch.setattr(TableState, "guard", property(lambda _state: {}))
    settings = merge_settings(writer=writer)
    for _ in late_rows(settings, topics_of(settings)):
        merge_all(spark, settings)
    assert (amounts(settings) == {"two": 2}) == (mutant is None)


def late_rows(settings: Settings, topics: TableTopics) -> Runs:
    """Write a delete, then a row of a window that was open before it, then one of an attempt that was given up.

    A batch is between the delete and the row: the delete is remembered longer than the batch after it.
    """
    one, two = {"id": "one", "amount": 1}, {"id": "two", "amount": 2}
    for row in (one, two):
        topics.change("c", row, at(50, 1).text)
    topics.change("d", one, at(200, 1).text)
    topics.marker(heartbeat(topics, position=300, horizon=100))
    topics.flush()
    yield MERGED
    topics.marker(heartbeat(topics, position=350, horizon=100))
    topics.flush()
    yield MERGED
    assert amounts(settings, topics.table) == {"two": 2}
    for position in (400, 500):
        topics.row(one, at(100).text)
        topics.marker(heartbeat(topics, position=position, horizon=position))
        topics.flush()
        yield MERGED


@PLAIN.case
def test_what_is_older_never_replaces_what_is_newer(tables: Tables) -> Runs:
    """A snapshot row, and a delete from another partition, that come a batch after a newer change of their keys."""
    topics = tables.topics_of(replace(ORDERS, name="older"))
    for key in ("one", "two"):
        topics.change("u", {"id": key, "amount": 2}, at(200, 1).text, 0)
    yield MERGED
    topics.row({"id": "one", "amount": 1}, at(100).text)
    topics.change("d", {"id": "two", "amount": 1}, at(100, 1).text, 1)
    yield MERGED
    assert amounts(tables.settings, topics.table) == {"one": 2, "two": 2}


CHILD = TableSchema(
    "shop",
    "child",
    (
        Column("id", ColumnType.INT, nullable=False),
        Column("big", ColumnType.BIGINT, nullable=True, unsigned=True),
        Column("bytes", ColumnType.BINARY, nullable=True, length=2),
    ),
    ("id",),
)
BIG = 2**64 - 1


@PLAIN.case
def test_a_sweep_takes_rows_by_composite_values_of_any_type_below_its_bound(tables: Tables) -> Runs:
    settings, topics = tables.settings, tables.topics_of(CHILD)
    for ident, big, value in (
        (1, BIG, b"\0\xff"),
        (2, BIG, b"\0\xfe"),
        (3, 1, b"\0\xff"),
        (4, BIG, None),
        (5, BIG, b"\0\xff"),
    ):
        version = at(500 if ident == 5 else 100, ident).text
        topics.change("c", {"id": ident, "big": Decimal(big), "bytes": value}, version)
    complete = CompleteMarker(
        table="shop.child",
        position=at(400),
        horizon=at(200),
        partitions=topics.partitions,
        change_offsets=topics.change_offsets,
        request="children",
        first_bound=at(300),
        whole_table=False,
        rows=0,
        sweep=Sweep(("BIG", "bytes"), frozenset({(str(BIG), "00FF"), ("7", "0000")})),
    )
    topics.marker(complete)
    yield MERGED
    assert [row["id"] for row in rows(settings, CHILD)] == [1, 2, 3, 4, 5], "the horizon is below the bound"
    topics.marker(heartbeat(topics, position=450, horizon=300))
    yield MERGED
    assert [row["id"] for row in rows(settings, CHILD)] == [2, 3, 4, 5]
    assert progress(settings, CHILD)["consistent_at"] is None


def heartbeat(topics: TableTopics, *, position: int, horizon: int) -> HeartbeatMarker:
    return HeartbeatMarker(
        table=topics.table.full_name,
        position=at(position),
        horizon=at(horizon),
        partitions=topics.partitions,
        change_offsets=topics.change_offsets,
    )
