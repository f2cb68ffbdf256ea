"""Chunks that the merge job reads from the source itself: exact whatever is merged beside them, and wherever the job may die."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import LoadImpossibleError, SinkError
from schemas.loads import LoadAnswer
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, LoadMarker
from schemas.settings import CharsMaskSettings, Settings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.merge import batch_loads
from spark_jobs.merge.batch_loads import LoadsOfTable
from spark_jobs.store.sink_layout import STATE
from tests.merge.chunks import Chunks
from tests.merge.conftest import SinkFactory
from tests.merge.lake import Crash, Step, at, column, dies_at, flush, marker, progress, rows, table, topics_of
from tests.merge.shared_job import DIED, MERGED, Outcomes, Runs, SharedJob
from tests.merge.topics import TableTopics

JOB = SharedJob()
ITEMS = table("items", column("a"))
Found = dict[int, int]


def some(*numbers: int, a: int = 1) -> list[dict[str, Any]]:
    return [{"id": number, "a": a} for number in numbers]


def found(settings: Settings, schema: TableSchema) -> Found:
    read = rows(settings, schema)
    assert len({row["id"] for row in read}) == len(read), "no key twice"
    return {row["id"]: row["a"] for row in read}


def whole(topics: TableTopics, position: int, first_bound: int, **more: Any) -> None:
    marker(topics, CompleteMarker, position, position, request="r", first_bound=at(first_bound), whole_table=True, rows=0, **more)


class World:
    """One table, its topics, its chunks: with a name one of several tables of a job."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path, name: str = "") -> None:
        self.settings = settings
        self.table = replace(ITEMS, name=name or ITEMS.name)
        self.topics = topics_of(settings, self.table)
        self.chunks = Chunks(spark, settings, folder, of=name)

    def altered(self, *more: Column) -> TableSchema:
        """Write with more columns from here on, and return the table."""
        wider = replace(self.table, columns=(*self.table.columns, *more))
        self.topics.alter(wider)
        return wider

    def change(self, op: str, number: int, position: int, a: int = 1) -> None:
        self.topics.change(op, {"id": number, "a": a}, at(position, 1).text, number % 2)

    def merge(self, on_step: Any = lambda *_: None) -> None:
        flush(self.topics)
        self.chunks.merge(on_step)

    @property
    def rows(self) -> Found:
        return found(self.settings, self.table)

    @property
    def progress(self) -> dict[str, Any]:
        return progress(self.settings, self.table)


@pytest.fixture
def world(spark: SparkSession, merge_settings: SinkFactory, tmp_path: Path) -> World:
    return World(spark, merge_settings(), tmp_path / "chunks")


@JOB.case
def test_a_table_is_loaded_chunk_by_chunk_beside_its_changes_and_is_consistent(world: World) -> Runs:
    """Before the barrier, behind it in the same batch, and in a later batch: the newest state of each key stays."""
    chunks = world.chunks
    world.change("c", 1, 50, 5)  # older than the chunk, and in the lake
    world.change("u", 2, 200, 20)  # behind the barrier
    world.change("d", 3, 201)
    chunks.ask("w0", world.topics, some(1, 2, 3, 4), 100, position=110)
    chunks.ask("w1", world.topics, some(10, 11), 100, position=110, chunk=1)
    yield MERGED
    assert world.rows == {1: 1, 2: 20, 4: 1, 10: 1, 11: 1}
    assert sorted(chunks.answers(), key=lambda one: one.window) == [LoadAnswer("w0", 4), LoadAnswer("w1", 2)]
    assert chunks.reads() == ["w0", "w1"]
    assert world.progress["rows"] == 3 + 5
    world.change("d", 10, 210)
    world.change("u", 11, 211, 12)
    world.change("c", 12, 212, 12)
    chunks.close("w0", world.topics, 300, 100)
    chunks.close("w1", world.topics, 300, 301, chunk=1)
    whole(world.topics, 310, 90)
    yield MERGED
    assert world.rows == {1: 1, 2: 20, 4: 1, 11: 12, 12: 12}
    assert (world.progress["consistent_at"], world.progress["lacks"]) == (at(310).text, None)
    assert chunks.reads() == []
    assert chunks.answers() == [], "the producer has closed both windows, and waits for no answer"


@JOB.case
def test_chunks_with_rows_that_are_there_are_loaded_at_once(world: World) -> Runs:
    """No load has to be asked for again since another one has committed meanwhile."""
    for number in range(0, 60, 3):
        world.change("c", number, 50, 5)
    yield MERGED
    for chunk in range(6):
        world.chunks.ask(f"w{chunk}", world.topics, some(*range(chunk * 10, chunk * 10 + 10)), 100, chunk=chunk)
    yield MERGED
    assert world.rows == dict.fromkeys(range(60), 1)
    assert [(one.rows, one.error) for one in world.chunks.answers()] == [(10, "")] * 6
    assert not list(Path(world.settings.sink.service_path).rglob("*.arrow")), "what loads keep for a moment"


@JOB.case
def test_later_changes_find_the_loaded_rows(world: World) -> Runs:
    """Keys above all that the target had before would be appended."""
    world.change("c", 1, 50)
    yield MERGED
    world.chunks.ask("w0", world.topics, some(100, 200), 100)
    yield MERGED
    for number, op in ((100, "u"), (200, "d"), (300, "c")):
        world.change(op, number, 400 + number, 7)
    yield MERGED
    assert world.rows == {1: 1, 100: 7, 300: 7}


@JOB.case
def test_deletes_of_earlier_batches_are_remembered_for_a_load(world: World) -> Runs:
    world.change("c", 1, 50)
    world.change("c", 2, 50)
    yield MERGED
    world.change("d", 1, 150)
    world.change("d", 3, 90)  # before the barrier: 3 is there again if the chunk has it
    marker(world.topics, HeartbeatMarker, 200, 80)
    yield MERGED
    marker(world.topics, HeartbeatMarker, 210, 80)
    yield MERGED
    world.chunks.ask("w0", world.topics, some(1, 2, 3), 100, position=220, horizon=80)
    yield MERGED
    assert world.rows == {2: 1, 3: 1}


@JOB.case
def test_a_load_below_a_floor_or_of_a_window_that_was_given_up_brings_nothing(world: World) -> Runs:
    world.chunks.ask("old", world.topics, some(1), 100)
    marker(world.topics, HeartbeatMarker, 300, 200)
    world.change("c", 9, 250)
    yield MERGED
    assert (world.chunks.reads(), world.chunks.answers()) == ([], [])
    marker(world.topics, FloorMarker, 500, 200, reason="truncate")
    world.chunks.ask("cut", world.topics, some(2), 400, position=510, horizon=200)
    yield MERGED
    assert (world.chunks.reads(), world.chunks.answers()) == ([], [LoadAnswer("cut", 0)])
    assert world.rows == {}


@JOB.case
def test_chunks_of_two_requests_and_a_chunk_that_is_asked_for_twice_are_loaded_one_after_the_other(world: World) -> Runs:
    same = some(*range(20))
    for number, (request, chunk) in enumerate((("r", 0), ("r", 0), ("s", 5), ("r", 1))):
        mine = some(*range(20, 40)) if chunk == 1 else same
        world.chunks.ask(f"w{number}", world.topics, mine, 100 + number, horizon=90, request=request, chunk=chunk)
    yield MERGED
    assert sorted(world.rows) == list(range(40))
    assert [one.rows for one in world.chunks.answers()] == [20] * 4


def each_row_once(world: World, first: str) -> Runs:
    """Load chunks beside changes, in a first attempt of this outcome and in a second one, which reads newer rows."""
    world.change("c", 1, 50, 5)
    world.change("d", 3, 150)
    world.chunks.ask("w0", world.topics, some(1, 2, 3, 4), 100)
    world.chunks.ask("w1", world.topics, some(10, 11), 100, chunk=1)
    yield first
    world.chunks.has("w0", world.topics, [*some(1, 2, a=9), *some(5, 6)], 100)
    for number, op in ((1, "u"), (2, "u"), (4, "d"), (5, "c"), (6, "c")):
        world.change(op, number, 300 + number, 9 if number < 5 else 1)
    yield MERGED
    yield MERGED
    assert world.rows == {1: 9, 2: 9, 5: 1, 6: 1, 10: 1, 11: 1}
    assert {(one.window, one.error) for one in world.chunks.answers()} == {("w0", ""), ("w1", "")}


@JOB.case
def test_where_the_job_dies_with_its_rows_merged_each_row_is_there_once(world: World) -> Runs:
    yield from each_row_once(world, DIED)


@pytest.mark.parametrize("step", ["loaded", "saved", "answered", "published"])
def test_wherever_the_job_dies_each_row_is_there_once(world: World, step: str) -> None:
    for how in each_row_once(world, DIED):
        if how == DIED:
            with pytest.raises(Crash):
                world.merge(dies_at(step))
        else:
            world.merge()


@pytest.mark.parametrize("step", ["saved", "published"])
def test_a_chunk_that_was_loaded_and_saved_is_not_called_failed_where_the_batch_is_run_again(world: World, step: str) -> None:
    """The producer may have read the answer, and closed the window: the table lacked rows that it had, until another snapshot."""

    world.chunks.ask("w0", world.topics, some(1, 2), 100)
    with pytest.raises(Crash):
        world.merge(dies_at(step))
    world.chunks.has("w0", world.topics, some(1, 2), 100, error=ConnectionError("the source does not answer"))
    world.merge()
    assert {(one.window, one.rows, one.error) for one in world.chunks.answers()} == {("w0", 2, "")}
    world.chunks.close("w0", world.topics, 300, 301)
    whole(world.topics, 310, 90)
    world.merge()
    assert world.rows == {1: 1, 2: 1}
    assert (world.progress["consistent_at"], world.progress["lacks"]) == (at(310).text, None)


def test_a_chunk_that_fails_in_an_ordinary_batch_costs_no_knowledge_of_the_keys(world: World, spark: SparkSession) -> None:
    """Without it nothing is ever appended to that table, and each insert is a MERGE."""

    def known() -> list[int] | None:
        states = (Path(world.settings.sink.service_path) / STATE).glob("[0-9]*.json")
        newest = json.loads(max(states, key=lambda one: int(one.stem)).read_text())
        (entry,) = newest["tables"].values()
        found: list[int] | None = entry["key_range"]
        return found

    world.change("c", 5, 50)
    world.merge()
    world.change("c", 6, 60)
    world.chunks.ask("w0", world.topics, some(100), 100)
    world.chunks.ask("w1", world.topics, some(200), 100, chunk=1, error=ConnectionError("the source does not answer"))
    world.merge()
    assert {one.window: bool(one.error) for one in world.chunks.answers()} == {"w0": False, "w1": True}
    assert known() == [5, 100]
    world.chunks.ask("w2", world.topics, some(300), 200, chunk=2)
    flush(world.topics)
    for number in (7, 8):
        world.change("c", number, 210 + number)
        flush(world.topics)
        MergeJob(world.settings, spark=spark, open_source=lambda _: None).run(until_caught_up=True)
        assert known() == [5, 100]


def test_answers_that_could_not_be_written_are_written_by_a_later_batch_once(world: World) -> None:
    world.chunks.ask("w0", world.topics, some(1), 100)
    world.chunks.breaks()
    world.merge()
    assert (world.chunks.answers(), world.rows) == ([], {1: 1})
    world.chunks.breaks(broken=False)
    marker(world.topics, HeartbeatMarker, 200, 100)
    world.merge()
    assert world.chunks.answers() == [LoadAnswer("w0", 1)]
    assert world.chunks.reads() == ["w0"]


def test_without_a_source_a_load_waits_and_nothing_is_lost(world: World, spark: SparkSession) -> None:
    world.chunks.ask("w0", world.topics, some(1), 100)
    world.change("c", 9, 50)
    flush(world.topics)
    MergeJob(world.settings, spark=spark, open_source=lambda _: None).run(until_caught_up=True)
    assert world.rows == {9: 1}
    marker(world.topics, HeartbeatMarker, 200, 100)
    world.merge()
    assert world.rows == {1: 1, 9: 1}
    assert world.chunks.answers() == [LoadAnswer("w0", 1)]


@JOB.case
def test_chunks_of_two_plans_of_a_request_are_loaded_one_after_the_other(world: World) -> Runs:
    """A key that became another has the table divided once more: the rows of both plans would be appended beside each other."""
    table, loads = object(), [("r", 0, 0), ("r", 1, 0), ("r", 3, 1), ("r", 4, 1), ("s", 5, 0)]
    lanes = [SimpleNamespace(table=table, task=SimpleNamespace(load=load_of(*one))) for one in loads]
    rounds = batch_loads._rounds(cast("Any", lanes))
    assert [[one.task.load.chunk for one in group] for group in rounds] == [[0, 1], [3, 4], [5]]
    world.chunks.ask("w0", world.topics, some(*range(20)), 100, horizon=90)
    world.chunks.ask("w5", world.topics, some(*range(10, 40)), 120, horizon=90, chunk=3, generation=1)
    yield MERGED
    assert sorted(world.rows) == list(range(40))


def load_of(request: str, chunk: int, generation: int) -> LoadMarker:
    common = {"table": "shop.items", "position": at(200), "horizon": at(100), "partitions": 1, "partition": 0, "window": "w"}
    more = {"low": at(100), "query": "SELECT 1", "server": "u", "value_schema": 1, "generation": generation}
    return LoadMarker(**common, **more, request=request, chunk=chunk)  # type: ignore[arg-type]


def test_a_chunk_that_a_dead_attempt_has_loaded_by_other_masks_is_asked_for_again(world: World, spark: SparkSession) -> None:
    """Its rows are skipped where they are there, and a column that is masked now would stay as it was."""

    world.chunks.ask("w0", world.topics, some(1, 2), 100)
    with pytest.raises(Crash):
        world.merge(dies_at("loaded"))
    masks = (CharsMaskSettings(chars=3, columns=(r"shop\.items\.a",)),)
    world.chunks.settings = replace(world.settings, records=replace(world.settings.records, column_mask_with_chars=masks))
    world.merge()
    (answer,) = world.chunks.answers()
    assert answer.retry
    assert "the settings under records were changed" in answer.error
    world.chunks.ask("w1", world.topics, some(1, 2, a=3), 200)
    world.merge()
    assert world.rows == {1: 3, 2: 3}


@pytest.mark.parametrize("how", ["another writer", "no source"])
def test_rows_of_a_chunk_that_only_a_dead_attempt_has_loaded_are_not_there_twice(world: World, spark: SparkSession, how: str) -> None:
    """The range of keys did not include them: newer rows of these keys were appended, and stayed beside the older ones."""

    world.change("c", 1, 50)
    world.merge()
    world.chunks.ask("w0", world.topics, some(100, 200), 100)
    with pytest.raises(Crash):
        world.merge(dies_at("loaded"))
    settings = world.settings
    if how == "another writer":
        settings = replace(settings, sinks=(replace(settings.sink, writer="jvm"),))
    MergeJob(settings, spark=spark, open_source=lambda _: None if how == "no source" else world.chunks.source).run(until_caught_up=True)
    assert world.rows == {1: 1, 100: 1, 200: 1}
    world.change("u", 100, 300, 7)
    world.change("c", 300, 301)
    world.merge()
    assert world.rows == {1: 1, 100: 7, 200: 1, 300: 1}


@JOB.case
def test_rows_that_a_dead_attempt_has_put_and_kafka_has_dropped_since_are_not_there_twice(world: World) -> Runs:
    world.change("c", 1, 50)
    yield MERGED
    world.change("c", 100, 150, 5)
    yield DIED
    assert world.rows == {1: 1, 100: 5}
    world.change("c", 2, 160)
    flush(world.topics)
    changes = world.topics.changes
    world.topics.trim(changes, 0, world.topics.ends[changes][0] - 1)
    yield MERGED
    world.change("u", 100, 300, 7)
    yield MERGED
    assert world.rows == {1: 1, 2: 1, 100: 7}


@JOB.case_of("how", "never asked for here", "failed")
def test_a_table_whose_chunk_was_loaded_elsewhere_lacks_rows_until_a_later_snapshot(world: World, how: str) -> Runs:
    world.change("c", 1, 50)
    yield MERGED
    if how == "failed":
        world.chunks.ask("w0", world.topics, some(2), 100, error=ConnectionError("gone"))
        yield MERGED
        (answer,) = world.chunks.answers()
        assert (answer.retry, "gone" in answer.error) == (True, True)
    world.chunks.close("w0" if how == "failed" else "other", world.topics, 200, 100)
    whole(world.topics, 210, 90)
    yield MERGED
    assert world.rows == {1: 1}, "no sweep"
    assert (world.progress["consistent_at"], "not kept" in world.progress["lacks"]) == (None, True)
    marker(world.topics, HeartbeatMarker, 300, 300)
    yield MERGED
    assert (world.rows, world.progress["consistent_at"]) == ({1: 1}, None)
    world.topics.row({"id": 2, "a": 2}, at(400).text)
    whole(world.topics, 500, 400)
    yield MERGED
    assert world.rows == {2: 2}
    assert (world.progress["consistent_at"], world.progress["lacks"]) == (at(500).text, None)


@JOB.case
def test_errors_are_answered_and_the_other_loads_and_changes_are_merged(world: World) -> Runs:
    chunks, topics = world.chunks, world.topics
    chunks.ask("cut off", topics, some(1, 2, 3, 4), 100, error=ConnectionError("gone"))
    chunks.ask("impossible", topics, some(5), 100, chunk=4, error=LoadImpossibleError("no such column"))
    chunks.ask("bad", topics, [], 100, chunk=1)
    chunks.ask("other", topics, [], 100, chunk=2)
    chunks.ask("good", topics, some(30), 100, chunk=3)
    bad = topics.value("r", None, {"id": 10, "a": 1}, at(100).text)[:-3]
    chunks.has_records("bad", [(topics.key({"id": 10}), bad)])
    chunks.has_records("other", [(topics.key({"id": 20}), topics.value("r", None, {"id": 20, "a": 1}, at(101).text))])
    world.change("c", 40, 50)
    yield MERGED
    assert world.rows == {30: 1, 40: 1}
    answers = {one.window: one for one in chunks.answers()}
    assert {name: (one.retry, bool(one.error)) for name, one in answers.items()} == {
        "cut off": (True, True), "impossible": (False, True), "bad": (False, True), "other": (False, True), "good": (False, False),
    }  # fmt: skip
    assert "another version" in answers["other"].error


def test_where_the_jvm_writes_a_load_is_refused_for_good(
    spark: SparkSession, merge_settings: SinkFactory, tmp_path: Path
) -> None:
    world = World(spark, merge_settings(writer="jvm"), tmp_path / "chunks")
    world.chunks.ask("w0", world.topics, some(1), 100)
    world.change("c", 2, 50)
    world.merge()
    (answer,) = world.chunks.answers()
    assert (answer.retry, world.rows, world.chunks.reads()) == (False, {2: 1}, [])


def test_an_error_of_a_table_around_its_loads_ends_no_batch_and_the_table_is_merged_further(
    spark: SparkSession, merge_settings: SinkFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tables of one job: one fails as its loads begin, the other as they are concluded."""
    settings = merge_settings()
    worlds = {step: World(spark, settings, tmp_path / "chunks", f"{step}s") for step in ("begin", "conclude")}

    def merge() -> None:
        flush(*(world.topics for world in worlds.values()))
        worlds["begin"].chunks.merge()

    def failing_at(step: str) -> Any:
        real = getattr(LoadsOfTable, step)

        def run(loads: LoadsOfTable, *arguments: Any) -> Any:
            result = real(loads, *arguments)
            if loads._table.name.table == f"{step}s":
                raise SinkError("no room")
            return result

        return run

    for world in worlds.values():
        world.change("c", 1, 50)
    merge()
    for world in worlds.values():
        world.altered(column("b"))
        world.chunks.ask("w0", world.topics, [{"id": 2, "a": 2, "b": 2}], 100)
    with monkeypatch.context() as patched:
        for step in worlds:
            patched.setattr(LoadsOfTable, step, failing_at(step))
        merge()
    answers = {step: [(one.rows, one.retry) for one in world.chunks.answers()] for step, world in worlds.items()}
    assert answers == {"begin": [(0, True)], "conclude": [(1, False)]}
    for world in worlds.values():
        world.topics.change("u", {"id": 2, "a": 3, "b": 3}, at(200, 1).text)
        world.topics.change("d", {"id": 1, "a": 3, "b": 3}, at(201, 1).text)
    merge()
    assert {step: world.rows for step, world in worlds.items()} == {"begin": {2: 3}, "conclude": {2: 3}}


@JOB.case
def test_a_column_that_came_meanwhile_is_added_before_the_chunk_is_loaded(world: World) -> Runs:
    world.change("c", 1, 50)
    yield MERGED
    wider = world.altered(column("b", ColumnType.VARCHAR))
    world.chunks.ask("w0", world.topics, [{"id": 2, "a": 2, "b": "two"}], 100)
    yield MERGED
    assert rows(world.settings, wider) == [{"id": 1, "a": 1, "b": None}, {"id": 2, "a": 2, "b": "two"}]


@JOB.case
def test_what_is_remembered_of_loads_is_bounded_and_copies_of_markers_change_nothing(world: World) -> Runs:
    """The copies of a marker in the partitions may be read by several batches."""
    for number in range(3):
        world.chunks.ask(f"w{number}", world.topics, some(number), 100 + number, horizon=100, chunk=number)
    yield MERGED
    assert len(loads(world)["done"]) == 3
    assert len(world.chunks.answers()) == 3
    for number in range(3):
        world.chunks.ask(f"w{number}", world.topics, some(number), 100 + number, horizon=100, chunk=number)
        world.chunks.close(f"w{number}", world.topics, 200 + number, 100, chunk=number)
    marker(world.topics, HeartbeatMarker, 300, 300)
    yield MERGED
    assert world.chunks.reads() == ["w0", "w1", "w2"]
    assert loads(world) is None, "nothing is remembered of loads whose windows are closed"
    assert world.progress["lacks"] is None


def loads(world: World) -> Any:
    states = sorted(Path(world.settings.sink.service_path).rglob("*.json"), key=lambda path: path.stat().st_mtime)
    documents = [json.loads(path.read_text()) for path in states if "state" in str(path)]
    return documents[-1]["tables"][world.table.full_name].get("loads")


@pytest.fixture(scope="module")
def one_job(
    request: pytest.FixtureRequest, spark: SparkSession, shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Outcomes:
    folder, numbers = tmp_path_factory.mktemp("chunks"), count()
    worlds: list[World] = []

    def scene() -> World:
        worlds.append(World(spark, shared_settings, folder, f"items{next(numbers)}"))
        return worlds[-1]

    def merge(on_step: Step) -> None:
        flush(*(world.topics for world in worlds))
        worlds[0].chunks.merge(on_step)

    return JOB.play(request, scene, merge)
