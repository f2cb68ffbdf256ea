"""The scope of a task: which rows of its table it reads, and what follows from that (pure but for `require_readable`).

`WholeTable`  every row; rows that the snapshot does not find are deleted from sinks (`whole_table` in the COMPLETE marker)
`Filtered`    the rows that a signal's condition selects; nothing is deleted
`KeyRows`     the rows with certain values of a foreign key; those with an old value that are not found are deleted

The server is asked whether it accepts a condition before a table is planned or read by it, with a query of no rows: no retry
helps if it does not. What only values show (a number out of range, an invalid expression) comes with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mysqlio.binary_query import BinaryQuery
from mysqlio.server_errors import ServerError, server_code, source_error
from producer.snapshot.child_rows import ChildrenUnreadableError, ChildRows
from producer.snapshot.ranges import KeyIdentity, KeyRange, chunk_query, key_identity, table_name
from producer.snapshot.snapshot_state import ReadTask
from schemas.errors import RetriableSourceError, SourceError
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.columns import TableSchema

_JSON_FUNCTIONS: Final = range(3140, 3159)
_REGULAR_EXPRESSIONS: Final = range(3685, 3700)  # since MySQL 8.0.4
_BY_VALUES: Final = frozenset(
    {
        1139,  # a regular expression
        1210, 1242, 1267, 1270, 1271, 1300,  # arguments; a subquery of several rows; collations; text of no character set
        1292, 1365, 1367, 1411, 1525, 1690,  # values that do not fit their type; a division by zero; out of range
        *_JSON_FUNCTIONS,
        *_REGULAR_EXPRESSIONS,
    }
)  # fmt: skip
MAX_KEY_ROWS: Final = 500_000
"""Rows of one window by their parents; beyond that the table is read whole, in chunks."""


class FilterRefusedError(SourceError):
    """The server cannot evaluate a signal's filter; the same filter fails again."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows by ranges of the table's key, or of the column `surrogate`, under the condition of a signal if there is one.

    One for all chunks of a task. The subclasses say what differs.
    """

    condition: str | None = None
    surrogate: str | None = None

    @property
    def is_whole_table(self) -> bool:
        """Whether rows that are not found no longer exist."""
        return False

    def query(self, table: TableSchema, bounds: KeyRange, shown: Sequence[str] | None) -> str:
        """Return the SELECT of a chunk: every column, in table order; `shown` as `rows_query` has it."""
        return chunk_query(table, bounds, self.condition, self.surrogate, shown)

    def query_all(self, table: TableSchema, shown: Sequence[str] | None) -> str:
        """Return the SELECT of all rows at once, which needs no key."""
        return chunk_query(table, KeyRange(), self.condition, shown=shown)

    def fits(self, table: TableSchema, planned: KeyIdentity) -> bool:
        """Return whether chunks that were planned for this key can be read from the table as it is now."""
        return key_identity(table, self.surrogate) == planned

    def estimate(self, rows: int) -> int | None:  # noqa: ARG002 - for subclasses
        """Return how many of the table's rows are expected, None if nobody knows."""
        return None

    def require_readable(self, connection: Connection, table: TableSchema) -> None:
        """Raise `FilterRefusedError` if the server cannot evaluate the condition."""

    def require_few(self, table: str, rows: int) -> None:
        """Raise `ChildrenUnreadableError` if so many rows are too many for one window."""

    def refusal(self, table: str, error: BaseException) -> str:  # noqa: ARG002 - for subclasses
        """Return why the condition fails at the values of rows, "" for an error of another kind."""
        return ""

    def completion(self, field_name: Callable[[str], str]) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Return the fields of the COMPLETE marker about rows that were not found."""
        return {"whole_table": self.is_whole_table}


@dataclass(frozen=True, slots=True)
class WholeTable(Scope):
    """Every row of the table."""

    @property
    @override
    def is_whole_table(self) -> bool:
        """Say yes."""
        return True

    @override
    def estimate(self, rows: int) -> int | None:
        """Return all of them."""
        return rows


@dataclass(frozen=True, slots=True)
class Filtered(Scope):
    """The rows that a signal's condition selects. The server is asked about the condition before it is used."""

    @override
    def require_readable(self, connection: Connection, table: TableSchema) -> None:
        """Ask the server with a query of no rows."""
        require_filter(connection, table, self.condition)

    @override
    def refusal(self, table: str, error: BaseException) -> str:
        """Return the reason for an error that only values show."""
        return refusal(table, self.condition or "", error) if is_of_values(error) else ""


@dataclass(frozen=True, slots=True)
class KeyRows(Scope):
    """The rows that changes of their parents may have changed: one chunk, which no key range divides."""

    rows: ChildRows = field(kw_only=True)

    @override
    def query(self, table: TableSchema, bounds: KeyRange, shown: Sequence[str] | None) -> str:
        """Return the SELECT by values of the foreign key; `ChildrenUnreadableError` if that key is gone."""
        return self.rows.query(table, shown)

    @override
    def query_all(self, table: TableSchema, shown: Sequence[str] | None) -> str:
        """Return the same SELECT."""
        return self.rows.query(table, shown)

    @override
    def fits(self, table: TableSchema, planned: KeyIdentity) -> bool:
        """Say yes: the foreign key is checked by `query`."""
        return True

    @override
    def require_few(self, table: str, rows: int) -> None:
        """Refuse what does not fit into one window."""
        if rows > MAX_KEY_ROWS:
            message = f"{table}: more than {MAX_KEY_ROWS:,} children of the parents that changed"
            raise ChildrenUnreadableError(message)

    @override
    def completion(self, field_name: Callable[[str], str]) -> dict[str, Any]:
        """Return the sweep of the old values; columns have their names in records."""
        names = [field_name(name) for name in self.rows.columns]
        return {"whole_table": False, "sweep": self.rows.sweep(names)}


def scope_of(task: ReadTask) -> Scope:
    """Return the scope of a task as it is now: the rows of parents join a task until its window has a bound."""
    if task.children is not None:
        return KeyRows(rows=task.children)
    if task.condition is not None:
        return Filtered(task.condition, task.surrogate)
    return WholeTable(surrogate=task.surrogate)


def require_filter(connection: Connection, table: TableSchema, condition: str | None) -> None:
    """Raise `FilterRefusedError` if the server refuses the filter, and nothing but the filter; else the server's error."""
    if condition is None:
        return
    query = f"SELECT 1 FROM {table_name(table)}"  # noqa: S608 - quoted
    try:
        _ask(connection, f"{query} WHERE (\n{condition}\n) LIMIT 0")
    except ServerError as error:
        if isinstance(source_error(error, ""), RetriableSourceError):
            raise
        _ask(connection, f"{query} LIMIT 0")
        raise FilterRefusedError(refusal(table.full_name, condition, error)) from error


def is_of_values(error: BaseException) -> bool:
    """Return whether a query that the server accepted failed at the values of its rows."""
    return isinstance(error, ServerError) and server_code(error) in _BY_VALUES


def refusal(table: str, condition: str, error: BaseException) -> str:
    """Return the reason that status and notifications give for a filter that failed."""
    code, text = (*error.args, "")[:2]
    return f"the source refuses the filter {condition!r} of {table}: {text} ({code}). Send the signal with another filter"


def _ask(connection: Connection, sql: str) -> None:
    with BinaryQuery(connection, sql) as query:
        for _ in query.blocks():
            pass
