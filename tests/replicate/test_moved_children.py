"""Parents that change while tables are loaded: the target changes the children, though it lacks the parent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
import structlog

from tests.replicate.test_compaction import Replica
from tests.replicate.test_row_texts import row
from tests.support.servers import database

RULE = "ON DELETE {} ON UPDATE CASCADE"


@pytest.fixture(params=["mysql80", "mariadb114"])
def replica(request, fresh_database) -> Iterator[Replica]:
    server = database(request.param)
    made = Replica(server, fresh_database(server))
    made.target.execute(f"ALTER TABLE {made.schema}.orders ADD UNIQUE (d)")
    yield made
    made.target.close()


def child(replica: Replica, name: str, columns: str, rule: str, *rows: str) -> None:
    """Create a child, with rows whose parents may be missing."""
    replica.target.execute(f"CREATE TABLE {replica.schema}.{name} (id INT PRIMARY KEY, {columns} {RULE.format(rule)})")
    replica.target.execute("SET foreign_key_checks = 0")
    replica.target.execute(f"INSERT INTO {replica.schema}.{name} VALUES {','.join(rows)}")
    replica.target.execute("SET foreign_key_checks = 1")


def load(replica: Replica, *changes, tables: tuple[str, ...] = ("orders",)) -> list:
    """Write changes of `orders` while some tables are loaded; return the logged events."""
    events = [replica._event(number, *change) for number, change in enumerate(changes)]
    with structlog.testing.capture_logs() as logs, replica.target.transaction():
        replica.writer.write(events, {"": tuple(f"{replica.schema}.{name}" for name in tables)})
    return logs


def rows(replica: Replica, table: str) -> list[tuple]:
    return replica.target.rows(f"SELECT * FROM {replica.schema}.{table} ORDER BY id")


def test_a_deleted_parent_that_is_not_loaded_yet_takes_its_children_with_it(replica):
    parent = f"o INT, FOREIGN KEY (o) REFERENCES {replica.schema}.orders (id)"
    child(replica, "gone", parent, "CASCADE", "(1, 1)", "(2, 2)", "(3, NULL)")
    child(replica, "emptied", parent, "SET NULL", "(1, 1)", "(2, 2)")
    assert load(replica, ("d", row(1), None)) == []
    assert rows(replica, "gone") == [(2, 2), (3, None)]
    assert rows(replica, "emptied") == [(1, None), (2, 2)]
    assert replica.rows() == []


@pytest.mark.parametrize("tables", [("orders",), ("other",)])
def test_children_follow_each_key_of_a_parent_that_changes_during_a_load(replica, tables):
    """The key that is referred to need not be the primary one; the parent may be loaded, and another table not."""
    child(replica, "by_id", f"o INT, FOREIGN KEY (o) REFERENCES {replica.schema}.orders (id)", "CASCADE", "(1, 1)")
    child(replica, "by_date", f"d DATE, FOREIGN KEY (d) REFERENCES {replica.schema}.orders (d)", "CASCADE", "(1, '2024-01-01')")
    old = {"id": 1, "t": "a", "d": days("2024-01-01")}
    new = {"id": 5, "t": "a", "d": days("2024-02-02")}
    if tables == ("other",):
        replica.write(("c", None, old))
    assert load(replica, ("u", old, old | {"d": new["d"]}), ("u", old | {"d": new["d"]}, new), tables=tables) == []
    assert rows(replica, "by_id") == [(1, 5)]
    assert rows(replica, "by_date") == [(1, dt.date(2024, 2, 2))]
    assert replica.rows() == [(5, "a")]


def test_rows_that_are_reached_through_a_table_that_is_loaded_are_named(replica):
    child(replica, "between", f"o INT, FOREIGN KEY (o) REFERENCES {replica.schema}.orders (id)", "CASCADE", "(1, 1)")
    child(replica, "far", f"b INT, FOREIGN KEY (b) REFERENCES {replica.schema}.between (id)", "CASCADE", "(1, 7)")
    assert load(replica, ("d", row(1), None), tables=("orders", "far")) == []
    named = load(replica, ("d", row(2), None), ("d", row(3), None), tables=("orders", "between"))
    assert [(one["event"], one["parent"], one["children"]) for one in named] == [
        ("task.children_uncertain", f"{replica.schema}.orders", [f"{replica.schema}.far"])
    ]


def days(text: str) -> int:
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days
