"""Verify with routes: tables under other names, several in one target, columns under other names and left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from schemas.settings import RouteSettings, Settings, TransformSettings
from spark_jobs.pipeline.select_items import columns_as_they_are
from tests.verify import sinks
from tests.verify.conftest import Scene
from tidemark.verify import sink_types, verify
from tidemark.verify.delta_reader import DeltaReader
from tidemark.verify.memory_reader import FaultyReader
from tidemark.verify.report import DifferenceKind

POSITION = "0003.0000000001.000000000004.0000000001"


@pytest.mark.parametrize(
    ("select", "found"),
    [
        ((), {"Id": "Id", "a b": "a b", "c": "c"}),
        (("*",), {"Id": "Id", "a b": "a b", "c": "c"}),
        (("* EXCEPT (c, `a b`)",), {"Id": "Id"}),
        (("id AS number", "`a b` AS ab"), {"Id": "number", "a b": "ab"}),
        (("c",), {"Id": "_tm_key_Id", "c": "c"}),
        (("upper(c) AS c", "1 AS one", "Id"), {"Id": "Id"}),
        (("Id + 1 AS Id",), {"Id": "_tm_key_Id"}),
        (("* except ( C )", "c AS `more c`"), {"Id": "Id", "a b": "a b", "c": "more c"}),
    ],
)
def test_columns_that_are_there_as_they_are(select: tuple[str, ...], found: dict[str, str]) -> None:
    assert columns_as_they_are(select, ["Id", "a b", "c"], ["Id"]) == found


def routed(scene: Scene, *routes: RouteSettings, transforms: tuple[TransformSettings, ...] = ()) -> Settings:
    return replace(scene.settings, sinks=(replace(scene.settings.sink, routes=routes, transforms=transforms),))


def write(settings: Settings, target: str, **columns: list[Any]) -> None:
    count = len(next(iter(columns.values())))
    rows = pa.table({**columns, "_tm_position": [POSITION] * count})
    database, _, name = target.partition(".")
    sinks.write_table(settings, database, name, rows)


def test_shards_in_one_target_are_compared_by_their_own_rows(scene: Scene) -> None:
    one, two = (f"{scene.database}.{name}" for name in ("orders_1", "orders_2"))
    scene.sql(
        "CREATE TABLE orders_1 (id INT PRIMARY KEY, amount INT, note VARCHAR(10))",
        "CREATE TABLE orders_2 LIKE orders_1",
        "INSERT INTO orders_1 VALUES (1, 10, 'a'), (2, 20, 'b')",
        "INSERT INTO orders_2 VALUES (1, 11, 'c'), (3, 31, 'd')",
    )
    transform = TransformSettings(tables=".*", select=("id AS number", "amount"))
    settings = routed(scene, RouteSettings(tables=r".*\.orders_\d", into="ods.orders"), transforms=(transform,))
    sources = [f"verify:{name}" for name in (one, one, two, two)]
    write(settings, "ods.orders", _tm_source=sources, number=[1, 2, 1, 3], amount=[10, 20, 11, 31], note=["A", "B", "C", "D"])
    sinks.caught_up(scene.connection, scene.server.flavour, settings, one, two)
    report = verify(settings, tables=[r".*orders_\d"])
    assert report.ok, report.to_text()
    assert [table.table for table in report.tables] == [f"{one} → ods.orders", f"{two} → ods.orders"]
    assert [(table.source_rows, table.sink_rows, table.sink_only_columns) for table in report.tables] == [(2, 2, ("note",))] * 2
    assert report.notes == (f"ods.orders: 1 key is of several source tables: number=1 (verify:{one}, verify:{two})",)
    assert report.notes[0] in report.to_text()

    write(
        settings, "ods.orders",
        _tm_source=[f"verify:{one}", f"verify:{two}", f"verify:{two}", f"verify:{two}"],
        number=[1, 1, 3, 2], amount=[10, 10, 31, 20], note=["A", "C", "D", "B"],
    )  # fmt: skip
    report = verify(settings, tables=[r".*orders_\d"], patience_s=5)
    kinds = [[(one.kind, one.key["id"]) for one in table.differences] for table in report.tables]
    assert kinds[0] == [(DifferenceKind.MISSING, "2")], "the row of another shard is not the row of this one"
    assert sorted(kinds[1]) == [(DifferenceKind.EXTRA, "2"), (DifferenceKind.VALUE, "1")]


def test_rows_of_a_table_that_is_not_captured_are_not_ok(scene: Scene) -> None:
    scene.sql(
        "DROP TABLE tidemark_signal", "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)"
    )
    settings = routed(scene, RouteSettings(tables=".*", into="ods.all"))
    names = [f"{scene.database}.{name}" for name in ("a", "b")]
    sinks.caught_up(scene.connection, scene.server.flavour, settings, *names)
    write(settings, "ods.all", _tm_source=[f"verify:{names[0]}", "verify:other.gone"], id=[1, 1])
    report = verify(settings)
    assert not report.ok
    assert [table.not_compared for table in report.tables if table.not_compared] == [
        "1 rows are of source tables that are not captured, or do not go into it"
    ]
    write(settings, "ods.all", _tm_source=[f"verify:{names[0]}"], id=[1])
    assert verify(settings).ok


def test_a_table_under_another_name_and_in_two_targets(scene: Scene) -> None:
    scene.sql("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    name = f"{scene.database}.a"
    settings = routed(scene, RouteSettings(tables=r".*\.a", into="ods.x"), RouteSettings(tables=r".*\.a", into="ods.y"))
    sinks.caught_up(scene.connection, scene.server.flavour, settings, name)
    write(settings, "ods.x", id=[1])
    write(settings, "ods.y", id=[1])
    report = verify(settings, tables=[r".*\.a"])
    assert [(table.table, table.not_compared) for table in report.tables] == [(f"{name} → ods.x", None), (f"{name} → ods.y", None)]


def test_a_sink_that_is_lost_while_it_is_read_is_read_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.sql("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    write(scene.settings, f"{scene.database}.a", id=[1])
    faulty = FaultyReader(DeltaReader(scene.settings.sink.path), failures=1)
    monkeypatch.setattr(sink_types, "READERS", {"delta": lambda _sink: faulty})
    assert verify(scene.settings, tables=[r".*\.a"]).ok
    faulty.failures = 2
    (report,) = verify(scene.settings, tables=[r".*\.a"]).tables
    assert "the sink was lost while it was read" in str(report.not_compared)
