"""Versions of a table's columns, by the records of the schema-change topic."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import DecodeError
from schemas.identity import TableName
from schemas.json_codec import encode
from schemas.position import Position
from schemas.schema_changes import ChangeOrigin, ModelColumn, SchemaChange, TableModel, change_value
from tidemark.api.schema_history import (
    AS_FOUND,
    BeforeAndAfter,
    SchemaHistory,
    columns_of,
    difference,
    histories_of,
    history_of,
)

ORDERS = TableName("shop", "orders")
ID = ModelColumn("id", 4, "INT", optional=False, auto_increment=True)
NAME = ModelColumn("name", 12, "VARCHAR", charset="utf8mb4", length=20)
PRICE = ModelColumn("price", 3, "DECIMAL UNSIGNED", length=10, scale=2, default="0")
KIND = ModelColumn("kind", 1, "ENUM", length=1, members=("'a'", "'b'"))


def model(*columns: ModelColumn, table: str = "orders", key: tuple[str, ...] = ("id",)) -> TableModel:
    return TableModel("shop", table, "utf8mb4", key, columns)


def record(ddl: str, kind: str, after: TableModel | None, pos: int = 4, *, table: str = "orders", start: bool = False) -> dict[str, Any]:
    change = SchemaChange(ddl, "shop", kind, ("shop", table), after, table)  # type: ignore[arg-type]
    origin = ChangeOrigin(Position(0, 1, pos), pos * 1_000_000, "binlog.000001", pos, snapshot="true" if start else "false")
    return change_value(change, origin, "shop", "mysql", 0, comments=True)


def of_database(ddl: str, database: str = "shop") -> dict[str, Any]:
    return change_value(SchemaChange(ddl, database), ChangeOrigin(Position(0, 1, 900), 0, "binlog.000001", 900), "shop", "mysql", 0)


def start(*columns: ModelColumn) -> list[dict[str, Any]]:
    return [record("DROP TABLE IF EXISTS ...", "DROP", None, start=True), record("CREATE TABLE ...", "CREATE", model(*columns), start=True)]


def kinds(history: SchemaHistory) -> list[tuple[str, int | None]]:
    return [(one.kind, one.version) for one in history.events]


def test_a_history_begins_with_the_table_as_it_was_found() -> None:
    history = history_of(ORDERS, start(ID, NAME))
    assert kinds(history) == [(AS_FOUND, 1)]
    assert history.version == 1
    assert [column.name for column in history.versions[1].columns] == ["id", "name"]


def test_what_a_later_start_repeats_adds_nothing_unless_the_table_is_another() -> None:
    assert kinds(history_of(ORDERS, [*start(ID), *start(ID)])) == [(AS_FOUND, 1)]
    assert kinds(history_of(ORDERS, [*start(ID), *start(ID, NAME)])) == [(AS_FOUND, 1), (AS_FOUND, 2)]


def test_a_statement_that_changes_no_column_is_in_the_history_and_makes_no_version() -> None:
    records = [*start(ID), record("ALTER TABLE orders ADD INDEX (id)", "ALTER", model(ID), 100)]
    history = history_of(ORDERS, [*records, record("ALTER TABLE orders ADD name ...", "ALTER", model(ID, NAME), 200)])
    assert kinds(history) == [(AS_FOUND, 1), ("ALTER", 1), ("ALTER", 2)]
    last = history.events[-1]
    assert (last.ddl, last.file, last.pos, last.committed_ms) == ("ALTER TABLE orders ADD name ...", "binlog.000001", 200, 200_000)


def test_a_table_that_is_dropped_has_no_version_and_a_new_one_after_it() -> None:
    records = [*start(ID), record("DROP TABLE orders", "DROP", None, 100)]
    assert history_of(ORDERS, records).version is None
    again = history_of(ORDERS, [*records, record("CREATE TABLE orders", "CREATE", model(ID), 200)])
    assert kinds(again) == [(AS_FOUND, 1), ("DROP", None), ("CREATE", 2)]


def test_a_database_that_is_dropped_takes_its_table_along() -> None:
    assert kinds(history_of(ORDERS, [*start(ID), of_database("DROP DATABASE shop")])) == [(AS_FOUND, 1), ("DROP", None)]
    others = [of_database("DROP DATABASE other", "other"), of_database("ALTER DATABASE shop CHARACTER SET latin1")]
    assert kinds(history_of(ORDERS, [*start(ID), *others])) == [(AS_FOUND, 1)]


def test_many_histories_are_those_of_each_table_alone() -> None:
    other = record("CREATE TABLE other", "CREATE", model(ID, table="other"), 50, table="other")
    records = [*start(ID), other, of_database("DROP DATABASE shop"), of_database("DROP DATABASE shop2", "shop2")]
    names = [ORDERS, TableName("shop", "other"), TableName("shop", "none")]
    assert histories_of(names, records) == {name: history_of(name, records) for name in names}
    assert kinds(history_of(names[1], records)) == [("CREATE", 1), ("DROP", None)]


def test_a_database_that_is_dropped_before_a_table_was_made_says_nothing_of_it() -> None:
    assert history_of(ORDERS, [of_database("DROP DATABASE shop")]).events == ()


def test_other_tables_are_left_out() -> None:
    other = record("CREATE TABLE orders2", "CREATE", model(ID, table="orders2"), table="orders2")
    assert history_of(ORDERS, [other]).events == ()
    assert history_of(ORDERS, []).version is None


def test_what_is_no_schema_change_is_an_error() -> None:
    with pytest.raises(DecodeError, match="not a schema-change record"):
        history_of(ORDERS, [{"op": "c"}])


@pytest.mark.parametrize(
    ("column", "text"),
    [(ID, "INT"), (NAME, "VARCHAR(20)"), (PRICE, "DECIMAL(10,2) UNSIGNED"), (KIND, "ENUM('a','b')")],
)
def test_types_are_written_as_sql(column: ModelColumn, text: str) -> None:
    assert columns_of(model(column)).columns[0].type == text


def test_a_difference_names_columns_that_are_added_dropped_changed_and_moved() -> None:
    before = columns_of(model(ID, NAME, PRICE))
    longer = ModelColumn("name", 12, "VARCHAR", charset="utf8mb4", length=40, optional=False)
    after = columns_of(model(ID, KIND, longer))
    found = difference(before, after)
    assert [column.name for column in found.added] == ["kind"]
    assert [column.name for column in found.dropped] == ["price"]
    ((changed),) = found.changed
    assert (changed.before.type, changed.after.type, changed.what) == ("VARCHAR(20)", "VARCHAR(40)", ("type", "nullable"))
    assert found.moved == ()
    assert encode(found)["changed"][0]["what"] == ["type", "nullable"]


def test_a_difference_names_order_key_and_character_set() -> None:
    before = columns_of(model(ID, NAME, PRICE))
    after = columns_of(TableModel("shop", "orders", "latin1", ("name", "id"), (PRICE, ID, NAME)))
    found = difference(before, after)
    assert found.moved == ("price",)
    assert found.key == BeforeAndAfter(("id",), ("name", "id"))
    assert found.charset == BeforeAndAfter("utf8mb4", "latin1")
    assert not found.is_empty
    assert difference(before, before).is_empty
