"""Columns that come, change and go at the source, and the columns of the Delta table."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from schemas.columns import Column, ColumnType, TableSchema
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.merge.tables_by_workers import TablesByWorkers
from spark_jobs.sinks.contract import Evolution
from spark_jobs.sinks.delta import writes as merge
from spark_jobs.sinks.delta.alter import apply
from spark_jobs.sinks.stamp import Stamp
from tests.merge.conftest import SinkFactory
from tests.merge.lake import (
    Crash,
    at,
    column,
    crash,
    flush,
    marker,
    merge_all,
    quarantined,
    rows,
    table,
    topics_of,
)
from tests.merge.shared_job import MERGED, PLAIN, Runs, Tables
from tidemark.verify.rules import rule

NTZ = T.TimestampNTZType()
DAY = datetime(2024, 2, 29)


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (Evolution((("c", NTZ, None),), ()), {"c": None}),
        (Evolution((("c", NTZ, None), ("n", T.IntegerType(), 7)), ()), {"c": None, "n": 7}),
        (Evolution((("c", NTZ, DAY),), ()), {"c": DAY}),
        (Evolution((), (("d", NTZ),)), {"d": DAY}),
        (Evolution((("c", NTZ, None),), (("i", T.LongType()),)), {"i": 1, "c": None}),
        (Evolution((("c", T.TimestampType(), None),), ()), {"c": None}),
    ],
    ids=["added", "added beside a default", "added with a default", "DATE widened", "added beside a widened one", "TIMESTAMP"],
)
@pytest.mark.parametrize("maker", ["this version", "an older version"])
def test_a_table_that_had_no_datetime_takes_one(
    maker: str, change: Evolution, row: dict[str, object], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if maker == "an older version":
        properties = {name: value for name, value in merge._TABLE_PROPERTIES.items() if "feature" not in name}
        monkeypatch.setattr(merge, "_TABLE_PROPERTIES", properties)
    path = str(tmp_path / "table")
    first = spark.sql("SELECT 1 AS i, DATE '2024-02-29' AS d").withColumn(POSITION, F.lit("p")).withColumn(DELETED, F.lit(False))
    merge.append(first, path, Stamp("query", 0, "shop.table", {}))

    apply(spark, path, change)

    (found,) = spark.read.format("delta").load(path).collect()
    assert {name: found[name] for name in row} == row
    read = DeltaTable(path).to_pyarrow_table()
    assert {name: read.column(name)[0].as_py() for name in row} == row, "delta-rs reads it"


@PLAIN.case
def test_added_columns_fill_old_rows_and_types_widen(tables: Tables) -> Runs:
    settings = tables.settings
    plain = table("plain", column("a"))
    altered = table(
        "plain",
        column("a", ColumnType.BIGINT),
        column("five", nullable=False, default="5"),
        column("maybe", ColumnType.VARCHAR),
        column("maybe_six", default="6"),
    )
    quiet, quiet_altered = table("quiet", column("a")), table("quiet", column("a"), column("n", default="7"))
    topics, quiet_topics = tables.topics_of(plain), tables.topics_of(quiet)
    for number in range(3):
        topics.change("c", {"id": number, "a": number}, at(100 + number, 1).text, number % 2)
        quiet_topics.change("c", {"id": number, "a": number}, at(100 + number, 1).text)
    yield MERGED

    # A record of the old schema comes late, after the ALTER, from the other partition; `quiet` has no new record.
    topics.change("c", {"id": 3, "a": 3}, at(200, 1).text)
    topics.alter(altered)
    topics.change("u", {"id": 1, "a": 2**40, "five": 8, "maybe": "x", "maybe_six": None}, at(300, 1).text, 1)
    quiet_topics.alter(quiet_altered)
    marker(quiet_topics, HeartbeatMarker, 400)
    yield MERGED
    old = {"five": 5, "maybe": None, "maybe_six": 6}
    assert rows(settings, plain) == [
        {"id": 0, "a": 0} | old,
        {"id": 1, "a": 2**40, "five": 8, "maybe": "x", "maybe_six": None},
        {"id": 2, "a": 2} | old,
        {"id": 3, "a": 3} | old,
    ]
    assert [row["n"] for row in rows(settings, quiet)] == [7, 7, 7]

    # Dropped at the source: the column stays, new rows have NULL there.
    topics.alter(table("plain", column("a", ColumnType.BIGINT)))
    topics.change("c", {"id": 4, "a": 4}, at(500, 1).text)
    yield MERGED
    assert rows(settings, plain)[4] == {
        "id": 4,
        "a": 4,
        "five": None,
        "maybe": None,
        "maybe_six": None,
    }


@PLAIN.case
def test_a_column_never_becomes_narrower_than_it_was(tables: Tables) -> Runs:
    """Narrower, of the other sign, dropped and added with another type, NULL to NOT NULL and back, text to bytes."""
    settings = tables.settings
    kind = ColumnType
    before = table(
        "drift",
        column("narrow", kind.BIGINT),
        replace(column("sign", kind.INT), unsigned=True),
        column("again", kind.INT),
        column("nulls", kind.INT),
        column("bytes", kind.VARCHAR),
        column("places", kind.DECIMAL),
    )
    digits = replace(before.columns[-1], precision=10, scale=4)
    before = replace(before, columns=(*before.columns[:-1], digits))
    after = table(
        "drift",
        column("narrow", kind.SMALLINT),
        column("sign", kind.INT),
        column("again", kind.VARCHAR),
        column("nulls", kind.INT, nullable=False),
        column("bytes", kind.BLOB),
        replace(column("places", kind.DECIMAL), precision=6, scale=2),
    )
    without = replace(before, columns=tuple(item for item in before.columns if item.name != "again"))
    topics = tables.topics_of(before)
    first = {"id": 1, "narrow": 2**40, "sign": 2**31, "again": 5, "nulls": None, "bytes": "ü", "places": Decimal("1.2345")}
    topics.change("c", first, at(100, 1).text)
    yield MERGED
    topics.alter(without)
    topics.alter(after)
    second = {"id": 2, "narrow": 3, "sign": -1, "again": "x", "nulls": 1, "bytes": b"\xff\0", "places": Decimal("1.25")}
    topics.change("c", second, at(200, 1).text)
    yield MERGED
    topics.alter(before)
    topics.change("c", first | {"id": 3}, at(300, 1).text)
    yield MERGED
    wide = first | {"again": "5", "bytes": "ü".encode()}
    assert rows(settings, before) == [wide, second | {"places": Decimal("1.2500")}, wide | {"id": 3}]
    assert quarantined(settings, topics) == []
    kinds = dict(tables.spark.read.format("delta").load(settings.sink.table_path("shop", "drift")).dtypes)
    assert (kinds["narrow"], kinds["sign"], kinds["places"]) == ("bigint", "bigint", "decimal(10,4)")


@PLAIN.case
def test_what_is_no_text_becomes_bytes_by_its_text(tables: Tables) -> Runs:
    """BIT(1) to BIT(8) and the like: Spark casts nothing but text to bytes; records of both kinds are read, batch by batch."""
    settings = tables.settings
    kind = ColumnType
    names = {"flags": kind.BIT, "number": kind.INT, "day": kind.DATE}
    before = table("bytes", *(replace(column(name, one), length=1 if one is kind.BIT else None) for name, one in names.items()))
    after = table("bytes", *(replace(column(name, kind.VARBINARY), length=8) for name in names))
    topics = tables.topics_of(before)
    old = {"flags": True, "number": -5, "day": 1}
    topics.change("c", {"id": 1} | old, at(100, 1).text)
    yield MERGED
    topics.alter(after)
    for number in (2, 3):
        topics.change("c", {"id": number} | dict.fromkeys(names, b"\xff"), at(100 * number, 1).text)
        yield MERGED
    topics.alter(before)
    topics.change("c", {"id": 4} | old, at(400, 1).text)
    yield MERGED
    reported = {"flags": b"true", "number": b"-5", "day": b"1970-01-02"}
    new = dict.fromkeys(names, b"\xff")
    assert rows(settings, before) == [{"id": 1} | reported, {"id": 2} | new, {"id": 3} | new, {"id": 4} | reported]
    assert quarantined(settings, topics) == []


def test_a_crash_between_new_columns_and_new_rows_fills_once(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:

    settings = merge_settings()
    topics = topics_of(settings, table("plain"))
    topics.change("c", {"id": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    altered = table("plain", column("five", nullable=False, default="5"))
    topics.alter(altered)
    topics.change("c", {"id": 0, "five": 6}, at(200, 1).text)
    flush(topics)
    with monkeypatch.context() as patched:
        patched.setattr(TablesByWorkers, "_results", crash)
        with pytest.raises(Crash):
            merge_all(spark, settings)
    assert rows(settings, altered) == [{"id": 1, "five": 5}], "columns and fill are one commit"
    merge_all(spark, settings)
    assert rows(settings, altered) == [{"id": 0, "five": 6}, {"id": 1, "five": 5}]


@dataclass(frozen=True)
class Sample:
    """A column of the source, a value as its records have it, and the value and type of the sink."""

    column: Column
    written: Any
    value: Any
    kind: str


def _of(kind: ColumnType, **more: Any) -> Column:
    return Column("c", kind, **{"nullable": True, **more})


POINT = struct.pack("<BIdd", 1, 1, 1.5, -2.0)
SAMPLES = {
    "smallint": Sample(_of(ColumnType.SMALLINT), -5, -5, "smallint"),
    "int": Sample(_of(ColumnType.INT), 70_000, 70_000, "int"),
    "bigint": Sample(_of(ColumnType.BIGINT), 2**40, 2**40, "bigint"),
    "ubigint": Sample(_of(ColumnType.BIGINT, unsigned=True), Decimal(2**64 - 1), Decimal(2**64 - 1), "decimal(20,0)"),
    "decimal": Sample(_of(ColumnType.DECIMAL, precision=10, scale=2), Decimal("-1.50"), Decimal("-1.50"), "decimal(10,2)"),
    "decimal65": Sample(_of(ColumnType.DECIMAL, precision=65, scale=1), Decimal("0.1"), "0.1", "string"),
    "float": Sample(_of(ColumnType.FLOAT), 1.5e30, struct.unpack("<f", struct.pack("<f", 1.5e30))[0], "float"),
    "double": Sample(_of(ColumnType.DOUBLE), 5e-324, 5e-324, "double"),
    "bit": Sample(_of(ColumnType.BIT, length=1), True, True, "boolean"),
    "date": Sample(_of(ColumnType.DATE), -719_162, date(1, 1, 1), "date"),
    "datetime": Sample(_of(ColumnType.DATETIME, precision=6), 1, datetime(1970, 1, 1, 0, 0, 0, 1), "timestamp_ntz"),
    "timestamp": Sample(_of(ColumnType.TIMESTAMP), "2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9), "timestamp"),
    "time": Sample(_of(ColumnType.TIME, precision=6), -1, -1, "bigint"),
    "text": Sample(_of(ColumnType.VARCHAR, length=20, charset="utf8mb4"), "ü 1", "ü 1", "string"),
    "digits": Sample(_of(ColumnType.VARCHAR, length=20, charset="utf8mb4"), "007", "007", "string"),
    "bytes": Sample(_of(ColumnType.VARBINARY, length=20), b"\xff\0", b"\xff\0", "binary"),
    "point": Sample(
        _of(ColumnType.POINT),
        {"x": 1.5, "y": -2.0, "wkb": POINT, "srid": 4326},
        {"srid": 4326, "wkb": POINT},
        "struct<srid:int,wkb:binary>",
    ),
    "vector": Sample(_of(ColumnType.VECTOR, length=2), [1.5, -0.25], [1.5, -0.25], "array<float>"),
}
Pair = tuple[str, str]

ALL = [(old, new) for old in SAMPLES for new in SAMPLES if old != new]
NAMES = list(SAMPLES)
SOME = list(zip(NAMES, [*NAMES[7:], *NAMES[:7]], strict=True))
SOME += [("bigint", "smallint"), ("decimal", "int"), ("double", "float"), ("bytes", "text")]
"""Every type once as the old one and once as the new one, of another family; then narrower ones of its own."""


def _table(pairs: list[Pair], side: int) -> TableSchema:
    """A table whose columns have the first, or the second, types of the pairs."""
    return table("retyped", *(replace(SAMPLES[pair[side]].column, name="_".join(pair)) for pair in pairs))


def _row(number: int, pairs: list[Pair], side: int) -> dict[str, Any]:
    return {"id": number} | {"_".join(pair): SAMPLES[pair[side]].written for pair in pairs}


@pytest.mark.parametrize("pairs", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_column_of_another_type_takes_it_when_every_row_was_read_again(
    pairs: list[Pair], spark: SparkSession, merge_settings: SinkFactory
) -> None:
    """Types into others: dropped and added again, swapped by RENAME, a table dropped and made with other types."""
    settings = merge_settings()
    before, after = _table(pairs, 0), _table(pairs, 1)
    nulls = {"id": 2} | {"_".join(pair): None for pair in pairs}
    topics = topics_of(settings, before)
    topics.change("c", _row(1, pairs, 0), at(100, 1).text)
    topics.change("c", nulls, at(100, 2).text)
    flush(topics)
    merge_all(spark, settings)
    topics.alter(after)
    topics.change("u", _row(1, pairs, 1), at(200, 1).text)
    flush(topics)
    merge_all(spark, settings)
    path = settings.sink.table_path("shop", "retyped")

    def kinds() -> dict[str, str]:
        return dict(spark.read.format("delta").load(path).dtypes)

    def verified() -> dict[str, str]:
        """The first row as `verify` reads it, whatever types the columns have."""
        there = DeltaTable(path).to_pyarrow_table().sort_by("id")
        found = {}
        for name in ("_".join(pair) for pair in pairs):
            column, values = _named(after, name), there.column(name).combine_chunks()
            one = rule(column, name, values.type)
            shown = one.shown(one.from_sink(values)[0].as_py())
            found[name] = f"{Decimal(shown).normalize():f}" if re.fullmatch(r"-?[0-9.]+", shown) else shown
        return found

    wide, cast = kinds(), verified()
    assert sum(wide["_".join(pair)] != SAMPLES[pair[1]].kind for pair in pairs) > len(pairs) / 3, "nothing to take back"
    topics.row(_row(1, pairs, 1), at(250).text)
    topics.row(nulls, at(250).text)
    marker(topics, CompleteMarker, 300, 250, request="again", first_bound=at(250), whole_table=True, rows=2)
    flush(topics)
    with pytest.raises(Crash):  # what the batch has done is done again, on what it has left
        merge_all(spark, settings, crash)
    merge_all(spark, settings)

    def assert_all(side: int) -> None:
        found, there = rows(settings, after), kinds()
        wrong = {
            pair: (there["_".join(pair)], value)
            for pair in pairs
            for sample in [SAMPLES[pair[side]]]
            for value in [_plain(found[0]["_".join(pair)])]
            if (there["_".join(pair)], value) != (sample.kind, sample.value)
        }
        assert not wrong
        assert found[1] == nulls

    assert_all(1)
    assert verified() == cast, "until then a cast gives the compared values"
    # A record from before is read once more; then the table is emptied, and its columns have the types they had at first.
    topics.alter(before)
    topics.change("u", _row(1, pairs, 0), at(101, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert_all(1)
    marker(topics, FloorMarker, 400, reason="drop")
    flush(topics)
    merge_all(spark, settings)
    assert rows(settings, after) == []
    topics.change("c", _row(1, pairs, 0), at(500, 1).text)
    topics.change("c", nulls, at(500, 2).text)
    flush(topics)
    merge_all(spark, settings)
    assert_all(0)


def _named(schema: TableSchema, name: str) -> Column:
    return next(column for column in schema.columns if column.name == name)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@PLAIN.case
def test_a_column_that_comes_back_as_it_was_has_its_values_in_a_sink_that_is_younger(tables: Tables) -> Runs:
    """The registry knows the schema already: the newest one there is that of the time without the column."""
    settings = tables.settings
    number = Column("n", ColumnType.INT, nullable=True)
    with_it, without_it = table("revenant", number), table("revenant")
    topics = tables.topics_of(with_it)
    topics.alter(without_it)
    topics.change("c", {"id": 1}, at(100, 1).text)
    yield MERGED
    assert rows(settings, with_it) == [{"id": 1}], "what is gone when the sink begins is no column of it"
    topics.alter(with_it)
    topics.change("c", {"id": 2, "n": 2}, at(200, 1).text)
    yield MERGED
    assert rows(settings, with_it) == [{"id": 1, "n": None}, {"id": 2, "n": 2}]
