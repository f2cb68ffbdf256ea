"""The texts of each output format, as the pages of the documentation show them, and rows with their kinds."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from schemas.identity import SourceId, SourceTable, TableName
from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, COMMITTED, POSITION
from spark_jobs.formats.event_texts import EventSource, names, notice, texts
from spark_jobs.formats.row_kinds import table_rows

TABLE = SourceTable.of(SourceId("shop"), "shop_1", "orders")
SOURCE = EventSource(TABLE, TableName("ods", "orders"), ("id",))
COLUMNS = (("id", T.IntegerType()), ("name", T.StringType()), ("price", T.DecimalType(10, 2)))
AT = "0001.0000000001.000000000100.0000000001"
OWN = f'"_tm_position":"{AT}","_tm_source":"shop:shop_1.orders"'
TWO, TWO_NEW = (2, 'Zoë "q"', Decimal("7.50")), (2, None, Decimal("7.50"))
MS = 1_709_208_000_123


def events(spark: SparkSession, changes: Sequence[tuple[str, Any, Any, int | None]], columns: Sequence[Any] = COLUMNS) -> DataFrame:
    image = T.StructType([T.StructField(name, kind) for name, kind in columns])
    fields = ((POSITION, T.StringType()), (COMMITTED, T.LongType()), (CHANGE, T.StringType()), (BEFORE, image), (AFTER, image))
    rows = [(AT, ms, change, before, after) for change, before, after, ms in changes]
    return spark.createDataFrame(rows, T.StructType([T.StructField(name, kind) for name, kind in fields]))


def written(spark: SparkSession, name: str, *changes: tuple[str, Any, Any, int | None], **more: Any) -> list[str]:
    return [row["value"] for row in texts(events(spark, changes, **more), name, SOURCE).collect()]


CHANGES = (("r", None, TWO, None), ("u", TWO, TWO_NEW, MS), ("d", TWO_NEW, None, MS))
IMAGE, IMAGE_NEW = r'{"id":2,"name":"Zoë \"q\"","price":7.50}', '{"id":2,"name":null,"price":7.50}'
TEXTS, TEXTS_NEW = r'{"id":"2","name":"Zoë \"q\"","price":"7.50"}', '{"id":"2","name":null,"price":"7.50"}'


def _debezium(before: str, after: str, op: str, ms: str, snapshot: str) -> str:
    block = f'{{"name":"shop","ts_ms":{ms},"snapshot":"{snapshot}","db":"ods","table":"orders","sequence":"{AT}"}}'
    return f'{{"before":{before},"after":{after},"source":{block},"op":"{op}","ts_ms":{ms},{OWN}}}'


def _canal(data: str, old: str, kind: str, ms: str) -> str:
    names_of_target = '"database":"ods","table":"orders","pkNames":["id"],"isDdl":false'
    return f'{{"data":[{data}],"old":{old},"type":"{kind}",{names_of_target},"es":{ms},"ts":{ms},{OWN}}}'


def _maxwell(data: str, old: str, kind: str, seconds: str) -> str:
    head = f'"database":"ods","table":"orders","type":"{kind}","ts":{seconds}'
    return f'{{{head},"data":{data},"old":{old},"primary_key_columns":["id"],{OWN}}}'


EXPECTED = {
    "changelog-json": [
        f'{{"data":{IMAGE},"op":"+I",{OWN}}}',
        f'{{"data":{IMAGE},"op":"-U",{OWN}}}',
        f'{{"data":{IMAGE_NEW},"op":"+U",{OWN}}}',
        f'{{"data":{IMAGE_NEW},"op":"-D",{OWN}}}',
    ],
    "debezium-json": [
        _debezium("null", IMAGE, "r", "null", "true"),
        _debezium(IMAGE, IMAGE_NEW, "u", str(MS), "false"),
        _debezium(IMAGE_NEW, "null", "d", str(MS), "false"),
    ],
    "canal-json": [
        _canal(TEXTS, "null", "INSERT", "null"),
        _canal(TEXTS_NEW, r'[{"name":"Zoë \"q\""}]', "UPDATE", str(MS)),
        _canal(TEXTS_NEW, "null", "DELETE", str(MS)),
    ],
    "maxwell-json": [
        _maxwell(IMAGE, "null", "insert", "null"),
        _maxwell(IMAGE_NEW, r'{"name":"Zoë \"q\""}', "update", "1709208000"),
        _maxwell(IMAGE_NEW, "null", "delete", "1709208000"),
    ],
}  # fmt: skip


def test_each_format_has_an_expectation() -> None:
    assert set(EXPECTED) == set(names())


@pytest.mark.parametrize("name", names())
def test_a_snapshot_row_an_update_and_a_delete_have_the_shape_of_the_format(spark: SparkSession, name: str) -> None:
    found = written(spark, name, *CHANGES)
    assert found == EXPECTED[name]
    assert all(json.loads(text)["_tm_position"] == AT for text in found)


@pytest.mark.parametrize("name", names())
def test_an_update_without_the_row_before_it_is_the_row_after_it(spark: SparkSession, name: str) -> None:
    (text,) = written(spark, name, ("u", None, TWO, MS))
    found = json.loads(text)
    known = {"changelog-json": found.get("op"), "debezium-json": found.get("before"), "canal-json": found.get("old")}
    assert known.get(name, found.get("old")) == ("+U" if name == "changelog-json" else None)


def test_values_of_each_type_are_those_of_flink(spark: SparkSession) -> None:
    point = T.StructType([T.StructField("srid", T.IntegerType()), T.StructField("wkb", T.BinaryType())])
    columns = (
        ("id", T.LongType()), ("n", T.DecimalType(38, 10)), ("f", T.DoubleType()), ("b", T.BinaryType()), ("flag", T.BooleanType()),
        ("day", T.DateType()), ("at", T.TimestampNTZType()), ("ts", T.TimestampType()), ("v", T.ArrayType(T.FloatType())), ("p", point),
    )  # fmt: skip
    moment = dt.datetime(1965, 2, 3, 4, 5, 6, 7)
    utc = moment.replace(tzinfo=dt.UTC)
    row = (2**63 - 1, Decimal("-0.0000000001"), 1.5e300, b"\0\xff", True, dt.date(9999, 12, 31), moment, utc, [0.5], (4326, b"\1"))
    (text,) = written(spark, "changelog-json", ("c", None, row, MS), columns=columns)
    assert json.loads(text, parse_float=Decimal)["data"] == {
        "id": 2**63 - 1, "n": Decimal("-0.0000000001"), "f": Decimal("1.5E300"), "b": "AP8=", "flag": True, "day": "9999-12-31",
        "at": "1965-02-03 04:05:06.000007", "ts": "1965-02-03 04:05:06.000007Z", "v": [Decimal("0.5")], "p": {"srid": 4326, "wkb": "AQ=="},
    }  # fmt: skip
    (text,) = written(spark, "canal-json", ("c", None, row, MS), columns=columns)
    assert json.loads(text, parse_float=Decimal)["data"][0] == {
        "id": str(2**63 - 1), "n": "-0.0000000001", "f": "1.5E300", "b": "AP8=", "flag": "true", "day": "9999-12-31",
        "at": "1965-02-03 04:05:06.000007", "ts": "1965-02-03 04:05:06.000007Z", "v": [Decimal("0.5")], "p": {"srid": 4326, "wkb": "AQ=="},
    }  # fmt: skip


def test_odd_names_are_what_they_are(spark: SparkSession) -> None:
    columns = (("id", T.IntegerType()), ('a.b "c"', T.IntegerType()), ("größe `x`", T.StringType()))
    before, after = (1, 2, "x"), (1, 2, None)
    for name in names():
        found = [json.loads(text) for text in written(spark, name, ("u", before, after, MS), columns=columns)]
        row = found[-1].get("data") or found[-1].get("after")
        row = row[0] if isinstance(row, list) else row
        assert {key: value and str(value) for key, value in row.items()} == {"id": "1", 'a.b "c"': "2", "größe `x`": None}
    (text,) = written(spark, "maxwell-json", ("u", before, after, MS), columns=columns)
    assert json.loads(text)["old"] == {"größe `x`": "x"}


def test_the_key_of_a_message_is_the_identity_of_the_row(spark: SparkSession) -> None:
    given = events(spark, CHANGES)
    assert {row["key"] for row in texts(given, "canal-json", SOURCE).collect()} == {'{"id":2}'}
    shared = EventSource(TABLE, SOURCE.target, ("id",), is_shared=True)
    assert {row["key"] for row in texts(given, "changelog-json", shared).collect()} == {'{"_tm_source":"shop:shop_1.orders","id":2}'}


def test_a_table_has_a_row_for_each_side_of_an_update(spark: SparkSession) -> None:
    found = [tuple(row) for row in table_rows(events(spark, CHANGES), TABLE.text).collect()]
    own = (AT, TABLE.text, None)
    assert found == [("+I", *own, *TWO), ("-U", *own, *TWO), ("+U", *own, *TWO_NEW), ("-D", *own, *TWO_NEW)]


def test_a_notice_says_what_is_gone() -> None:
    assert json.loads(notice("floor", AT, TABLE.text)) == {"_tm_op": "floor", "_tm_position": AT, "_tm_source": TABLE.text}
    swept = json.loads(notice("sweep", AT, TABLE.text, '{"columns":["parent"],"values":[["1"]]}'))
    assert swept["_tm_sweep"] == {"columns": ["parent"], "values": [["1"]]}


def test_the_documentation_has_the_update_of_each_format_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs/sinks/formats.md").read_text("utf-8").splitlines()
    for name, found in EXPECTED.items():
        updates = found[1:3] if name == "changelog-json" else found[1:2]
        assert all(text in page for text in updates), name
    assert notice("floor", "0001.0000000001.000000000900.0000000000", TABLE.text) in page


@pytest.mark.parametrize("form", names())
def test_bytes_of_any_length_are_base64_in_one_line(spark: SparkSession, form: str) -> None:
    long = bytes(range(200))
    columns = (("id", T.IntegerType()), ("raw", T.BinaryType()))
    (text,) = written(spark, form, ("c", None, (1, long), MS), columns=columns)
    assert f'"{base64.b64encode(long).decode()}"' in text
