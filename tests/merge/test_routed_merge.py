"""Routes and transforms in the merge job, on a real broker, registry and Delta tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import ConfigError, SchemaMismatchError, SinkError
from schemas.identity import SourceId, SourceTable
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, LoadMarker
from schemas.settings import RouteSettings, Settings, TransformSettings
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.target_rebuild import rebuild
from spark_jobs.merge import batch, mirror_batch
from spark_jobs.merge.mirror_batch import MirrorBatch
from spark_jobs.merge.table_input import TableInput
from tests.merge.conftest import SinkFactory
from tests.merge.history import History, Shape
from tests.merge.lake import ORDERS, Crash, at, column, flush, marker, merge_all, progress
from tests.merge.shared_job import MERGED, Outcomes, Runs, SharedJob, Tables
from tests.merge.test_spark_model import Dying, Played, merge_through_crashes
from tests.merge.topics import TableTopics

JOB = SharedJob()
SHARDS = (replace(ORDERS, database="s1"), replace(ORDERS, database="s2"))
PEOPLE = TableSchema(
    "crm",
    "people",
    (
        Column("id", ColumnType.INT, nullable=False),
        Column("email", ColumnType.VARCHAR, nullable=True, length=50, charset="utf8mb4"),
        Column("state", ColumnType.VARCHAR, nullable=True, length=10, charset="utf8mb4"),
    ),
    ("id",),
)
INTO_ONE = RouteSettings(tables=r"s\d\.orders", into="ods.orders")


def routed(
    settings: Settings, *routes: RouteSettings, transforms: tuple[TransformSettings, ...] = (), **more: Any
) -> Settings:
    return replace(settings, sinks=(replace(settings.sink, routes=routes, transforms=transforms, **more),))


def topics_of(settings: Settings, table: TableSchema) -> TableTopics:
    return TableTopics(settings.kafka.bootstrap_servers, settings.format.registry or "", settings.name, table, partitions=2)


def rows(settings: Settings, target: str) -> list[dict[str, Any]]:
    """The rows of a target without the position, ordered by their values, the source table first."""
    path = settings.sink.table_path(*target.split("."))
    found = DeltaTable(path).to_pyarrow_table().drop_columns("_tm_position").to_pylist()
    return sorted(found, key=lambda row: [str(row[name]) for name in sorted(row)])


def begun_shards(settings: Settings) -> tuple[TableTopics, TableTopics]:
    """The topics of both shards, each with a row."""
    one, two = (topics_of(settings, table) for table in SHARDS)
    for number, topics in enumerate((one, two)):
        topics.change("c", {"id": "a", "amount": number}, at(100, 1).text)
        topics.flush()
    return one, two


def test_a_load_of_a_routed_table_waits_where_there_is_no_source(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = routed(merge_settings(), INTO_ONE)
    one, _ = begun_shards(settings)
    marker(one, LoadMarker, 200, 100, window="w", request="r", chunk=0, low=at(100), query="SELECT 1", server="u", value_schema=one.value_id)
    one.flush()
    MergeJob(settings, spark=spark, open_source=lambda _: None).run(until_caught_up=True)
    assert {row["id"] for row in rows(settings, "ods.orders")} == {"a"}


def grades(settings: Settings) -> dict[tuple[str, str], int | None]:
    """The column `grade` of the shards' rows, by table and id."""
    return {(row["_tm_source"].partition(":")[2], row["id"]): row["grade"] for row in rows(settings, "ods.orders")}


def die_without_the_second(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a batch of the shards without the second one, as if it could not be read, up to a crash after its last write."""
    absent, whole, read = SourceTable.of(SourceId(settings.name), "s2", "orders"), MirrorBatch.run, batch.inputs_of

    def without_it(one: TableInput) -> TableInput:
        return replace(one, slices=(), unreadable="it cannot be read") if one.table == absent else one

    def dies(one: MirrorBatch) -> Any:
        whole(one)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(batch, "inputs_of", lambda *arguments: [without_it(one) for one in read(*arguments)])
        patched.setattr(MirrorBatch, "run", dies)
        with pytest.raises(Crash):
            merge_all(spark, settings)


@JOB.case
def test_shards_go_into_one_table_by_their_identity(tables: Tables) -> Runs:
    settings = tables.settings
    one, two = (tables.topics_of(table) for table in SHARDS)
    source = {name: f"{settings.name}:{name}.orders" for name in ("s1", "s2")}
    one.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    one.change("c", {"id": "b", "amount": 2}, at(200, 1).text)
    yield MERGED
    assert rows(settings, "ods.orders") == [{"id": "a", "amount": 1}, {"id": "b", "amount": 2}], "one table alone: its rows as they are"

    two.change("c", {"id": "a", "amount": 10}, at(150, 1).text)
    two.change("c", {"id": "c", "amount": 30}, at(160, 1).text)
    yield MERGED
    assert rows(settings, "ods.orders") == [
        {"id": "a", "amount": 1, "_tm_source": source["s1"]},
        {"id": "b", "amount": 2, "_tm_source": source["s1"]},
        {"id": "a", "amount": 10, "_tm_source": source["s2"]},
        {"id": "c", "amount": 30, "_tm_source": source["s2"]},
    ]

    one.change("d", {"id": "a", "amount": 1}, at(300, 1).text)  # moved: inserted there before it is deleted here
    marker(two, FloorMarker, 250, reason="truncate")
    two.change("c", {"id": "d", "amount": 40}, at(350, 1).text)
    yield MERGED
    assert rows(settings, "ods.orders") == [
        {"id": "b", "amount": 2, "_tm_source": source["s1"]},
        {"id": "d", "amount": 40, "_tm_source": source["s2"]},
    ], "a truncate of one shard takes its rows alone"


@JOB.case
def test_rows_that_match_are_there_changed_and_leave_when_they_do_not(tables: Tables) -> Runs:
    settings, topics = tables.settings, tables.topics_of(PEOPLE)

    def change(op: str, number: int, state: str | None, offset: int) -> None:
        topics.change(op, {"id": number, "email": f"{number}@x", "state": state}, at(offset, 1).text)

    change("c", 1, "open", 100)
    change("c", 2, "new", 200)
    change("c", 3, None, 300)
    yield MERGED
    assert rows(settings, "crm.open") == [{"id": 1, "mail": "1@X", "name": "people"}]
    assert [row["id"] for row in rows(settings, "crm.everyone")] == [1, 2, 3]

    change("u", 1, "done", 400)
    change("u", 2, "open", 500)
    change("d", 3, None, 600)
    yield MERGED
    assert [row["id"] for row in rows(settings, "crm.open")] == [2]
    assert {row["id"]: row["state"] for row in rows(settings, "crm.everyone")} == {1: "done", 2: "open"}


@JOB.case
def test_a_table_whose_schema_came_back_is_merged_by_it_after_a_restart(tables: Tables) -> Runs:
    settings, topics = tables.settings, tables.topics_of(ORDERS)
    topics.register()
    topics.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    yield MERGED
    topics.alter(replace(ORDERS, columns=ORDERS.columns[:1]))  # the column is dropped, and added again as it was
    topics.alter(ORDERS)
    topics.change("c", {"id": "b", "amount": 2}, at(200, 1).text)
    yield MERGED
    marker(topics, HeartbeatMarker, 300)
    yield MERGED
    assert {row["id"]: row["twice"] for row in rows(settings, "shop.orders")} == {"a": 2, "b": 4}
    assert progress(settings)["set_aside"] is None


@pytest.mark.parametrize("writer", ["auto", pytest.param("jvm", marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_row_that_stopped_matching_does_not_come_back_with_a_late_snapshot_row(
    is_remembered: bool, writer: str, spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot read it as open at 100, a change closed it at 150; the snapshot's row is read one batch later."""
    transform = TransformSettings(tables="crm.people", where="state = 'open'")
    settings = routed(merge_settings(writer), transforms=(transform,))
    if not is_remembered:
        monkeypatch.setattr(mirror_batch, "_leaves_rows_out", lambda _: False)  # no tombstone for it: mutants of both ways
        monkeypatch.setattr(mirror_batch, "CHANGED", mirror_batch.DELETED)
    topics = topics_of(settings, PEOPLE)
    topics.change("u", {"id": 7, "email": "7", "state": "closed"}, at(150, 1).text)
    topics.change("c", {"id": 8, "email": "8", "state": "open"}, at(160, 1).text)
    topics.flush()
    merge_all(spark, settings)
    topics.row({"id": 7, "email": "7", "state": "open"}, at(100).text)
    topics.flush()
    merge_all(spark, settings)
    assert [row["id"] for row in rows(settings, "crm.people")] == ([8] if is_remembered else [7, 8])


def test_a_new_column_is_filled_in_the_rows_of_its_own_table(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = routed(merge_settings(), INTO_ONE)
    one, two = begun_shards(settings)
    merge_all(spark, settings)
    one.alter(replace(SHARDS[0], columns=(*ORDERS.columns, column("grade", nullable=False, default="5"))))
    one.change("c", {"id": "b", "amount": 1, "grade": 9}, at(200, 1).text)
    one.flush()
    dying = Dying(3)
    merge_through_crashes(spark, settings, dying)
    assert grades(settings) == {("s1.orders", "a"): 5, ("s1.orders", "b"): 9, ("s2.orders", "a"): None}
    two.alter(replace(SHARDS[1], columns=(*ORDERS.columns, column("grade", nullable=False, default="7"))))
    two.change("c", {"id": "b", "amount": 1, "grade": 8}, at(300, 1).text)
    two.flush()
    merge_all(spark, settings)
    assert grades(settings) == {("s1.orders", "a"): 5, ("s1.orders", "b"): 9, ("s2.orders", "a"): 7, ("s2.orders", "b"): 8}


def test_a_new_column_is_not_filled_again_where_its_batch_has_failed_half_way(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = routed(merge_settings(), INTO_ONE)
    one, two = begun_shards(settings)
    merge_all(spark, settings)
    one.alter(replace(SHARDS[0], columns=(*ORDERS.columns, column("grade", nullable=False, default="5"))))
    one.change("c", {"id": "b", "amount": 1, "grade": 9}, at(200, 1).text)
    one.flush()

    def fails(*_arguments: Any, **_named: Any) -> None:
        message = "a later step"
        raise SinkError(message)

    with monkeypatch.context() as patched:
        patched.setattr(MirrorBatch, "_delete_what_is_gone", fails)
        merge_all(spark, settings)
    assert progress(settings, SHARDS[0])["set_aside"]["reason"] == "a later step"
    two.change("c", {"id": "z", "amount": 3}, at(300, 1).text)  # tables that are set aside are taken up by a batch
    two.flush()
    merge_all(spark, settings)
    assert progress(settings, SHARDS[0])["set_aside"] is None
    assert grades(settings) == {("s1.orders", "a"): 5, ("s1.orders", "b"): 9, ("s2.orders", "a"): None, ("s2.orders", "z"): None}


def test_a_new_column_is_filled_once_where_its_batch_is_run_again_with_one_more_table(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the batch put before a crash keeps its value, though the fill of a second table is still to be done."""
    settings = routed(merge_settings(), INTO_ONE)
    shards = begun_shards(settings)
    merge_all(spark, settings)
    for number, topics in enumerate(shards):
        grade = column("grade", nullable=False, default=str(5 + number))
        topics.alter(replace(SHARDS[number], columns=(*ORDERS.columns, grade)))
        topics.change("c", {"id": "b", "amount": 1, "grade": 9}, at(200, 1).text)
        topics.flush()
    die_without_the_second(spark, settings, monkeypatch)
    merge_all(spark, settings)
    assert grades(settings) == {("s1.orders", "a"): 5, ("s1.orders", "b"): 9, ("s2.orders", "a"): 6, ("s2.orders", "b"): 9}


def test_a_table_that_cannot_be_merged_holds_up_no_other_of_its_target(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put without it is put again with it, when a batch is run again after a crash."""
    settings = routed(merge_settings(), INTO_ONE)
    begun_shards(settings)
    die_without_the_second(spark, settings, monkeypatch)
    assert len(rows(settings, "ods.orders")) == 1
    merge_all(spark, settings)
    assert sorted(row["amount"] for row in rows(settings, "ods.orders")) == [0, 1]


def test_a_changed_plan_and_a_wrong_one_are_refused_before_anything_is_written(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    topics = topics_of(plain, PEOPLE)
    topics.register()
    topics.change("c", {"id": 1, "email": "1", "state": "open"}, at(100, 1).text)
    topics.flush()

    def where(text: str) -> Settings:
        return routed(plain, transforms=(TransformSettings(tables="crm.people", where=text),))

    with pytest.raises(ConfigError, match=r"crm.people: lake: transforms.0.where: crm.people has no column 'stat'; did you mean 'state'"):
        merge_all(spark, where("stat = 'open'"))
    merge_all(spark, where("state = 'open'"))
    assert len(rows(plain, "crm.people")) == 1
    with pytest.raises(SinkError, match=r"crm.people was built of crm.people by another rule"):
        merge_all(spark, where("state = 'shut'"))
    with pytest.raises(SinkError, match=r"crm.people was built of crm.people by another rule"):
        merge_all(spark, plain)
    merge_all(spark, where("state = 'open'"))


def test_a_table_with_a_column_of_ours_holds_up_neither_the_others_of_its_target_nor_itself_once_it_is_gone(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = routed(merge_settings(), INTO_ONE)
    one, two = begun_shards(settings)
    one.register()
    two.register()
    ours = replace(two.table, columns=(*two.table.columns, Column(POSITION, ColumnType.INT, nullable=True)))
    shard = two.table
    two.alter(ours)
    two.change("c", {"id": "x", "amount": 5, POSITION: 7}, at(300, 1).text)
    one.change("c", {"id": "y", "amount": 6}, at(300, 1).text)
    flush(one, two)
    merge_all(spark, settings)
    assert 6 in {row["amount"] for row in rows(settings, "ods.orders")}
    assert progress(settings, SHARDS[0])["set_aside"] is None
    assert "its column _tm_position has the name of the one column" in progress(settings, SHARDS[1])["set_aside"]["reason"]
    two.alter(shard)
    two.change("c", {"id": "z", "amount": 8}, at(400, 1).text)
    flush(two)
    merge_all(spark, settings)
    assert {5, 6, 8} <= {row["amount"] for row in rows(settings, "ods.orders")}
    assert progress(settings, SHARDS[1])["set_aside"] is None


@pytest.mark.parametrize(
    ("route", "error", "reason"),
    [
        (INTO_ONE, SchemaMismatchError, "its column _tm_position has the name of the one column"),
        (RouteSettings(tables=r"s(1)?2?\.orders", into="$1.orders"), SinkError, r"gives no name for s2\.orders"),
    ],
)
def test_a_routed_table_that_cannot_be_merged_ends_a_job_that_stops_on_errors(
    route: RouteSettings, error: type[Exception], reason: str, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """A column that cannot be planned, and a table whose target has no name: the check at the start does not know the tables yet."""
    settings = replace(routed(merge_settings(), route), on_table_error="stop")
    _, two = begun_shards(settings)
    if route is INTO_ONE:
        two.alter(replace(two.table, columns=(*two.table.columns, Column(POSITION, ColumnType.INT, nullable=True))))
        two.change("c", {"id": "x", "amount": 5, POSITION: 7}, at(300, 1).text)
        flush(two)
    with pytest.raises(error, match=reason) as caught:
        merge_all(spark, settings)
    assert type(caught.value) is error


def test_a_table_that_is_left_out_is_not_merged(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = routed(merge_settings(), INTO_ONE, unrouted="leave_out")
    one, people = topics_of(settings, SHARDS[0]), topics_of(settings, PEOPLE)
    one.change("c", {"id": "a", "amount": 1}, at(100, 1).text)
    people.change("c", {"id": 1, "email": "1", "state": "open"}, at(100, 1).text)
    one.flush()
    people.flush()
    merge_all(spark, settings)
    assert len(rows(settings, "ods.orders")) == 1
    assert not DeltaTable.is_deltatable(settings.sink.table_path("crm", "people"))
    assert progress(settings, SHARDS[0])["rows"] == 1
    assert progress(settings, PEOPLE)["skipped"] == "no route takes it into this sink"

    routed_later = routed(settings, INTO_ONE, unrouted="keep")  # what was read of it is not in Spark's next batch
    with pytest.raises(SinkError, match=r"crm.people now goes into crm.people, and was read before: that target would lack its rows"):
        merge_all(spark, routed_later)
    assert [table.name.plain for table in rebuild(routed_later, ["crm.people"], spark)] == ["crm.people"]
    people.change("c", {"id": 2, "email": "2", "state": "open"}, at(200, 1).text)
    heartbeat(people, 210)
    for number in (1, 2):
        people.row({"id": number, "email": str(number), "state": "open"}, at(300).text)
    complete(people, 300, 310)
    people.flush()
    merge_all(spark, routed_later)
    assert [row["id"] for row in rows(settings, "crm.people")] == [1, 2]
    found = progress(settings, PEOPLE)
    assert (found["consistent_at"], found["skipped"], found["incomplete"]) == (at(310).text, None, None)


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow), pytest.param(13, marks=pytest.mark.slow)])
def test_histories_of_shards_end_in_the_image_of_the_source(seed: int, spark: SparkSession, merge_settings: SinkFactory) -> None:
    """Two shards filtered into one target, one of them whole into another; the job dies at random steps."""
    columns = ("id", "amount", "amount * 10 AS more")
    transforms = (TransformSettings(tables=r"s\d\..*", into=r"ods\..*", select=columns, where="amount % 3 <> 1"),)
    settings = routed(
        merge_settings(max_batch_records=500), INTO_ONE, RouteSettings(tables=r"s1\.(.*)", into="whole.$1"), transforms=transforms
    )
    worlds = [History(seed * 10 + number, Shape(keys=30, partitions=2, steps=170, truncates=0.02)).run() for number in range(2)]
    played = [
        Played(world, topics_of(settings, table), seed + number).produce_pieces(most=90)
        for number, (world, table) in enumerate(zip(worlds, SHARDS, strict=True))
    ]
    dying = Dying(seed)
    for _ in range(2):
        while [one for one in played if next(one, "end") != "end"]:
            merge_through_crashes(spark, settings, dying)
    merge_all(spark, settings)
    counts: Counter[str] = sum((world.counts for world in worlds), Counter())
    found = {(row["_tm_source"].partition(":")[2][:2], row["id"]): row["more"] for row in rows(settings, "ods.orders")}
    wanted = {
        (name, key): amount * 10
        for name, world in zip(("s1", "s2"), worlds, strict=True)
        for key, amount in world.source.items()
        if amount % 3 != 1
    }
    assert found == wanted
    assert {row["id"]: row["amount"] for row in rows(settings, "whole.orders")} == worlds[0].source
    assert dying.deaths > 0
    for happening in ("truncates", "deletes in windows", "late rows"):
        assert counts[happening] > 0, counts


def complete(topics: TableTopics, first_bound: int, end: int) -> None:
    """A snapshot of the whole table is complete."""
    common = {"table": topics.table.full_name, "partitions": topics.partitions, "change_offsets": topics.change_offsets}
    position = {"position": at(end), "horizon": at(end)}
    topics.marker(CompleteMarker(request="r", first_bound=at(first_bound), whole_table=True, rows=0, **position, **common))


def heartbeat(topics: TableTopics, position: int) -> None:
    """A heartbeat."""
    common = {"table": topics.table.full_name, "partitions": topics.partitions, "change_offsets": topics.change_offsets}
    topics.marker(HeartbeatMarker(position=at(position), horizon=at(position), **common))


def test_a_target_is_made_again_by_another_rule(spark: SparkSession, merge_settings: SinkFactory) -> None:
    """It has the rows that came later at once, and is complete with a snapshot that began after; the table's other target stays."""
    plain = merge_settings()
    topics = topics_of(plain, PEOPLE)

    def by(where: str) -> Settings:
        routes = (RouteSettings(tables="crm.people", into="a.some"), RouteSettings(tables="crm.people", into="a.whole"))
        return routed(plain, *routes, transforms=(TransformSettings(tables="crm.people", into="a.some", where=where),))

    for number, state in enumerate(("open", "shut", "open"), start=1):
        topics.change("c", {"id": number, "email": str(number), "state": state}, at(100 + number, 1).text)
    complete(topics, 90, 110)
    topics.flush()
    merge_all(spark, by("state = 'open'"))
    assert [row["id"] for row in rows(plain, "a.some")] == [1, 3]
    assert progress(plain, PEOPLE)["consistent_at"] == at(110).text

    changed = by("state = 'shut'")
    with pytest.raises(SinkError, match=r"a.some was built of crm.people by another rule: .* tidemark rebuild --sink lake a.some"):
        merge_all(spark, changed)
    with pytest.raises(ConfigError, match=r"there is no target 'a.none'; there are a.some, a.whole"):
        rebuild(changed, ["a.none"], spark)
    assert [table.name.plain for table in rebuild(changed, ["a.some"], spark)] == ["crm.people"]
    assert progress(plain, PEOPLE)["consistent_at"] is None
    topics.change("u", {"id": 3, "email": "3", "state": "shut"}, at(200, 1).text)
    heartbeat(topics, 210)
    complete(topics, 90, 220)  # of a snapshot that began before the target was emptied: it says nothing of it
    topics.flush()
    merge_all(spark, changed)
    assert [row["id"] for row in rows(plain, "a.some")] == [3]
    assert progress(plain, PEOPLE)["consistent_at"] is None
    assert "tidemark signal execute-snapshot" in progress(plain, PEOPLE)["lacks"]
    for number, state in enumerate(("open", "shut", "shut"), start=1):
        topics.row({"id": number, "email": str(number), "state": state}, at(300).text)
    complete(topics, 300, 310)
    topics.flush()
    merge_all(spark, changed)
    assert [row["id"] for row in rows(plain, "a.some")] == [2, 3]
    assert [row["id"] for row in rows(plain, "a.whole")] == [1, 2, 3]
    assert progress(plain, PEOPLE)["consistent_at"] == at(310).text


@pytest.fixture(scope="module")
def one_job(request: pytest.FixtureRequest, spark: SparkSession, shared_settings: Settings) -> Outcomes:
    select = ("id", "upper(email) AS mail", "__table__ AS name")
    settings = routed(
        shared_settings,
        INTO_ONE,
        RouteSettings(tables=r"crm\.people", into="crm.open"),
        RouteSettings(tables=r"crm\.people", into="crm.everyone"),
        transforms=(
            TransformSettings(tables="crm.people", into="crm.open", select=select, where="state = 'open'"),
            TransformSettings(tables=r"shop\.orders", select=("id", "amount * 2 AS twice")),
        ),
    )
    return JOB.play_tables(request, spark, settings)
