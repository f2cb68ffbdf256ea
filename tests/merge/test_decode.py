"""Bytes to columns: every type of DESIGN §6, several writer schemas, records that are none."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from kafkaio.schema_registry import RegisteredSchema
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import PRECISE, TimeMode, ValueModes
from schemas.markers import MARKER_KEY
from schemas.types.connect import key_schema, value_schema
from spark_jobs.decode.avro_records import decoded, newest_positions
from spark_jobs.decode.record_columns import DELETED, OFFSET, POSITION, REASON
from spark_jobs.decode.spark_types import widest
from spark_jobs.decode.table_layout import fill_value, layout
from spark_jobs.decode.writer_schemas import WriterSchema, key_writer, value_writer
from tests.merge.lake import at

KEY_ID, FIRST_VALUE_ID = 7, 100
POSITION_TEXT = at(500, 1).text


def column(name: str, kind: ColumnType, **details: Any) -> Column:
    return Column(name, kind, **{"nullable": True, **details})


ID = column("id", ColumnType.INT, nullable=False)


def table(*columns: Column) -> TableSchema:
    return TableSchema("shop", "things", (ID, *columns), ("id",))


def value_writers(*versions: TableSchema, modes: ValueModes = PRECISE) -> list[WriterSchema]:
    texts = [to_avro(value_schema(version, "p", "mysql", modes)) for version in versions]
    return [value_writer(RegisteredSchema(FIRST_VALUE_ID + n, text)) for n, text in enumerate(texts)]


def key_writers(version: TableSchema) -> list[WriterSchema]:
    schema = key_schema(version, "p")
    assert schema is not None
    return [key_writer(RegisteredSchema(KEY_ID, to_avro(schema)))]


def framed(writer: WriterSchema, record: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(writer.text)), record)
    return writer.frame + buffer.getvalue()


def envelope(op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    source = {"version": "v", "connector": "mysql", "name": "p", "ts_ms": 1, "snapshot": "false"}
    source |= {"db": "shop", "sequence": POSITION_TEXT, "server_id": 1, "file": "f", "pos": 4, "row": 0}
    return {"before": before, "after": after, "source": source, "op": op}


RAW = "topic string, partition int, offset bigint, key binary, value binary"
Record = tuple[bytes | None, bytes | None]


def raw(spark: SparkSession, records: Sequence[Record]) -> Any:
    rows = [
        ("p.shop.things", 0, n, *(None if x is None else bytearray(x) for x in r))
        for n, r in enumerate(records)
    ]
    return spark.createDataFrame(rows, RAW)


TYPES: list[tuple[Column, str, list[tuple[Any, Any]]]] = [
    (column("tiny", ColumnType.TINYINT), "smallint", [(-128, -128), (127, 127)]),
    (column("tiny_u", ColumnType.TINYINT, unsigned=True), "smallint", [(255, 255)]),
    (column("small_u", ColumnType.SMALLINT, unsigned=True), "int", [(65535, 65535)]),
    (column("medium", ColumnType.MEDIUMINT), "int", [(-(2**23), -(2**23))]),
    (column("int_u", ColumnType.INT, unsigned=True), "bigint", [(2**32 - 1, 2**32 - 1)]),
    (column("big", ColumnType.BIGINT), "bigint", [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)]),
    (
        column("big_u", ColumnType.BIGINT, unsigned=True),
        "decimal(20,0)",
        [(Decimal(2**64 - 1), Decimal(2**64 - 1))],
    ),
    (
        column("dec", ColumnType.DECIMAL, precision=10, scale=2),
        "decimal(10,2)",
        [(Decimal("-12345678.91"), Decimal("-12345678.91")), (Decimal("0.10"), Decimal("0.10"))],
    ),
    (
        column("wide", ColumnType.DECIMAL, precision=65, scale=30),
        "string",
        [
            (Decimal("-1." + "0" * 29 + "1"), "-1." + "0" * 29 + "1"),
            (Decimal("9" * 35 + "." + "9" * 30), "9" * 35 + "." + "9" * 30),
            (Decimal("-" + "9" * 35 + "." + "9" * 30), "-" + "9" * 35 + "." + "9" * 30),
            (Decimal(0).scaleb(-30), "0." + "0" * 30),
        ],
    ),
    (
        column("wide_0", ColumnType.DECIMAL, precision=40, scale=0),
        "string",
        [(Decimal(-(10**39)), str(-(10**39)))],
    ),
    (
        column("shape", ColumnType.POLYGON),
        "struct<srid:int,wkb:binary>",
        [({"wkb": b"\x01", "srid": 4326}, Row(srid=4326, wkb=bytearray(b"\x01")))],
    ),
    (
        column("place", ColumnType.POINT),
        "struct<srid:int,wkb:binary>",
        [
            ({"x": 1.0, "y": 2.0, "wkb": b"\x01", "srid": None}, Row(srid=None, wkb=bytearray(b"\x01"))),
            ({"x": 1.0, "y": 2.0, "wkb": b"", "srid": 1}, Row(srid=1, wkb=bytearray())),
        ],
    ),
    (column("other_place", ColumnType.POINT), "struct<srid:int,wkb:binary>", []),
    (column("vector", ColumnType.VECTOR), "array<float>", [([1.5, -2.0], [1.5, -2.0]), ([], [])]),
    (column("uuid", ColumnType.UUID), "string", [("x", "x")]),
    (column("inet", ColumnType.INET6), "string", [("::1", "::1")]),
    (column("f", ColumnType.FLOAT), "float", [(1.5, 1.5), (-0.0, -0.0)]),
    (column("d", ColumnType.DOUBLE), "double", [(0.1, 0.1), (1e308, 1e308)]),
    (column("bit1", ColumnType.BIT, length=1), "boolean", [(True, True), (False, False)]),
    (column("bits", ColumnType.BIT, length=12), "binary", [(b"\xff\x0f", bytearray(b"\xff\x0f"))]),
    (
        column("day", ColumnType.DATE),
        "date",
        [(-719162, dt.date(1, 1, 1)), (19000, dt.date(2022, 1, 8)), (2932896, dt.date(9999, 12, 31))],
    ),
    (
        column("moment", ColumnType.DATETIME, precision=3),
        "timestamp_ntz",
        [
            (-1, dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
            (253402300799999, dt.datetime(9999, 12, 31, 23, 59, 59, 999000)),
        ],
    ),
    (
        column("precise", ColumnType.DATETIME, precision=6),
        "timestamp_ntz",
        [(-30610224000000000, dt.datetime(1000, 1, 1)), (1234567, dt.datetime(1970, 1, 1, 0, 0, 1, 234567))],
    ),
    (
        column("instant", ColumnType.TIMESTAMP, precision=6),
        "timestamp",
        [
            ("2014-09-08T17:51:04.780000Z", "2014-09-08 17:51:04.78"),
            ("1970-01-01T00:00:01Z", "1970-01-01 00:00:01"),
        ],
    ),
    (column("time", ColumnType.TIME, precision=6), "bigint", [(-3020399000000, -3020399000000)]),
    (column("year", ColumnType.YEAR), "int", [(2155, 2155)]),
    (column("text", ColumnType.VARCHAR, length=10), "string", [("grüß 🎉\0", "grüß 🎉\0"), ("", "")]),
    (column("raw", ColumnType.BINARY, length=3), "binary", [(b"a\0\0", bytearray(b"a\0\0"))]),
    (column("enum", ColumnType.ENUM, members=("x,y", "z")), "string", [("x,y", "x,y")]),
    (column("set", ColumnType.SET, members=("a", "b")), "string", [("a,b", "a,b")]),
    (column("json", ColumnType.JSON), "string", [('{"a":1e100}', '{"a":1e100}')]),
]


def test_every_type_becomes_the_column_of_the_design(spark: SparkSession) -> None:
    source = table(*[item for item, _, _ in TYPES])
    (writer,), keys = value_writers(source), key_writers(source)
    written, expected = [], []
    for number in range(max(len(values) for _, _, values in TYPES) + 1):
        none = (None, None)
        pairs = {i.name: values[number] if number < len(values) else none for i, _, values in TYPES}
        after = {"id": number, **{name: pair[0] for name, pair in pairs.items()}}
        written.append((framed(keys[0], {"id": number}), framed(writer, envelope("c", None, after))))
        expected.append({"id": number, **{name: pair[1] for name, pair in pairs.items()}})
    frame = decoded(raw(spark, written), layout(keys, [writer]), "s")
    types = {item.name: item.dataType.simpleString() for item in frame.schema}
    assert {i.name: types[i.name] for i, _, _ in TYPES} == {i.name: kind for i, kind, _ in TYPES}
    # Python's own time zone is no matter for text.
    texts = frame.withColumn("instant", F.col("instant").cast("string"))
    found = sorted((row.asDict() for row in texts.collect()), key=lambda row: row["id"])
    assert {row[REASON] for row in found} == {None}
    for row, wanted in zip(found, expected, strict=True):
        assert {name: row[name] for name in wanted} == wanted
    assert math.copysign(1, found[1]["f"]) == -1


MOMENT = dt.datetime(1582, 10, 4, 1, 2, 3)
TIMES: dict[TimeMode, list[tuple[Any, Any, Any]]] = {  # a day, a moment, a time as they are written
    "microseconds": [(-141438, -12220239477000000, 45296789012)],
    "nanoseconds": [(-141438, None, 45296789012000)],
    "connect": [(-141438, -12220239477000, 45296789)],
    "isostring": [("1582-10-04Z", "1582-10-04T01:02:03Z", "12:34:56.789012Z")],
}


@pytest.mark.parametrize("mode", TIMES)
def test_times_of_every_mode_become_the_same_columns(spark: SparkSession, mode: TimeMode) -> None:
    source = table(
        column("day", ColumnType.DATE, has_default=True, default="0001-01-01"),
        column("moment", ColumnType.DATETIME, precision=6, has_default=True, default="2020-01-02 03:04:05.5"),
        column("time", ColumnType.TIME, precision=6, has_default=True, default="12:34:56.789012"),
    )
    (writer,), keys = value_writers(source, modes=ValueModes(time=mode)), key_writers(source)
    written = [
        (framed(keys[0], {"id": 1}), framed(writer, envelope("c", None, {"id": 1, "day": day, "moment": moment, "time": time})))
        for day, moment, time in TIMES[mode]
    ]
    frame = decoded(raw(spark, written), layout(keys, [writer]), "s")
    (found,) = frame.collect()
    assert found[REASON] is None
    removed = 1000 if mode == "connect" else 1
    expected = (dt.date(1582, 10, 4), None if mode == "nanoseconds" else MOMENT, 45296789012 // removed * removed)
    assert (found["day"], found["moment"], found["time"]) == expected
    fills = {item.name: item.fill for item in writer.fields}
    assert fills["day"] == dt.date(1, 1, 1)
    assert fills["moment"] == dt.datetime(2020, 1, 2, 3, 4, 5, 500000)
    assert fills["time"] == 45296789012 // removed * removed


def test_a_record_is_decoded_once_however_often_its_parts_are_used(spark: SparkSession) -> None:
    """Filters pushed down would each decode it again: it was seven times, and most of the merge's time."""
    source = table(column("a", ColumnType.INT))
    keys = key_writers(source)
    frame = decoded(raw(spark, []), layout(keys, value_writers(source)), "s").where(F.col(REASON).isNull())
    brief = {name: spark.conf.get(name) for name in ("spark.sql.maxPlanStringLength", "spark.sql.debug.maxToStringFields")}
    for name in brief:
        spark.conf.set(name, str(1 << 20))
    try:
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
    finally:
        for name, value in brief.items():
            spark.conf.set(name, value)
    assert plan.count("from_avro(") == 2, plan  # key and value


def test_wide_decimals_keep_every_digit(spark: SparkSession) -> None:
    rng = random.Random(7)
    source = table(column("n", ColumnType.DECIMAL, precision=65, scale=10))
    (writer,), keys = value_writers(source), key_writers(source)
    numbers = [rng.randrange(-(10 ** rng.randint(1, 65)), 10 ** rng.randint(1, 65)) for _ in range(60)]
    numbers += [
        sign * 256**power + step
        for power in (0, 1, 3, 4, 7, 8, 26)
        for sign in (1, -1)
        for step in (-1, 0, 1)
    ]
    with localcontext() as context:
        context.prec = 70
        values = [Decimal(number).scaleb(-10) for number in numbers]
    written = [
        (framed(keys[0], {"id": n}), framed(writer, envelope("c", None, {"id": n, "n": value})))
        for n, value in enumerate(values)
    ]
    found = {
        row["id"]: row["n"] for row in decoded(raw(spark, written), layout(keys, [writer]), "s").collect()
    }
    assert [found[n] for n in range(len(values))] == [
        f"{value:.10f}".replace("-0.0000000000", "0.0000000000") for value in values
    ]


OLD = table(column("a", ColumnType.INT))
WITH_DEFAULT = table(
    column("a", ColumnType.BIGINT), column("n", ColumnType.INT, nullable=False, default="5", has_default=True)
)
DEFAULT_CHANGED = table(
    column("a", ColumnType.BIGINT), column("n", ColumnType.INT, nullable=False, default="9", has_default=True)
)
DROPPED = table(column("a", ColumnType.BIGINT), column("z", ColumnType.VARCHAR, length=5, nullable=False))


def test_rows_of_older_schemas_get_the_default_of_the_version_that_added_the_column(
    spark: SparkSession,
) -> None:
    writers, keys = value_writers(OLD, WITH_DEFAULT, DEFAULT_CHANGED), key_writers(OLD)
    written = [
        (framed(keys[0], {"id": 1}), framed(writers[0], envelope("c", None, {"id": 1, "a": 1}))),
        (framed(keys[0], {"id": 2}), framed(writers[1], envelope("u", None, {"id": 2, "a": 2**40, "n": 6}))),
        (framed(keys[0], {"id": 3}), framed(writers[2], envelope("r", None, {"id": 3, "a": None, "n": 7}))),
    ]
    frame = decoded(raw(spark, written), layout(keys, writers), "s")
    assert {row["id"]: (row["a"], row["n"]) for row in frame.collect()} == {
        1: (1, 5),
        2: (2**40, 6),
        3: (None, 7),
    }


def defaulted(name: str, kind: ColumnType, default: str, **details: Any) -> Column:
    return column(name, kind, default=default, has_default=True, **details)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
def test_dates_and_times_of_defaults_are_the_same_wherever_the_job_runs(
    spark: SparkSession, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dated = table(
        defaulted("first_day", ColumnType.DATE, "0001-01-01"),
        defaulted("day", ColumnType.DATE, "1000-01-01"),
        defaulted("moment", ColumnType.DATETIME, "2024-03-10 02:30:00"),  # a moment that New York never had
        defaulted("micro", ColumnType.DATETIME, "1000-01-01 00:00:00.000001", precision=6),
        defaulted("last", ColumnType.DATETIME, "9999-12-31 23:59:59.999999", precision=6),
        defaulted("stamp", ColumnType.TIMESTAMP, "2024-11-03 06:30:00.25", precision=6),
    )
    writers, keys = value_writers(OLD, dated), key_writers(OLD)
    written = [(framed(keys[0], {"id": 1}), framed(writers[0], envelope("c", None, {"id": 1, "a": 1})))]
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        frame = decoded(raw(spark, written), layout(keys, writers), "s")
        (row,) = frame.select(*[F.col(item.name).cast("string") for item in dated.columns]).collect()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row.asDict() == {
        "id": "1",
        "first_day": "0001-01-01",
        "day": "1000-01-01",
        "moment": "2024-03-10 02:30:00",
        "micro": "1000-01-01 00:00:00.000001",
        "last": "9999-12-31 23:59:59.999999",
        "stamp": "2024-11-03 06:30:00.25",
    }


def test_a_dropped_column_stays_and_new_rows_have_null_there(spark: SparkSession) -> None:
    writers, keys = value_writers(WITH_DEFAULT, DROPPED), key_writers(OLD)
    existing = [("id", T.IntegerType()), ("a", T.LongType()), ("n", T.IntegerType())]
    plan = layout(keys, writers, existing)
    assert [name for name, _ in plan.columns] == ["id", "a", "n", "z"]
    written = [
        (framed(keys[0], {"id": 1}), framed(writers[1], envelope("c", None, {"id": 1, "a": 1, "z": "new"})))
    ]
    (row,) = decoded(raw(spark, written), plan, "s").collect()
    assert (row["n"], row["z"]) == (None, "new")
    assert fill_value(writers, None, "z", T.StringType()) == "", "a required column without a default: what the server stores"


def test_a_delete_has_its_key_and_nothing_else(spark: SparkSession) -> None:
    (writer,), keys = value_writers(OLD), key_writers(OLD)
    written: list[Record] = [
        (framed(keys[0], {"id": 4}), framed(writer, envelope("d", {"id": 4, "a": 1}, None))),
        (framed(keys[0], {"id": 4}), None),
        (MARKER_KEY, b"{}"),
    ]
    frame = decoded(raw(spark, written[:2]), layout(keys, [writer]), "s")
    (row,) = frame.collect()
    assert (row["id"], row["a"], row[DELETED], row[POSITION], row[REASON]) == (
        4,
        None,
        True,
        POSITION_TEXT,
        None,
    )
    assert decoded(raw(spark, written[2:]), layout(keys, [writer]), "p.shop.things").count() == 0


def test_records_that_are_none_say_why(spark: SparkSession) -> None:
    (writer,), keys = value_writers(OLD), key_writers(OLD)
    key, good = framed(keys[0], {"id": 1}), framed(writer, envelope("c", None, {"id": 1, "a": 1}))
    no_position = envelope("c", None, {"id": 1, "a": 1})
    no_position["source"]["sequence"] = None
    cases: list[tuple[Record, str]] = [
        ((key, b"garbage"), "value is not in Confluent wire format"),
        ((key, b"\0"), "value is not in Confluent wire format"),
        ((key, b""), "value is not in Confluent wire format"),
        ((b"{}", good), "key is not in Confluent wire format"),
        ((None, good), "no key"),
        ((key, b"\0\0\0\xff\xff" + good[5:]), "value has a schema id unknown to its subject: 65535"),
        ((b"\0\0\0\0\x01\x02", good), "key has a schema id unknown to its subject: 1"),
        ((key, good[:9]), "value does not fit its schema"),
        ((key[:5] + b"\xff" * 12, good), "key does not fit its schema"),
        # A text that claims two gigabytes.
        (
            (key, good[:5] + b"\0\2\2\0\0" + b"\xfe\xff\xff\xff\x0f" + good[-40:]),
            "value does not fit its schema",
        ),
        ((key, framed(writer, envelope("t", None, None))), "unknown op t"),
        ((key, framed(writer, no_position)), "no position"),
        ((key, framed(writer, envelope("u", {"id": 1, "a": 1}, None))), "no row after the change"),
    ]
    frame = decoded(raw(spark, [record for record, _ in cases]), layout(keys, [writer]), "s")
    found = {row[OFFSET]: row[REASON] for row in frame.collect()}
    assert [found[n] for n in range(len(cases))] == [reason for _, reason in cases]


def test_a_key_s_schema_and_a_value_s_of_the_same_id_are_distinguished(spark: SparkSession) -> None:
    """A registry that lost its memory gives the key an id that an old schema of the rows has."""
    versions = value_writers(OLD, table(column("b", ColumnType.INT)))
    (key,) = key_writers(OLD)
    key = key_writer(RegisteredSchema(FIRST_VALUE_ID, key.text))
    records = [(framed(key, {"id": 1}), framed(versions[1], envelope("c", None, {"id": 1, "b": 1})))]
    newest = newest_positions(raw(spark, records), layout([key], versions), "p-snapshot.shop.things")
    assert newest.keys == {FIRST_VALUE_ID: POSITION_TEXT}
    assert newest.values == {FIRST_VALUE_ID + 1: POSITION_TEXT}


def test_a_truncate_is_left_out_its_marker_reports_it(spark: SparkSession) -> None:
    version = table(column("v", ColumnType.INT))
    [writer], keys = value_writers(version), key_writers(version)
    records: list[Record] = [
        (None, framed(writer, envelope("t", None, None))),
        (None, framed(writer, envelope("c", None, {"id": 1, "v": 2}))),
    ]
    rows = decoded(raw(spark, records), layout(keys, [writer]), "p-snapshot.shop.things").collect()
    assert [row[REASON] for row in rows] == ["no key"]


def test_a_key_column_that_is_left_out_of_the_rows_is_read_from_the_key(spark: SparkSession) -> None:
    version = replace(table(column("v", ColumnType.INT)), dropped=frozenset({"id"}))
    [writer], keys = value_writers(version), key_writers(version)
    record = (framed(keys[0], {"id": 5}), framed(writer, envelope("c", None, {"v": 2})))
    plan = layout(keys, [writer])
    [row] = decoded(raw(spark, [record]), plan, "p-snapshot.shop.things").collect()
    assert (row[REASON], row["id"], row["v"], plan.types["id"]) == (None, 5, 2, T.IntegerType())


def test_the_key_of_an_older_table_version_is_completed_from_the_row(spark: SparkSession) -> None:
    wide = replace(OLD, columns=(ID, column("a", ColumnType.INT, nullable=False)), primary_key=("id", "a"))
    writers, (old,) = value_writers(OLD, wide), key_writers(OLD)
    schema = key_schema(wide, "p")
    assert schema is not None
    new = key_writer(RegisteredSchema(KEY_ID + 1, to_avro(schema)))
    plan = layout([old, new], writers)
    assert plan.keys == ("id", "a")
    written = [
        (framed(old, {"id": 1}), framed(writers[0], envelope("c", None, {"id": 1, "a": 3}))),
        (framed(new, {"id": 2, "a": 4}), framed(writers[1], envelope("d", {"id": 2, "a": 4}, None))),
        (framed(old, {"id": 5}), framed(writers[0], envelope("d", {"id": 5, "a": 6}, None))),
        (framed(old, {"id": 7}), framed(writers[0], envelope("d", {"id": 7, "a": None}, None))),
    ]
    found = {row["id"]: row for row in decoded(raw(spark, written), plan, "s").collect()}
    assert (found[1]["a"], found[2]["a"]) == (3, 4)
    assert (found[5][REASON], found[5]["a"], found[5][DELETED]) == (None, 6, True), "whole images have the row that is deleted"
    assert found[7][REASON] == "deleted under a key the table no longer has"


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        (T.ShortType(), T.LongType(), "bigint"),
        (T.LongType(), T.DecimalType(20, 0), "decimal(20,0)"),
        (T.LongType(), T.DecimalType(12, 2), "decimal(21,2)"),
        (T.DecimalType(10, 2), T.DecimalType(12, 4), "decimal(12,4)"),
        (T.DecimalType(38, 0), T.DecimalType(10, 10), "string"),
        (T.FloatType(), T.DoubleType(), "double"),
        (T.IntegerType(), T.DoubleType(), "double"),
        (T.LongType(), T.DoubleType(), "string"),
        (T.DateType(), T.TimestampNTZType(), "timestamp_ntz"),
        (T.IntegerType(), T.StringType(), "string"),
        (T.BooleanType(), T.IntegerType(), "int"),
        (T.StringType(), T.BinaryType(), "binary"),
        (T.BooleanType(), T.BinaryType(), "binary"),
        (T.DateType(), T.BinaryType(), "binary"),
    ],
)
def test_a_column_becomes_as_wide_as_both_types(one: T.DataType, other: T.DataType, result: str) -> None:
    assert widest(one, other).simpleString() == widest(other, one).simpleString() == result
