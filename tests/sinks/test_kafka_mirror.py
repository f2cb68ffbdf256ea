"""Mirrors in topics: the suites on the tests' Spark session and a real broker. The rows are those that the messages say, in order.

Each look at the rows folds the topic, and requires of each message that retracts a row that it is the row folded so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from devservers import Kafka
from schemas.errors import SinkError
from schemas.markers import Sweep
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from schemas.settings import from_mapping
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.sinks.contract import Evolution, Sink, TargetRecord
from spark_jobs.sinks.faulty import Faults, InjectedCrashError, faulty
from spark_jobs.sinks.kafka.kafka_sink import KafkaSink
from spark_jobs.sinks.kafka.kept_changes import CHANGES, KeptChanges
from spark_jobs.sinks.kafka.sink_commits import SinkCommits
from tests.sinks.behaviour import (
    AFTER_WHOLE,
    ALL_POINTS,
    FILL,
    FIRST,
    NAME,
    QUERY,
    WHOLE,
    WIDER,
    Batch,
    Change,
    Lab,
    SinkBehaviour,
    at,
    change,
    delete,
)
from tests.sinks.schema_behaviour import SchemaBehaviour
from tests.sinks.shared_behaviour import OTHER, SharedTargetBehaviour, put_shared, shared_rows
from tests.sinks.test_delta_sink import DeltaLab
from tests.support.changelogs import folded_in_order, messages
from tests.support.servers import unique_name

FORMS = ("changelog-json", "debezium-json", "canal-json", "maxwell-json")


class MirrorLab(DeltaLab):
    """A mirror in a topic. What somebody does to the target, they do to the table of its rows."""

    def __init__(self, spark: SparkSession, folder: Path, kafka: Kafka, form: str = "changelog-json") -> None:
        super().__init__(spark, folder)
        self.servers, self.sink_name, self.form = kafka.bootstrap_servers, unique_name("stream"), form
        self.topic = f"{self.sink_name}-orders"
        sink = {"name": self.sink_name, "type": "kafka", "path": str(folder), "topic": f"{self.sink_name}-$table", "format": form}
        self._settings = from_mapping(
            {
                "name": unique_name("shop"),
                "kafka": {"bootstrap_servers": self.servers, "partitions": 3},
                "source": {"tables": [".*"]},
                "sinks": [sink],
            }
        )

    @override
    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = KafkaSink(self._layout, lambda: query, self._settings)
        return sink if faults is None else faulty(sink, faults)

    def folded(self) -> list[dict[str, Any]]:
        return list(folded_in_order(messages(self.servers, self.topic), self.form).values())

    @override
    def rows(self) -> list[dict[str, Any]]:
        names = [field.name for field in DeltaTable(str(self._path)).schema().fields]
        found = self.folded()
        if any(self._layout.service.glob(f"{CHANGES}/*/*/*/")):  # not sent: the table has columns that no message has
            names = [name for name in names if any(name in row for row in found)]
        for row in found:
            assert all(row[name] is None for name in row.keys() - {*names, SOURCE}), "a column that was dropped has no value"
        return [{name: row.get(name) for name in names} for row in found]

    def kept_rows(self) -> list[dict[str, Any]]:
        """The rows of the table, without their positions."""
        found = DeltaTable(str(self._path)).to_pyarrow_table().to_pylist()
        return [{name: value for name, value in row.items() if name != POSITION} for row in found]


@contextmanager
def dying(where: str) -> Iterator[None]:
    """A death at a place between two steps: before or after what is kept, in the transaction, or once it is committed."""
    owner, name = {"kept": (KeptChanges, "keep"), "recorded": (SinkCommits, "add"), "committed": (SinkCommits, "note")}[where]
    known = getattr(owner, name)

    def die(self: Any, *arguments: Any) -> None:
        if where == "kept":
            known(self, *arguments)
        raise InjectedCrashError(where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, die)
        yield


class TestKafkaMirror:
    """What a mirror has beside the suites, and their most important crash points."""

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, kafka: Kafka) -> MirrorLab:
        return MirrorLab(spark, tmp_path / "stream", kafka)

    @pytest.mark.parametrize("where", ["recorded", *(pytest.param(one, marks=pytest.mark.slow) for one in ("kept", "committed"))])
    def test_a_batch_that_died_between_its_steps_is_sent_once(self, lab: MirrorLab, where: str) -> None:
        record = lab.play(FIRST)
        with dying(where), pytest.raises(InjectedCrashError):
            lab.play(WHOLE, record)
        seen = len(lab.folded())
        assert seen in (3, 2)
        assert (seen == 2) == (where == "committed"), "all messages of a transaction, or none"
        record = lab.play(WHOLE, record)
        assert lab.values() == AFTER_WHOLE
        before = messages(lab.servers, lab.topic)
        lab.play(WHOLE, record)
        assert messages(lab.servers, lab.topic) == before

    def test_a_random_history_through_crashes_folds_to_the_rows_that_are_there(self, lab: MirrorLab) -> None:
        play_history(lab, seed=20, batches=4)

    def test_a_topic_that_gets_partitions_and_a_key_that_changes_are_refused(self, lab: MirrorLab) -> None:
        record = lab.play(FIRST)
        target = lab.target(lab.open())
        wrong = replace(lab.winners(Batch(1, [change(1, 200, 9)])), keys=("id", "Amount"))
        becomes = r"key of its messages is \(id\), and becomes \(id, Amount\)"
        with pytest.raises(SinkError, match=becomes), target.commit(Batch(1).stamp) as writer:
            writer.put(wrong)
        with pytest.raises(SinkError, match="id of the key becomes string, and was bigint"):
            target.evolve(Evolution((), (("id", T.StringType()),)), Batch(1).stamp)
        admin = AdminClient({"bootstrap.servers": lab.servers})
        admin.create_partitions([NewPartitions(lab.topic, 4)])[lab.topic].result()
        with pytest.raises(SinkError, match="had 3 partitions and has 4"):
            lab.target(lab.open()).trust(record, 1)


def play_history(lab: MirrorLab, seed: int, batches: int) -> None:
    """Random batches, most of which die somewhere and are run again; after each the fold must be the rows."""
    chance, model = random.Random(seed), dict[int, tuple[str, dict[str, Any]]]()
    record, columns, position = TargetRecord(), FIRST.columns, 100
    deaths = ("kept", "recorded", "committed", "after put", "after delete_between", "after sweep", "before save", "after evolve")
    for number in range(batches):
        position += 100
        changed = chance.sample(range(12), chance.randint(0, 8))
        wide = columns is WIDER

        def one(key: int, at_position: int, wide: bool = wide) -> Change:
            more: Mapping[str, Any] = {"five": chance.choice([None, 5, 7]), "maybe": chance.choice([None, "x"])} if wide else {}
            return delete(key, at_position) if chance.random() < 0.3 else change(key, at_position, chance.randint(1, 4), **more)

        evolution = FILL if number == batches // 2 else None
        columns = WIDER if evolution else columns
        wide = columns is WIDER
        rows = [one(key, position + chance.randint(-150, 99), wide) for key in changed]
        due = [DueSweep(Sweep(("amount",), frozenset({(str(chance.randint(1, 4)),)})), at(position - 50))]
        floor = position - 180 if chance.random() < 0.3 else None
        batch = Batch(number, rows, columns, evolution, floor, due if chance.random() < 0.5 else ())
        apply(model, batch)
        for _ in range(chance.randint(0, 2)):
            record_of_death(lab, batch, record, chance.choice(deaths))
        record = lab.play(batch, record)
        assert {row["id"]: {name: value for name, value in row.items() if name not in ("id", POSITION)} for row in lab.rows()} == {
            key: values for key, (_, values) in model.items()
        }, f"seed {seed}, batch {number}"
    assert sorted(map(str, lab.kept_rows())) == sorted(str({"id": key, **values}) for key, (_, values) in model.items())


def record_of_death(lab: MirrorLab, batch: Batch, record: TargetRecord, death: str) -> None:
    """Run a batch until it dies, if it comes there."""
    try:
        if " " in death:
            faults = Faults()
            faults.crash_at(death)
            lab.play(batch, record, lab.open(faults))
        else:
            with dying(death):
                lab.play(batch, record)
    except InjectedCrashError:
        pass


def apply(model: dict[int, tuple[str, dict[str, Any]]], batch: Batch) -> None:
    """Do to the rows of a model what a batch does."""
    if batch.evolution:
        for _, values in model.values():
            values |= {name: value for name, _, value in batch.evolution.added}
    for one in batch.changes or ():
        if one.key in model and model[one.key][0] >= at(one.position):
            continue
        model.pop(one.key, None)
        if one.values is not None:
            names = [name for name, _ in batch.columns if name != "id"]
            model[one.key] = (at(one.position), {name: one.values.get(name) for name in names})
    for key, (position, values) in list(model.items()):
        swept = any(position < due.below and (str(values["Amount"]),) in due.sweep.values for due in batch.due)
        if swept or (batch.floor is not None and position < at(batch.floor)):
            del model[key]


@pytest.mark.slow
class TestKafkaMirrorAtEveryPoint(SinkBehaviour, SharedTargetBehaviour, SchemaBehaviour):
    crash_points: ClassVar[tuple[str, ...]] = ALL_POINTS

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, kafka: Kafka) -> Lab:
        return MirrorLab(spark, tmp_path / "stream", kafka)

    @pytest.mark.parametrize("seed", range(4))
    def test_random_histories_through_crashes_fold_to_the_rows_that_are_there(self, lab: MirrorLab, seed: int) -> None:
        play_history(lab, seed, batches=12)

    def test_each_table_of_a_target_has_messages_of_its_own(self, lab: MirrorLab) -> None:
        record = put_shared(lab, 0, ((OTHER, 1, 100, 10), (OTHER, 2, 100, 20)))
        put_shared(lab, 1, ((OTHER, 1, 200, None), (OTHER, 2, 200, 21)), record)
        assert {row[SOURCE] for row in lab.folded()} == {OTHER.text}
        assert shared_rows(lab) == {("more", 2): 21}

    @pytest.mark.parametrize("form", FORMS)
    def test_every_format_folds_to_the_rows(self, spark: SparkSession, tmp_path: Path, kafka: Kafka, form: str) -> None:
        lab = MirrorLab(spark, tmp_path / "stream", kafka, form)
        lab.play(WHOLE, lab.play(FIRST))
        assert {int(row["id"]) for row in lab.rows()} == set(AFTER_WHOLE)
        if form != "canal-json":
            assert lab.values() == AFTER_WHOLE

    def test_a_changelog_does_not_continue_a_mirror(self, lab: MirrorLab) -> None:
        record = lab.play(FIRST)
        sink = replace(lab._settings.sinks[0], mode="changelog")
        changelog = KafkaSink(lab._layout, lambda: QUERY, replace(lab._settings, sinks=(sink,)))
        with pytest.raises(SinkError, match="was written with mode: mirror"):
            changelog.target(lab.spark, NAME, ()).trust(record, 1)
