"""Verify with computed columns and conditions: what the plan makes of the source's rows is compared with the target's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from schemas.settings import RouteSettings, Settings, TransformSettings, UdfSettings
from tests.verify import sinks
from tests.verify.conftest import Scene
from tests.verify.test_routed_verify import POSITION, routed, write
from tidemark.verify import TableReport, verify
from tidemark.verify.report import DifferenceKind


def masked(text: str | None) -> str | None:
    """Return a text without what follows its first character."""
    return None if text is None else text[:1] + "*"


pytestmark = pytest.mark.parametrize("scene", ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)], indirect=True)
UDF = UdfSettings(name="masked", function="tests.verify.test_image_verify:masked", returns="string")
COMPUTED = TransformSettings(
    tables=r".*\.orders_\d",
    select=(
        "* EXCEPT (note)", "amount * 100 AS cents", "masked(note) AS note", "__database__ AS shard", "__position__ AS at",
        "concat(__op__, '') AS op",
    ),
    where="status <> 'draft'",
)  # fmt: skip


def test_a_wrong_computed_column_a_row_that_should_not_match_and_a_missing_row_are_found(
    scene: Scene, spark: SparkSession
) -> None:
    one, two = (f"{scene.database}.{name}" for name in ("orders_1", "orders_2"))
    scene.sql(
        "CREATE TABLE orders_1 (id INT PRIMARY KEY, amount DECIMAL(8,2), status VARCHAR(10), note VARCHAR(10))",
        "CREATE TABLE orders_2 LIKE orders_1",
        "INSERT INTO orders_1 VALUES (1, 1.25, 'open', 'abc'), (2, 2.5, 'draft', 'x'), (3, NULL, 'paid', NULL), (4, 4, NULL, '')",
        "INSERT INTO orders_2 VALUES (1, 9.99, 'open', 'zz'), (2, 0.01, 'open', 'y')",
    )
    settings = routed(scene, RouteSettings(tables=r".*\.orders_\d", into="ods.orders"), transforms=(COMPUTED,))
    settings = replace(settings, udfs=(UDF,))
    sinks.caught_up(scene.connection, scene.server.flavour, settings, one, two)

    def put(**changed: list[Any]) -> None:
        rows = {
            "_tm_source": [f"verify:{one}", f"verify:{one}", f"verify:{two}", f"verify:{two}"],
            "id": [1, 3, 1, 2], "amount": ["1.25", None, "9.99", "0.01"], "status": ["open", "paid", "open", "open"],
            "cents": ["125.00", None, "999.00", "1.00"], "note": ["a*", None, "z*", "y*"], "shard": [scene.database] * 4,
            "at": ["p"] * 4, "op": ["c"] * 4,
        }  # fmt: skip
        rows |= changed
        kinds = {"id": pa.int32(), "amount": pa.decimal128(8, 2), "cents": pa.decimal128(14, 2)}
        columns = {
            name: pa.array([None if v is None else Decimal(v) for v in values], kinds[name])
            if name in ("amount", "cents")
            else pa.array(values, kinds.get(name, pa.string()))
            for name, values in rows.items()
        }
        columns["_tm_position"] = pa.array([POSITION] * len(rows["id"]))
        sinks.write_table(settings, "ods", "orders", pa.table(columns))

    put()
    report = verify(settings, tables=[r".*orders_\d"], patience_s=5)
    assert report.ok, report.to_text()
    assert [(table.source_rows, table.sink_rows, table.record_columns, table.sink_only_columns) for table in report.tables] == [
        (2, 2, ("at", "op"), ())
    ] * 2
    assert report.to_text().count("not compared, of the newest record and not of the row: at, op") == 1

    put(  # a falsified computed column; a row that should not match; 3 is missing; the row of another shard is right
        _tm_source=[f"verify:{one}", f"verify:{one}", f"verify:{two}", f"verify:{two}"],
        id=[1, 2, 1, 2], amount=["1.25", "2.50", "9.99", "0.01"], status=["open", "draft", "open", "open"],
        cents=["125.01", "250.00", "999.00", "1.00"], note=["a*", "x*", "z*", "yy"],
    )  # fmt: skip
    first, second = verify(settings, tables=[r".*orders_\d"], patience_s=5).tables
    assert {(part.kind, part.key["id"]): [c.column for c in part.columns] for part in first.differences if part.columns} == {
        (DifferenceKind.VALUE, "1"): ["cents"],
        (DifferenceKind.EXTRA, "2"): ["id", "amount", "status", "cents", "note", "shard"],
        (DifferenceKind.MISSING, "3"): ["id", "amount", "status", "cents", "note", "shard"],
    }
    assert [(part.kind, part.columns[0].source, part.columns[0].sink) for part in second.differences] == [
        (DifferenceKind.VALUE, "'y*'", "'yy'")
    ]


def one_report(settings: Settings) -> TableReport:
    (report,) = verify(settings, tables=[r".*\.t"], patience_s=5).tables
    return report


def transformed(scene: Scene, *select: str, where: str | None = None) -> Settings:
    settings = routed(scene, transforms=(TransformSettings(tables=r".*\.t", select=select, where=where),))
    sinks.caught_up(scene.connection, scene.server.flavour, settings, f"{scene.database}.t")
    return settings


def test_rows_on_which_an_expression_fails_are_named_and_the_others_compared(scene: Scene, spark: SparkSession) -> None:
    scene.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO t VALUES (1, 10, 2), (2, 10, 0), (3, 9, 3), (4, 1, 0), (5, 8, 2)",
    )
    settings = transformed(scene, "id", "CAST(a / b AS INT) AS ratio")
    ratios = {"id": pa.array([1, 2, 3, 5], pa.int32()), "ratio": pa.array([5, 7, 3, 5], pa.int32())}
    write(settings, f"{scene.database}.t", **ratios)
    report = one_report(settings)
    assert report.not_compared == (
        "an expression fails on 2 rows of the source (id=2; id=4): they are in quarantine, and the target has them as they were before"
    )
    assert [(part.kind, part.key["id"]) for part in report.differences] == [(DifferenceKind.VALUE, "5")]


def test_keys_that_are_binary_composite_or_left_out_and_types_of_every_kind(scene: Scene, spark: SparkSession) -> None:
    scene.sql(
        "CREATE TABLE t (k VARBINARY(8), n BIGINT UNSIGNED, d DATETIME(6), s TIMESTAMP(3) NULL, f DOUBLE, g DATE, j JSON,"
        " PRIMARY KEY (k, n))",
        "INSERT INTO t VALUES (x'00FF', 18446744073709551615, '2024-01-02 03:04:05.000006', '2024-01-02 03:04:05', 0.1, '2024-02-29',"
        " '{\"a\": 1}'), ('', 0, NULL, NULL, NULL, NULL, NULL)",
    )
    settings = transformed(
        scene,
        "d", "date_add(g, 1) AS g1", "s + INTERVAL 1 HOUR AS s1", "f * 2 AS f2", "f > 0 AS positive", "array(f, NULL) AS listed",
        "named_struct('x', n, 'y', hex(k)) AS pair", "map('a', f, 'b', 1D) AS mapped", "get_json_object(j, '$.a') AS a",
        where="n >= 0",
    )  # fmt: skip
    moment = datetime(2024, 1, 2, 3, 4, 5, 6)
    rows = {
        "_tm_key_k": pa.array([b"\0\xff", b""], pa.binary()),
        "_tm_key_n": pa.array([Decimal(2**64 - 1), Decimal(0)], pa.decimal128(20, 0)),
        "d": pa.array([moment, None], pa.timestamp("us")),
        "g1": pa.array([datetime(2024, 3, 1, tzinfo=UTC).date(), None], pa.date32()),
        "s1": pa.array([datetime(2024, 1, 2, 4, 4, 5, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "f2": pa.array([0.2, None], pa.float64()),
        "positive": pa.array([True, None]),
        "listed": pa.array([[0.1, None], [None, None]], pa.list_(pa.float64())),
        "pair": pa.array(
            [{"x": Decimal(2**64 - 1), "y": "00FF"}, {"x": Decimal(0), "y": ""}],
            pa.struct([("x", pa.decimal128(20, 0)), ("y", pa.string())]),
        ),
        "mapped": pa.array([[("b", 1.0), ("a", 0.1)], [("a", None), ("b", 1.0)]], pa.map_(pa.string(), pa.float64())),
        "a": pa.array(["1", None]),
    }
    write(settings, f"{scene.database}.t", **rows)
    report = one_report(settings)
    assert report.ok, verify(settings, tables=[r".*\.t"], patience_s=5).to_text()
    assert (report.source_rows, report.sink_rows, report.sink_only_columns, report.absent_columns) == (2, 2, (), ())
    wrong = rows | {"pair": pa.array([{"x": Decimal(1), "y": "00FF"}, {"x": Decimal(0), "y": ""}], rows["pair"].type)}
    write(settings, f"{scene.database}.t", **wrong)
    (difference,) = one_report(settings).differences
    assert ([part.column for part in difference.columns], difference.key) == (["pair"], {"k": "0x00ff", "n": str(2**64 - 1)})


def test_a_condition_on_the_record_and_an_expression_that_does_not_fit_are_reasons(scene: Scene, spark: SparkSession) -> None:
    scene.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    settings = transformed(scene, where="__position__ > ''")
    write(settings, f"{scene.database}.t", id=[1])
    assert "is about the newest record" in str(one_report(settings).not_compared)
    settings = transformed(scene, "id", "__op__ AS kind", where="kind = 'c'")
    assert "the condition kind = 'c' is about the newest record" in str(one_report(settings).not_compared)
    settings = transformed(scene, "id", "upper(nome) AS name")
    reason = str(one_report(settings).not_compared)
    assert "has no column 'nome'" in reason


@pytest.mark.parametrize("select", [(), ("id", "v + 1 AS w")], ids=["as it is", "computed"])
def test_rows_that_are_kept_after_their_end_are_not_compared(scene: Scene, spark: SparkSession, select: tuple[str, ...]) -> None:
    scene.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    transform = TransformSettings(tables=r".*\.t", select=select, soft_delete="gone")
    settings = routed(scene, transforms=(transform,))
    sinks.caught_up(scene.connection, scene.server.flavour, settings, f"{scene.database}.t")
    column, values = ("w", [2, 3, 8]) if select else ("v", [1, 2, 7])
    rows = {"id": pa.array([1, 2, 7], pa.int32()), column: pa.array(values, pa.int32())}
    write(settings, f"{scene.database}.t", **rows, gone=[False, False, True])
    report = one_report(settings)
    assert (report.ok, report.sink_rows, report.sink_only_columns) == (True, 2, ())
    write(settings, f"{scene.database}.t", **rows, gone=[False, True, False])
    found = {(part.kind, part.key["id"]) for part in one_report(settings).differences}
    assert found == {(DifferenceKind.MISSING, "2"), (DifferenceKind.EXTRA, "7")}


@pytest.mark.slow
def test_many_rows_in_ranges_and_a_wider_type_in_the_target(scene: Scene, spark: SparkSession) -> None:
    count, wrong = 5_000, {0, 257, 2_500, 4_999}
    values = ",".join(f"({2 * index - 3000},{index})" for index in range(count))
    scene.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", f"INSERT INTO t VALUES {values}")
    settings = transformed(scene, "id", "v + 1 AS w", where="v % 2 = 0 OR v < 1000")
    kept = [index for index in range(count) if index % 2 == 0 or index < 1000]
    rows = {
        "id": pa.array([2 * index - 3000 for index in kept], pa.int64()),
        "w": pa.array([str(-1 if index in wrong else index + 1) for index in kept], pa.string()),
    }
    write(settings, f"{scene.database}.t", **rows)
    report = one_report(settings)
    assert (report.source_rows, report.sink_rows) == (len(kept), len(kept))
    assert report.ranges == -(-len(kept) // 256)
    assert {int(part.key["id"]) for part in report.differences} == {2 * index - 3000 for index in wrong if index in set(kept)}
