"""Schema behaviours of a sink in the merge job, on a real broker, registry and Delta tables: what they leave is compared row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas.columns import ColumnType, TableSchema
from schemas.errors import SchemaChangeError
from schemas.markers import CompleteMarker, FloorMarker
from schemas.settings import RouteSettings, SchemaChangeSettings, Settings, TransformSettings
from spark_jobs.merge.target_batch import TargetBatch
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    ORDERS,
    Crash,
    amounts,
    at,
    column,
    crash,
    flush,
    marker,
    merge_all,
    progress,
    quarantined,
    rows,
    topics_of,
)
from tests.merge.lake import table as table_of

BIG, TEXT = ColumnType.BIGINT, ColumnType.VARCHAR


def with_changes(settings: Settings, behaviour: str, **more: Any) -> Settings:
    changes = SchemaChangeSettings(behaviour=behaviour, **more)  # type: ignore[arg-type]
    return replace(settings, sinks=(replace(settings.sink, schema_changes=changes),))


def kinds(settings: Settings, database: str, name: str) -> dict[str, str]:
    fields = DeltaTable(settings.sink.table_path(database, name)).schema().fields
    return {field.name: str(field.type) for field in fields if field.name != "_tm_position"}


def test_evolve_follows_the_source_and_a_crash_after_a_drop_changes_nothing(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_changes(merge_settings(), "evolve")
    before = table_of("drift", column("n", BIG), column("gone"), column("stays"))
    without = table_of("drift", column("n"), column("stays"))
    again = table_of("drift", column("n"), column("stays"), column("gone", TEXT, nullable=False, default="x"))
    topics = topics_of(settings, before)
    for number in (1, 2):
        topics.change("c", {"id": number, "n": number, "gone": 7, "stays": 5}, at(100 + number, 1).text, number % 2)
    flush(topics)
    merge_all(spark, settings)

    topics.change("c", {"id": 3, "n": 3, "gone": 8, "stays": 5}, at(150, 1).text, 1)
    topics.alter(without)
    topics.change("u", {"id": 1, "n": 10, "stays": 6}, at(200, 1).text)
    flush(topics)
    with monkeypatch.context() as patched:
        patched.setattr(TargetBatch, "drop", crash)
        with pytest.raises(Crash):
            merge_all(spark, settings)
    with pytest.raises(Crash):  # after the drop, before the state is saved
        merge_all(spark, settings, crash)
    merge_all(spark, settings)
    expected = [{"id": 1, "n": 10, "stays": 6}, {"id": 2, "n": 2, "stays": 5}, {"id": 3, "n": 3, "stays": 5}]
    assert rows(settings, without) == expected
    assert kinds(settings, "shop", "drift")["n"] == 'PrimitiveType("integer")', "every value fits, so the column is as the source's"

    # A record of the old schema comes late; then the column comes back with another type and a default.
    topics.alter(before)
    topics.change("c", {"id": 4, "n": 2**40, "gone": 9, "stays": 5}, at(160, 1).text, 1)
    topics.alter(again)
    topics.change("c", {"id": 5, "n": 5, "stays": 5, "gone": "y"}, at(300, 1).text)
    flush(topics)
    merge_all(spark, settings)
    late = {"id": 4, "n": 2**40, "stays": 5}
    found = rows(settings, again)
    assert [{name: row[name] for name in ("id", "n", "stays")} for row in found] == [
        *expected, late, {"id": 5, "n": 5, "stays": 5}
    ], "a value that does not fit keeps the column wide"  # fmt: skip
    assert [row["gone"] for row in found if row["id"] != 4] == ["x", "x", "x", "y"]
    assert not Path(settings.sink.service_path, "quarantine").exists(), "nothing goes to quarantine"


def test_exception_ends_the_sink_before_it_writes_the_first_row_of_a_new_schema(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    plain = merge_settings()
    strict = with_changes(plain, "exception")
    before, after = table_of("strict", column("a"), column("b")), table_of("strict", column("a", BIG), column("c"))
    topics = topics_of(plain, before)
    topics.change("c", {"id": 1, "a": 1, "b": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, strict)
    topics.change("c", {"id": 2, "a": 2, "b": 2}, at(200, 1).text)
    topics.alter(after)
    topics.change("c", {"id": 3, "a": 2**40, "c": 3}, at(300, 1).text)
    flush(topics)
    for _ in range(2):
        with pytest.raises(SchemaChangeError, match=r"shop\.strict has changed .*column a changed its type from int to bigint"):
            merge_all(spark, strict)
        assert rows(strict, before) == [{"id": 1, "a": 1, "b": 1}]
    merge_all(spark, plain)
    assert rows(plain, after) == [
        {"id": 1, "a": 1, "b": 1, "c": None},
        {"id": 2, "a": 2, "b": 2, "c": None},
        {"id": 3, "a": 2**40, "b": None, "c": 3},
    ]
    merge_all(spark, strict)
    marker(topics, FloorMarker, 400, reason="emptied", cause="truncate")
    flush(topics)
    with pytest.raises(SchemaChangeError, match="the table was truncated"):
        merge_all(spark, strict)
    assert len(rows(strict, after)) == 3


def test_ignore_keeps_the_columns_and_quarantines_what_does_not_fit(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = with_changes(merge_settings(), "ignore")
    before = table_of("fixed", column("n"), column("text", TEXT), column("gone"))
    after = table_of("fixed", column("n", BIG), column("text", ColumnType.VARBINARY), column("new", TEXT))
    topics = topics_of(settings, before)
    topics.change("c", {"id": 1, "n": 1, "text": "a", "gone": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    topics.alter(after)
    topics.change("c", {"id": 2, "n": 2**40, "text": b"b", "new": "x"}, at(200, 1).text)
    topics.change("c", {"id": 3, "n": 3, "text": b"\xff", "new": "x"}, at(210, 1).text)
    topics.change("c", {"id": 4, "n": -4, "text": b"d", "new": "x"}, at(220, 1).text)
    topics.change("c", {"id": 5, "n": None, "text": None, "new": None}, at(230, 1).text)
    flush(topics)
    merge_all(spark, settings)
    expected = [
        {"id": 1, "n": 1, "text": "a", "gone": 1},
        {"id": 4, "n": -4, "text": "d", "gone": None},
        {"id": 5, "n": None, "text": None, "gone": None},
    ]
    assert rows(settings, before) == expected
    bad = [(offset, reason.split()[-2:]) for _, _, offset, reason in quarantined(settings)]
    assert bad == [(1, ["n", "int"]), (2, ["text", "string"])]
    assert progress(settings, before)["quarantined"] == 2
    topics.change("c", {"id": 6, "n": 6, "text": b"f", "new": "x"}, at(240, 1).text)
    flush(topics)
    with pytest.raises(SchemaChangeError, match=r"shop\.fixed has rows without new, .*: tidemark rebuild shop\.fixed"):
        merge_all(spark, with_changes(settings, "lenient"))


@pytest.mark.parametrize("behaviour", ["lenient", pytest.param("evolve", marks=pytest.mark.slow)])
def test_rows_stay_where_truncate_is_left_out_and_later_snapshots_take_none_of_them(
    behaviour: str, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = with_changes(merge_settings(), behaviour, exclude=("truncate.table", "drop"))
    topics = topics_of(settings, ORDERS)
    for number, key in enumerate("abc"):
        topics.change("c", {"id": key, "amount": number}, at(100 + number, 1).text)
    flush(topics)
    merge_all(spark, settings)

    marker(topics, FloorMarker, 200, reason="emptied", empty=True, cause="truncate")
    topics.change("c", {"id": "late", "amount": 9}, at(150, 1).text, 1)  # of before, from another partition
    topics.change("c", {"id": "a", "amount": 10}, at(300, 1).text)
    topics.change("c", {"id": "swept", "amount": 11}, at(310, 1).text)
    flush(topics)
    merge_all(spark, settings)
    kept = {"b": 1, "c": 2, "late": 9}
    assert amounts(settings) == kept | {"a": 10, "swept": 11}

    topics.row({"id": "a", "amount": 10}, at(350).text)
    marker(topics, CompleteMarker, 400, 350, request="again", first_bound=at(350), whole_table=True, rows=1)
    flush(topics)
    with pytest.raises(Crash):
        merge_all(spark, settings, crash)
    merge_all(spark, settings)
    assert amounts(settings) == kept | {"a": 10}
    assert progress(settings)["kept"] == at(200, 1).text


def shards_of(settings: Settings, columns: tuple[Any, ...]) -> list[Any]:
    return [topics_of(settings, replace(table_of("orders", *columns), database=database)) for database in ("s1", "s2")]


def test_a_column_of_a_shared_target_goes_when_no_table_has_it_any_more(spark: SparkSession, merge_settings: SinkFactory) -> None:
    plain = with_changes(merge_settings(), "evolve")
    into_one = RouteSettings(tables=r"s\d\.orders", into="ods.orders")
    settings = replace(plain, sinks=(replace(plain.sink, routes=(into_one,)),))
    one, two = shards_of(settings, (column("a"), column("b")))
    target = replace(table_of("orders"), database="ods")

    def found() -> dict[int, dict[str, Any]]:
        return {row.pop("id"): {name: value for name, value in row.items() if name != "_tm_source"} for row in rows(settings, target)}

    one.change("c", {"id": 1, "a": 1, "b": 1}, at(100, 1).text)
    two.change("c", {"id": 2, "a": 2, "b": 2}, at(100, 1).text)
    flush(one, two)
    merge_all(spark, settings)

    one.alter(replace(table_of("orders", column("a")), database="s1"))
    one.change("c", {"id": 3, "a": 3}, at(200, 1).text)
    flush(one)
    with pytest.raises(Crash):
        merge_all(spark, settings, crash)
    merge_all(spark, settings)
    assert found() == {1: {"a": 1, "b": None}, 2: {"a": 2, "b": 2}, 3: {"a": 3, "b": None}}

    two.alter(replace(table_of("orders", column("a")), database="s2"))
    two.change("u", {"id": 2, "a": 20}, at(200, 1).text)
    flush(two)
    merge_all(spark, settings)
    assert found() == {1: {"a": 1}, 2: {"a": 20}, 3: {"a": 3}}


@pytest.mark.slow
def test_ignore_judges_the_values_of_a_shared_target_and_of_expressions(spark: SparkSession, merge_settings: SinkFactory) -> None:
    plain = with_changes(merge_settings(), "ignore")
    into_one = RouteSettings(tables=r"s\d\.orders", into="ods.orders")
    twice = TransformSettings(tables=r".*", select=("id", "a", "a * 2 AS twice", "b", "__table__ AS origin"))
    settings = replace(plain, sinks=(replace(plain.sink, routes=(into_one,), transforms=(twice,)),))
    one, two = shards_of(settings, (column("a"), column("b")))
    target = replace(table_of("orders"), database="ods")
    one.change("c", {"id": 1, "a": 1, "b": 1}, at(100, 1).text)
    two.change("c", {"id": 2, "a": 2, "b": 2}, at(100, 1).text)
    flush(one, two)
    merge_all(spark, settings)
    one.alter(replace(table_of("orders", column("a", BIG), column("b")), database="s1"))
    for number, value in ((3, 3), (4, 2**40)):
        one.change("c", {"id": number, "a": value, "b": 0}, at(100 * number, 1).text)
    flush(one)
    merge_all(spark, settings)
    assert [(row["id"], row["a"], row["twice"], row["b"]) for row in rows(settings, target)] == [(1, 1, 2, 1), (2, 2, 4, 2), (3, 3, 6, 0)]
    ((_, _, _, reason),) = quarantined(settings)
    assert "the value of a, twice does not fit" in reason


@pytest.mark.slow
def test_evolve_knows_todays_columns_also_where_schemas_come_back_as_they_were(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """The registry keeps their old rank: with the column, without, with, without; the last two in one batch once."""
    settings = with_changes(merge_settings(), "evolve")
    with_it, without = table_of("revenant", column("a"), column("c")), table_of("revenant", column("a"))
    topics = topics_of(settings, without)

    def written(schema: TableSchema, number: int) -> None:
        topics.alter(schema)
        topics.change("c", {"id": number, "a": number} | ({"c": number} if schema is with_it else {}), at(100 * number, 1).text)

    def names_after(*steps: tuple[TableSchema, int]) -> list[str]:
        for step in steps:
            written(*step)
        flush(topics)
        merge_all(spark, settings)
        return sorted(kinds(settings, "shop", "revenant"))

    short, long = ["a", "id"], ["a", "c", "id"]
    assert names_after((without, 1)) == short
    assert names_after((with_it, 2)) == long
    assert names_after((without, 3)) == short
    assert names_after((without, 4)) == short, "a batch of today's schema alone adds nothing"
    assert names_after((with_it, 5)) == long
    assert names_after((with_it, 6)) == long
    assert names_after((without, 7), (with_it, 8), (without, 9)) == short
    assert names_after((without, 10)) == short
    assert names_after((with_it, 11), (without, 12)) == short
    assert names_after((without, 13)) == short
    assert [(row["id"], row["a"]) for row in rows(settings, without)] == [(number, number) for number in range(1, 14)]
    assert not Path(settings.sink.service_path, "quarantine").exists()
