"""The rows of a database on two servers, compared by their values."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from devservers import Database
from mysqlio.quoting import qualified, quoted
from tidemark.demo import shop

if TYPE_CHECKING:
    from mysqlio.connection import Connection

_SHOWN: Final = 3


def compare(source: Database, target: Database, database: str) -> tuple[int, list[str]]:
    """Return how many rows the source has, and the differences: tables and rows that one of the two lacks."""
    with source.connect() as one, target.connect() as other:
        tables = _tables(one, database)
        differences = [f"{database}.{table}: one of the two lacks it" for table in sorted(tables ^ _tables(other, database))]
        rows = 0
        for table in sorted(tables):
            if not differences:
                query = _query(one, database, table)
                theirs, ours = _rows(one, query), _rows(other, query)
                rows += theirs.total()
                differences += _shown(f"{database}.{table}: missing in the target", theirs - ours)
                differences += _shown(f"{database}.{table}: in the target alone", ours - theirs)
    return rows, differences


def _tables(connection: Connection, database: str) -> set[str]:
    asked = f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{database}'"
    return {str(name) for (name,) in _rows(connection, asked)} - {shop.SIGNAL_TABLE}


def _query(connection: Connection, database: str, table: str) -> str:
    """Return the SELECT of all columns.

    A server prints six digits of a FLOAT: it is asked for the DOUBLE of the same value. MySQL takes the name `*` for all columns.
    """
    columns = _rows(
        connection,
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS "
        f"WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = '{table}' ORDER BY ORDINAL_POSITION",
    )
    forms = {name: f"{quoted(name)} * 1E0" for name, kind in columns if kind == "float"} | {"*": "COALESCE(`*`)"}
    chosen = [forms.get(name, quoted(name)) for name, _ in columns]
    return f"SELECT {', '.join(chosen)} FROM {qualified(database, table)}"


def _rows(connection: Connection, query: str) -> Counter[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return Counter(cursor.fetchall())


def _shown(found: str, rows: Counter[tuple[Any, ...]]) -> list[str]:
    return [f"{found}, {rows.total()} rows: {', '.join(map(repr, list(rows)[:_SHOWN]))}"] if rows else []
