"""The rows that a parent's change may have changed in silence: which rows of a child are read, and which are swept (pure).

Read are the rows that have an old value of the foreign key's columns (others may have taken it since), a new one, or
NULL if the rule says so. Swept are those with an old value that are not read: wherever they went, they went in
silence, or the log has the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mysqlio.quoting import quoted
from producer.snapshot.ranges import literal, rows_query
from schemas.columns import Column, TableSchema
from schemas.documents import ChildRowsDocument
from schemas.errors import TidemarkError
from schemas.markers import Sweep
from schemas.types.column_facts import INTEGER_TYPES, SHORT_BINARIES

Value = tuple[str, ...]

COMPARABLE: Final = INTEGER_TYPES + SHORT_BINARIES
"""Types whose values are the same text to the log, to SQL and to the sink."""
MAX_VALUES: Final = 10_000
MAX_TEXT: Final = 200_000


class ChildrenUnreadableError(TidemarkError):
    """These rows can't be read by themselves; reading the table whole says as much."""


@dataclass(frozen=True, slots=True)
class ChildRows(ChildRowsDocument):
    """Rows of a child by the values of `columns`: `old` ones, `new` ones, or NULL in all of `nulled`."""

    @property
    def is_large(self) -> bool:
        """Whether the whole table is to be read instead."""
        values = (*self.old, *self.new)
        return len(values) > MAX_VALUES or sum(len(part) + 4 for value in values for part in value) > MAX_TEXT

    def fits(self, other: ChildRows) -> bool:
        """Whether both can be read and swept as one."""
        return (self.columns, self.nulled) == (other.columns, other.nulled)

    def united(self, other: ChildRows) -> ChildRows:
        """Return the rows of both."""
        return replace(self, old=self.old | other.old, new=self.new | other.new)

    def sweep(self, names: Iterable[str]) -> Sweep:
        """Return the rows to delete; `names` are the columns' names in records."""
        return Sweep(tuple(names), self.old)

    def query(self, table: TableSchema, shown: Sequence[str] | None = None) -> str:
        """Return the SELECT: every column, in table order; `shown` as `rows_query` has it.

        `ChildrenUnreadableError` for a column that is not there any more, or has got another type.
        """
        by_name = {column.name.lower(): column for column in table.columns}
        keys = [_comparable(table, name, by_name.get(name.lower())) for name in self.columns]
        values = [
            ", ".join(literal(column, text) for column, text in zip(keys, value, strict=True))
            for value in sorted(self.old | self.new)
        ]
        listed = ", ".join(values if len(keys) == 1 else [f"({value})" for value in values])
        names = ", ".join(quoted(column.name) for column in keys)
        condition = f"{names if len(keys) == 1 else f'({names})'} IN ({listed})"
        if self.nulled:
            nullable = [_comparable(table, name, by_name.get(name.lower())) for name in self.nulled]
            nulls = " AND ".join(f"{quoted(column.name)} IS NULL" for column in nullable)
            condition = f"{condition} OR ({nulls})"
        return rows_query(table, f" WHERE {condition}", shown)


def _comparable(table: TableSchema, name: str, column: Column | None) -> Column:
    if column is None or column.type not in COMPARABLE:
        message = f"a foreign key of {table.full_name} is not by {name} any more, or that has got another type"
        raise ChildrenUnreadableError(message)
    return column
