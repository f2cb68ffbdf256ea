"""Scopes: which rows a task reads, and what its COMPLETE marker says of the others."""

from __future__ import annotations

import json
from typing import Literal

import pymysql
import pytest

from producer.snapshot import scope
from producer.snapshot.child_rows import ChildrenUnreadableError, ChildRows
from producer.snapshot.coordinator import record_field_name
from producer.snapshot.ranges import KeyRange, key_identity
from producer.snapshot.scope import scope_of
from producer.snapshot.snapshot_state import ReadTask
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import ValueModes
from schemas.names import NameMode
from schemas.settings import FormatSettings
from schemas.types.connect import row_schema


@pytest.mark.parametrize("mode", ["none", "avro", "avro_unicode"])
@pytest.mark.parametrize("wire", ["avro", "json"])
def test_a_sweep_calls_columns_what_records_call_them(wire: Literal["avro", "json"], mode: NameMode) -> None:
    """Else the sink knows no such columns, and children that are gone stay in it."""
    names = ("id", "1: ré", "a-b", "x.y", "表", "plain")
    columns = tuple(Column(name, ColumnType.INT, nullable=name != "id") for name in names)
    row = row_schema(TableSchema("db", "c", columns, ("id",)), "srv", ValueModes(field_names=mode))
    fields = [field.name for field in row.fields]
    if wire == "avro":
        (record,) = (branch for branch in json.loads(to_avro(row)) if branch != "null")
        fields = [field["name"] for field in record["fields"]]
    assert [record_field_name(name, FormatSettings(type=wire, field_names=mode)) for name in names] == fields


ROWS = TableSchema("db", "c", (Column("id", ColumnType.INT, nullable=False), Column("p", ColumnType.INT, nullable=True)), ("id",))
PARENTS = ChildRows(("p",), frozenset({("1",), ("2",)}))


def tasks() -> dict[str, ReadTask]:
    return {
        "whole": ReadTask("r", "db.c"),
        "filtered": ReadTask("r", "db.c", condition="id < 9"),
        "key rows": ReadTask("k", "db.c", children=PARENTS),
    }


def test_only_a_whole_table_says_that_what_was_not_found_is_gone() -> None:
    found = {name: scope_of(task).completion(str.upper) for name, task in tasks().items()}
    assert found == {
        "whole": {"whole_table": True},
        "filtered": {"whole_table": False},
        "key rows": {"whole_table": False, "sweep": PARENTS.sweep(["P"])},
    }
    assert [name for name, task in tasks().items() if scope_of(task).is_whole_table] == ["whole"]


def test_each_scope_selects_its_rows() -> None:
    bounds = KeyRange(("3",), ("7",))
    found = {name: scope_of(task).query(ROWS, bounds, None) for name, task in tasks().items()}
    assert "WHERE (`id` > 3) AND (`id` <= 7)" in found["whole"]
    assert found["filtered"] == f"{found['whole']} AND (\nid < 9\n)"
    assert found["key rows"].endswith("WHERE `p` IN (1, 2)")


def test_all_rows_at_once_need_no_key_and_no_surrogate() -> None:
    chosen = ReadTask("r", "db.c", condition="id < 9", surrogate="misspelt")
    assert scope_of(chosen).query_all(ROWS, None).endswith("WHERE (\nid < 9\n)")


def test_a_plan_rests_on_the_key_that_splits_the_table_and_key_rows_on_none() -> None:
    planned = key_identity(ROWS)
    by_column = ReadTask("r", "db.c", surrogate="p")
    assert [scope_of(task).fits(ROWS, planned) for task in (*tasks().values(), by_column)] == [True, True, True, False]
    assert [scope_of(task).fits(ROWS, ()) for task in tasks().values()] == [False, False, True]


def test_too_many_key_rows_are_refused_and_other_rows_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "MAX_KEY_ROWS", 3)
    whole, filtered, key_rows = (scope_of(task) for task in tasks().values())
    for each in (whole, filtered):
        each.require_few("db.c", 1_000_000)
    key_rows.require_few("db.c", 3)
    with pytest.raises(ChildrenUnreadableError, match="more than 3 children"):
        key_rows.require_few("db.c", 4)


def test_an_error_of_values_refuses_a_filter_and_nothing_else() -> None:
    error = pymysql.err.DataError(1690, "BIGINT value is out of range")
    found = {name: scope_of(task).refusal("db.c", error) for name, task in tasks().items()}
    assert "refuses the filter 'id < 9' of db.c" in found.pop("filtered")
    assert found == {"whole": "", "key rows": ""}
    assert scope_of(tasks()["filtered"]).refusal("db.c", pymysql.err.OperationalError(2013, "lost")) == ""
