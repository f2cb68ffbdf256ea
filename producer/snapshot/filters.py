"""Does the server accept a signal's filter at all? No retry helps where it does not.

It is asked before a table is planned or read by its filter, with a query of no rows. What only values show (a number out of
range, an expression that is none) comes with the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pymysql

from mysqlio.server_errors import source_error
from producer.snapshot.ranges import table_name
from producer.source.query import BinaryQuery
from schemas.errors import RetriableSourceError, SourceError

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.columns import TableSchema

_JSON_FUNCTIONS: Final = range(3140, 3159)
_REGULAR_EXPRESSIONS: Final = range(3685, 3700)  # since MySQL 8.0.4
_BY_VALUES: Final = frozenset(
    {
        1139,  # a regular expression
        1210, 1242, 1267, 1270, 1271, 1300,  # arguments; a subquery of several rows; collations; text of no character set
        1292, 1365, 1367, 1411, 1525, 1690,  # values that are none of their type; a division by zero; out of range
        *_JSON_FUNCTIONS,
        *_REGULAR_EXPRESSIONS,
    }
)  # fmt: skip


class FilterRefusedError(SourceError):
    """The server cannot evaluate a signal's filter; the same filter fails again."""


def require_filter(connection: Connection, table: TableSchema, condition: str | None) -> None:
    """Raise `FilterRefusedError` if the server refuses the filter, and nothing but the filter; else what the server answers."""
    if condition is None:
        return
    query = f"SELECT 1 FROM {table_name(table)}"  # noqa: S608 - quoted
    try:
        _ask(connection, f"{query} WHERE (\n{condition}\n) LIMIT 0")
    except pymysql.MySQLError as error:
        if isinstance(source_error(error, ""), RetriableSourceError):
            raise
        _ask(connection, f"{query} LIMIT 0")
        raise FilterRefusedError(refusal(table.full_name, condition, error)) from error


def is_of_values(error: BaseException) -> bool:
    """Return whether a query that the server accepted failed at the values of its rows."""
    return isinstance(error, pymysql.MySQLError) and bool(error.args) and error.args[0] in _BY_VALUES


def refusal(table: str, condition: str, error: BaseException) -> str:
    """Return the reason that status and notifications give for a filter that failed."""
    code, text = (*error.args, "")[:2]
    return f"the source refuses the filter {condition!r} of {table}: {text} ({code}). Send the signal with another filter"


def _ask(connection: Connection, sql: str) -> None:
    with BinaryQuery(connection, sql) as query:
        for _ in query.blocks():
            pass
