"""The errors for tables that cannot be captured: what happened, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.catalog.information_schema import HIDDEN_HASH, hidden_column_refusal
from schemas.errors import SourceError, UnsupportedTypeError

if TYPE_CHECKING:
    from producer.binlog.tablemap import TableMap
    from producer.catalog.information_schema import TableFacts
    from schemas.columns import TableSchema
    from schemas.errors import DecodeError


def nameless_columns(table_map: TableMap, why: str) -> SourceError:
    """Return the error for a log without column names, where they are not known otherwise."""
    return SourceError(
        f"the log does not name the columns of {table_map.database}.{table_map.table}, and which they were there is "
        f"not certain: {why}. Run SET GLOBAL binlog_row_metadata=FULL where the server has it (MySQL 8.0.1, "
        f"MariaDB 10.5; and put it into its configuration). A table that is set aside is read again by itself "
        f"then; with on_table_error: stop, start under another name, so that the tables are read again"
    )


def unreadable_members(table_map: TableMap, name: str, error: DecodeError) -> SourceError:
    """Return the error for ENUM and SET members that are not in the character set of their column."""
    table = f"{table_map.database}.{table_map.table}"
    return SourceError(
        f"table {table}: {error.reason}. MariaDB's CONVERT TO CHARACTER SET leaves the bytes of ENUM and SET members as they "
        f"were, and can then not show them itself. Make a new column: ALTER TABLE {table} ADD COLUMN new_column with the "
        f"members spelled out in the same order; give every row new_column = {name} + 0; drop {name}, rename new_column to it, "
        f"and start again: what is in the log is then read with these members. Or leave the table out of source.tables"
    )


def unsupported_column(table_map: TableMap, name: str, kind: str) -> UnsupportedTypeError:
    """Return the error for a column whose type is not captured."""
    return UnsupportedTypeError(
        f"column {table_map.database}.{table_map.table}.{name} ({kind}) can't be captured yet; leave the "
        f"table out of source.tables"
    )


def refuse_hidden_columns(schema: TableSchema, facts: TableFacts | None) -> None:
    """Raise `SourceError` for a table with a column that only the log shows."""
    shown = {column.name for column in facts.schema.columns} if facts is not None else set()
    for column in schema.columns:
        hashed = column.name.startswith(HIDDEN_HASH)
        expression = len(column.name) == 32 and not column.name.strip("0123456789abcdef")
        if column.name not in shown and (hashed or expression):
            raise SourceError(hidden_column_refusal(schema.full_name, f"an index made {column.name}"))
