"""Transforms, bound by Spark's analyzer: columns, types, identity; what the words are where they cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import TransformError
from schemas.identity import SourceId, SourceTable, Target
from schemas.settings import RouteSettings, TransformSettings
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION, SOURCE
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.pipeline.preview import planned_targets
from spark_jobs.pipeline.row_images import Image, image_of
from spark_jobs.pipeline.table_routes import Feed, Routes
from spark_jobs.pipeline.target_layout import target_layout
from tidemark.commands.plan import as_json, as_text

SOURCE_ID = SourceId("shop")
ORDERS = SourceTable.of(SOURCE_ID, "shop_1", "orders")
COLUMNS = (
    ("Id", T.LongType()), ("amount", T.DecimalType(10, 2)), ("status", T.StringType()), ("note", T.StringType()),
    ("at", T.TimestampNTZType()), ("a b", T.IntegerType()),
)  # fmt: skip
LAYOUT = TableLayout((), (), (), COLUMNS, ("Id",))


def image(
    spark: SparkSession, *select: str, where: str | None = None, layout: TableLayout = LAYOUT, key: tuple[str, ...] = (), events: bool = False
) -> Image:
    transform = TransformSettings(tables=".*", select=select, where=where, key=key)
    return image_of(spark, Feed(ORDERS, Target("lake", "ods.orders"), transform, 0, has_records=events), layout)


def columns(found: Image) -> dict[str, str]:
    return {name: kind.simpleString() for name, kind in found.columns}


def test_select_gives_names_and_types(spark: SparkSession) -> None:
    found = image(
        spark, "id", "amount * 100 AS cents", "status AS state", "`a b` + 1 AS ab", "__database__ AS shard", "upper(status) AS up"
    )
    assert columns(found) == {
        "Id": "bigint", "cents": "decimal(14,2)", "state": "string", "ab": "int", "shard": "string", "up": "string",
    }  # fmt: skip
    assert found.keys == ("Id",)
    assert found.by_source == {"id": "Id", "status": "state"}


def test_a_star_is_all_columns_or_all_but_some(spark: SparkSession) -> None:
    assert list(columns(image(spark, where="amount > 0"))) == [name for name, _ in COLUMNS]
    assert list(columns(image(spark, "*"))) == [name for name, _ in COLUMNS]
    found = image(spark, "* EXCEPT (note, `a b`)", "amount * 100 AS cents")
    assert list(columns(found)) == ["Id", "amount", "status", "at", "cents"]


def test_a_key_column_under_another_name_is_the_identity_and_one_left_out_is_kept(spark: SparkSession) -> None:
    assert image(spark, "Id AS number", "amount").keys == ("number",)
    left_out = image(spark, "amount")
    assert left_out.keys == ("_tm_key_Id",)
    assert list(columns(left_out)) == ["amount", "_tm_key_Id"]
    computed = image(spark, "Id + 1 AS Id")
    assert computed.keys == ("_tm_key_Id",), "a computed column of the name of the key is not the key"


@pytest.mark.parametrize(
    ("select", "where", "message"),
    [
        (["rand() AS r"], None, r"lake: transforms.0.select.0: rand\(\) gives another value when a batch is run again"),
        (["uuid() AS r"], None, r"select.0: uuid\(\) gives another value"),
        (["Id", "current_timestamp() AS r"], None, r"select.1: current_timestamp\(\) gives another value"),
        (["date_add(current_date(), 1) AS r"], None, r"current_date\(\) gives another value"),
        (["now() AS r"], None, r"now\(\) gives another value"),
        (["to_timestamp_ltz(Id, 3) AS s"], None, r"select.0: Spark cannot bind 'to_timestamp_ltz\(Id, 3\) AS s': \S"),
        (["1 / 0 AS s"], None, r"select.0: '1 / 0 AS s' fails on every row: DIVIDE_BY_ZERO: \S"),
        (["status"], "status rlike '('", r"where: \"status rlike '\('\": INVALID_PARAMETER_VALUE.PATTERN: \S"),
        (["regexp_replace(note, '[', '') AS s"], None, r"select.0: .*INVALID_PARAMETER_VALUE.PATTERN: \S"),
        (["date_format(at, 'yyyy-QQQQQQ') AS s"], None, r"select.0: .*INVALID_DATETIME_PATTERN\S*: \S"),
        (["array_sort(array(Id), x -> 1) AS s"], None, r"select.0: \S"),
        (["(" * 3000 + "Id" + ")" * 3000 + " AS s"], None, r"select.0: '\({200}' \.\.\. is no expression of Spark SQL: \S"),
        (["sum(amount) AS s"], None, "select.0: 'sum\\(amount\\) AS s' is no function of one row: compute it downstream"),
        (["explode(array(1, 2)) AS s"], None, "is no function of one row"),
        (["row_number() OVER (ORDER BY Id) AS s"], None, "needs more than the row"),
        (["(SELECT 1) AS s"], None, "needs more than the row"),
        (["struct(*) AS s"], None, r"a \* must be an item of its own"),
        (["amount * 100"], None, r"select.0: 'amount \* 100' has no name: write amount \* 100 AS name"),
        (["amount +"], None, "is no expression of Spark SQL"),
        (["statsu"], None, "shop_1.orders has no column 'statsu'; did you mean 'status'"),
        (["* EXCEPT (nota)"], None, "shop_1.orders has no column 'nota'; did you mean 'note'"),
        (["* EXCEPT (note x)"], None, "'note x' is no list of column names"),
        (["*", "note"], None, "lake: transforms.0.select: two columns have the name 'note'"),
        (["Id AS _tm_position"], None, "names that begin with _tm_ are the sink's own"),
        (["NULL AS n"], None, "is of type void, which a column cannot have: CAST it"),
        (["no_such(Id) AS n"], None, "no_such"),
        ([], "statsu = 'x'", "lake: transforms.0.where: shop_1.orders has no column 'statsu'; did you mean 'status'"),
        ([], "amount + 1", "where: 'amount \\+ 1' is of type decimal\\(.*\\), and a condition is true or false"),
        ([], "rand() > 0.5", r"where: rand\(\) gives another value"),
        ([], "Id IN (SELECT 1)", "where: .* needs more than the row"),
    ],
)
def test_what_is_no_function_of_one_row_is_refused(
    select: list[str], where: str | None, message: str, spark: SparkSession
) -> None:
    with pytest.raises(TransformError, match=message):
        image(spark, *select, where=where)


def rows(spark: SparkSession, *values: tuple[Any, ...]) -> Any:
    kinds = [*COLUMNS[:4], (DELETED, T.BooleanType()), (POSITION, T.StringType())]
    return spark.createDataFrame(list(values), T.StructType([T.StructField(name, kind) for name, kind in kinds]))


SHORT = TableLayout((), (), (), COLUMNS[:4], ("Id",))


def test_rows_get_their_image_and_those_that_do_not_match_are_deleted(spark: SparkSession) -> None:
    from decimal import Decimal

    found = image(
        spark, "Id", "amount * 100 AS cents", "1 / amount AS share", "__table__ AS name", "__position__ AS p",
        where="amount <> 0 AND cents > 500", layout=SHORT,
    )  # fmt: skip
    given = rows(
        spark,
        (1, Decimal("7.00"), "new", None, False, "p1"),
        (2, Decimal("1.00"), "new", None, False, "p2"),
        (3, Decimal("0.00"), "new", None, False, "p3"),
        (4, None, "new", None, False, "p4"),
        (5, None, None, None, True, "p5"),
    )
    judged = found.judged(given, SHORT.names, "gone ")
    assert judged.columns == [*given.columns, "gone "]
    out = {row["Id"]: row.asDict() for row in found.of(judged, "gone ").collect()}
    assert out[1] == {
        "Id": 1, "cents": Decimal("700.00"), "share": out[1]["share"], "name": "orders", "p": "p1", DELETED: False, POSITION: "p1",
    }  # fmt: skip
    assert {key: row[DELETED] for key, row in out.items()} == {1: False, 2: True, 3: True, 4: True, 5: True}
    assert out[3]["share"] is None, "an expression is not asked of a row that does not match: it would divide by zero"


def test_expressions_may_name_the_record_and_a_column_of_such_a_name_comes_first(spark: SparkSession) -> None:
    found = image(spark, "Id", "__op__ || '!' AS op", "__TS__ AS at", where="__position__ <> 'p2'", layout=SHORT)
    assert columns(found) == {"Id": "bigint", "op": "string", "at": "timestamp"}
    assert (found.metadata, found.needs_change) == (("__position__", "__op__", "__ts__"), True)
    given = rows(spark, (1, None, None, None, False, "p1"), (2, None, None, None, False, "p2"))
    given = given.selectExpr("*", f"'u' AS `{CHANGE}`", f"1600000000123L AS `{COMMITTED}`")
    out = found.of(found.judged(given, SHORT.names, "gone "), "gone ")
    text = "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS') AS at"
    assert [tuple(row) for row in out.where("op IS NOT NULL").selectExpr("Id", "op", text).collect()] == [
        (1, "u!", "2020-09-13 12:26:40.123")
    ]
    own = TableLayout((), (), (), (("Id", T.LongType()), ("__op__", T.IntegerType())), ("Id",))
    hidden = image(spark, "*", "__op__ + 1 AS more", layout=own)
    assert (columns(hidden), hidden.needs_change) == ({"Id": "bigint", "__op__": "int", "more": "int"}, False)
    kept = hidden.of(hidden.judged(spark.sql(f"SELECT 1L AS Id, 5 AS __op__, false AS `{DELETED}`, 'p' AS {POSITION}"), own.names, "g "), "g ")
    assert [(row["__op__"], row["more"]) for row in kept.collect()] == [(5, 6)]


def test_a_key_with_the_identity_has_no_null_and_any_other_is_no_key_of_records(spark: SparkSession) -> None:
    found = image(spark, "Id AS number", "lower(status) AS state", layout=SHORT, key=("state", "number"))
    assert (found.keys, found.record_keys, found.required) == (("number",), ("state", "number"), {"state"})
    given = rows(spark, (1, None, "A", None, False, "p1"), (2, None, None, None, False, "p2"), (3, None, None, None, True, "p3"))
    failing = found.failing(given, SHORT.names, "failed ")
    assert {row["Id"]: row["failed "] for row in failing.collect()} == {1: False, 2: True, 3: False}
    with pytest.raises(PySparkException, match=r"state is of the key \(state, number\) and NULL"):
        found.of(found.judged(given, SHORT.names, "gone "), "gone ").collect()
    marked = TransformSettings(tables=".*", key=("Id", "gone"), soft_delete="gone")
    assert image_of(spark, Feed(ORDERS, Target("lake", "ods.orders"), marked, 0), SHORT).required == frozenset()
    plain = image(spark, layout=SHORT, key=("status",))
    assert (plain.record_keys, plain.required) == (("Id",), frozenset())
    with pytest.raises(TransformError, match=r"transforms.0.key.1: the target has no column 'state'; did you mean 'status'"):
        image(spark, layout=SHORT, key=("Id", "state"))
    with pytest.raises(TransformError, match=r"transforms.0.key.0: 'both' is of type struct<.*>, which no key has"):
        image(spark, "Id", "struct(amount, status) AS both", layout=SHORT, key=("both",))
    with pytest.raises(TransformError, match=r"transforms.0.key.0: _tm_source comes by itself"):
        image(spark, layout=SHORT, key=(SOURCE, "Id"))
    with pytest.raises(TransformError, match=r"transforms.0.key: Id of the identity is not in it, and the key of a record has it"):
        image(spark, layout=SHORT, key=("status",), events=True)
    assert image(spark, layout=SHORT, key=("status", "Id"), events=True).record_keys == ("status", "Id")


def test_columns_of_a_target_are_as_wide_as_the_widest_of_its_tables(spark: SparkSession) -> None:
    other = SourceTable.of(SOURCE_ID, "shop_2", "orders")
    wider = TableLayout((), (), (), (("id", T.LongType()), ("AMOUNT", T.DoubleType()), ("extra", T.IntegerType())), ("id",))
    target = Target("lake", "ods.orders")
    images = [image_of(spark, Feed(ORDERS, target), SHORT), image_of(spark, Feed(other, target), wider)]
    found = target_layout(target, images, is_shared=True)
    assert found.keys == (SOURCE, "Id")
    assert found.names == (SOURCE, "Id", "amount", "status", "note", "extra")
    assert found.types["amount"] == T.StringType()
    assert target_layout(target, images[:1], is_shared=False).keys == ("Id",)


def test_tables_of_one_target_with_different_keys_are_refused(spark: SparkSession) -> None:
    other = SourceTable.of(SOURCE_ID, "shop_2", "orders")
    keyed = TableLayout((), (), (), COLUMNS[:4], ("Id", "status"))
    target = Target("lake", "ods.orders")
    images = [image_of(spark, Feed(ORDERS, target), SHORT), image_of(spark, Feed(other, target), keyed)]
    with pytest.raises(TransformError, match=r"different keys: Id of shop:shop_1.orders, Id, status of shop:shop_2.orders"):
        target_layout(target, images, is_shared=True)
    with pytest.raises(TransformError, match="different keys"):
        target_layout(target, images[:1], (), {other.text: ("Id", "status")}, is_shared=True)


def test_the_plan_is_shown_with_targets_identity_and_columns(spark: SparkSession) -> None:
    shards = [SourceTable.of(SOURCE_ID, f"shop_{number}", "orders") for number in (1, 2)]
    logs, empty = SourceTable.of(SOURCE_ID, "crm", "logs"), SourceTable.of(SOURCE_ID, "crm", "people")
    routes = Routes(
        "lake",
        [RouteSettings(tables=r"shop_\d+\.orders", into="ods.orders")],
        [TransformSettings(tables="shop.*", select=("Id", "amount * 100 AS cents"), where="status <> 'draft'", key=("cents", "Id"))],
    )
    found = list(planned_targets(spark, routes, {shards[0]: SHORT, shards[1]: SHORT, logs: None, empty: SHORT}))
    words = as_text({"lake": found})
    assert words.splitlines() == [
        "lake: 4 tables into 3 targets",
        "  crm.logs → crm.logs: crm.logs has no primary key and no unique key: a mirror needs one",
        "  crm.people → crm.people",
        "    identity: Id",
        "    columns:  Id bigint, amount decimal(10,2), status string, note string",
        "  shop_1.orders, shop_2.orders → ods.orders",
        "    identity: _tm_source, Id",
        "    key:      _tm_source, cents, Id",
        "    columns:  _tm_source string, Id bigint, cents decimal(14,2)",
        "    where:    status <> 'draft'  (shop_1.orders)",
        "    where:    status <> 'draft'  (shop_2.orders)",
    ]
    document = json.loads(as_json({"lake": found}))
    assert [one["name"] for one in document["lake"]] == ["crm.logs", "crm.people", "ods.orders"]
    assert document["lake"][2]["identity"] == ["_tm_source", "Id"]
    assert (document["lake"][2]["key"], document["lake"][2]["is_primary"]) == (["_tm_source", "cents", "Id"], True)


def test_tables_of_one_target_have_one_key(spark: SparkSession) -> None:
    shards = [SourceTable.of(SOURCE_ID, f"shop_{number}", "orders") for number in (1, 2)]
    transforms = [TransformSettings(tables="shop_2.*", where="Id > 0"), TransformSettings(tables="shop_1.*", key=("status",))]
    routes = Routes("lake", [RouteSettings(tables=r"shop_\d+\.orders", into="ods.orders")], transforms)
    (found,) = planned_targets(spark, routes, dict.fromkeys(shards, SHORT))
    assert "key of ods.orders is not the same for shop_1.orders and shop_2.orders" in str(found.problem)
    transforms[0] = TransformSettings(tables="shop_2.*", key=("status",))
    routes = Routes("lake", [RouteSettings(tables=r"shop_\d+\.orders", into="ods.orders")], transforms)
    (found,) = planned_targets(spark, routes, dict.fromkeys(shards, SHORT))
    assert "    key:      status  (an index: the identity is not in it)" in as_text({"lake": [found]})
