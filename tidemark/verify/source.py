"""The source side: what a table is, and its rows as columns of common type.

Every statement runs with pinned session settings (UTC, utf8mb4, empty `sql_mode`), so that the server prints
values in one way. Reads take no locks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from mysqlio.connection import PINNED_SESSION, Connection, abandon, connect
from mysqlio.information_schema import list_tables, read_table_facts
from mysqlio.quoting import qualified, quoted
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import ServerCode, server_code
from mysqlio.server_facts import ask, current_position
from mysqlio.signal_table import SignalTable, delete_row, insert_row
from producer.source.visibility import visible_position
from schemas.columns import TableSchema
from schemas.errors import ConfigError, SourceError
from schemas.position import Position, file_number
from schemas.settings import SourceSettings
from schemas.signals import WINDOW_CLOSE, WINDOW_OPEN
from tidemark.verify.column_rule import ColumnRule, IncomparableError, Value
from tidemark.verify.text_rows import read_columns

GONE: Final = "the table is gone from the source"
KEYS_PER_STATEMENT: Final = 1_000
_PATIENT_WRITES: Final = "SET SESSION net_write_timeout = 3600"
_NO_CASCADE: Final = ("RESTRICT", "NO ACTION")

Key = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table of the source. `estimate` is the server's guess of its rows; `cascades`: foreign keys change some of them.

    `is_partitioned`: a row may be in a partition that is not the one of its key, where a condition on the key does not find it.
    """

    schema: TableSchema
    estimate: int
    cascades: bool = False
    is_partitioned: bool = False
    engine: str = ""

    @property
    def keyed_by_primary(self) -> bool:
        """Whether the rows can be read in key order without sorting."""
        return bool(self.schema.primary_key)


class Source:
    """One connection to the source."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._connection = self._connect()

    def close(self) -> None:
        """Close the connection, also in the middle of a result."""
        abandon(self._connection)

    def reconnect(self) -> None:
        """Open a new connection, for use after a result that was not read to its end."""
        self.close()
        self._connection = self._connect()

    def table_names(self) -> list[tuple[str, str]]:
        """Return database and name of every captured base table, sorted; a system-versioned one (MariaDB) is not captured."""
        versioned = set(
            self._rows("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'SYSTEM VERSIONED'")
        )
        tables = (name for name in list_tables(self._connection) if name not in versioned)
        return [name for name in tables if self._settings.captures(*name)]

    def table(self, database: str, name: str) -> ReadTable:
        """Return the table as it is now; `IncomparableError` when it is gone, or has a column of a type that is not captured."""
        facts = read_table_facts(self._connection, database, name)
        if facts is None:
            raise IncomparableError(GONE)
        for column, kind in facts.unsupported.items():
            raise IncomparableError(f"column {column}: type {kind} is not captured yet")
        kept = self._rows(
            "SELECT COALESCE(table_rows, 0), COALESCE(create_options, '') LIKE '%%partitioned%%', COALESCE(engine, '')"
            " FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            database, name,
        )  # fmt: skip
        estimate, is_partitioned, engine = kept[0] if kept else (0, 0, "")
        rules = self._rows(
            "SELECT delete_rule, update_rule FROM information_schema.referential_constraints"
            " WHERE constraint_schema = %s AND table_name = %s",
            database, name,
        )  # fmt: skip
        cascades = any(rule not in _NO_CASCADE for pair in rules for rule in pair)
        return ReadTable(facts.schema, int(estimate), cascades, bool(is_partitioned), str(engine).upper())

    def read_all(
        self, table: ReadTable, rules: Sequence[ColumnRule], *, in_key_order: bool
    ) -> Iterator[list[pa.Array]]:
        """Read all rows, streamed from one statement, in blocks of some MiB."""
        order = key_list(table.schema) if in_key_order else ""
        sql = _select(table.schema, rules) + (f" ORDER BY {order}" if order else "")
        return self._read(sql, rules)

    def read_between(
        self, table: ReadTable, rules: Sequence[ColumnRule], spans: Sequence[tuple[int | None, int | None]]
    ) -> Iterator[list[pa.Array]]:
        """Read the rows whose (single, integer) key is in one of the half-open spans; None is no boundary."""
        key = _as_scanned(table, quoted(table.schema.record_key[0]))
        for first, end in spans:
            conditions = [f"{key} >= {first}"] * (first is not None) + [f"{key} < {end}"] * (end is not None)
            where = " AND ".join(conditions) or "TRUE"
            yield from self._read(f"{_select(table.schema, rules)} WHERE {where}", rules)

    def read_keys(
        self,
        table: ReadTable,
        rules: Sequence[ColumnRule],
        key_rules: Sequence[ColumnRule],
        keys: Sequence[Key],
    ) -> Iterator[list[pa.Array]]:
        """Read the rows of these keys, and perhaps of keys that the server holds equal (collations)."""
        names = [_as_scanned(table, quoted(rule.name)) for rule in key_rules]
        subject = names[0] if len(names) == 1 else f"({', '.join(names)})"
        for first in range(0, len(keys), KEYS_PER_STATEMENT):
            literals = ", ".join(
                key_literal(key_rules, key) for key in keys[first : first + KEYS_PER_STATEMENT]
            )
            yield from self._read(f"{_select(table.schema, rules)} WHERE {subject} IN ({literals})", rules)

    def position(self, epoch: int) -> Position:
        """Return the current end of the binlog, as a boundary in that epoch."""
        end = current_position(self._connection)
        return Position(epoch, file_number(end.file), end.pos)

    def barrier(self, epoch: int, ident: str) -> Position:
        """Return the end of the binlog; every transaction before it is visible from now on.

        A row is committed behind it to the signal table: it opens a window of nobody's, which every reader of signals passes over.
        `ident` is a UUID. If nothing may be written, the server reports how far it is visible.
        """
        if self._settings.read_only:
            end = visible_position(self._connection)
            return Position(epoch, file_number(end.file), end.pos)
        low = self.position(epoch)
        insert_row(self._connection, self._signal_table(), (f"{ident}-open", WINDOW_OPEN, "{}"))
        return low

    def end_barrier(self, ident: str) -> None:
        """Remove the barrier's row, if there is one; the log then ends behind every position taken before.

        A user who may not delete (only `insert_delete` needs that) closes the window by another row.
        """
        if self._settings.read_only:
            return
        table = self._signal_table()
        try:
            delete_row(self._connection, table, f"{ident}-open")
        except SourceError as error:
            if server_code(error) != ServerCode.TABLE_ACCESS_DENIED:
                raise
            insert_row(self._connection, table, (f"{ident}-close", WINDOW_CLOSE, "{}"))

    # --- inside ------------------------------------------------------------------------------------------

    def _read(self, sql: str, rules: Sequence[ColumnRule]) -> Iterator[list[pa.Array]]:
        for columns in read_columns(self._connection, sql):
            yield [rule.from_source(cells) for rule, cells in zip(rules, columns, strict=True)]

    def _signal_table(self) -> SignalTable:
        names = self._settings.signal_names
        if names is None:
            raise ConfigError(
                "source.signal_table is not set: rows that differ cannot be judged while the source moves; verify when "
                "nobody writes"
            )
        return SignalTable(*names)

    def _rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        return ask(self._connection, sql, *values)

    def _connect(self) -> Connection:
        return connect(ServerAccess.of(self._settings), (*PINNED_SESSION, _PATIENT_WRITES))


def _as_scanned(table: ReadTable, column: str) -> str:
    """Return a column as conditions have it: of a partitioned table one that all partitions are read for.

    EXCHANGE PARTITION ... WITHOUT VALIDATION leaves rows in partitions where a condition on their key does not find them.
    """
    return f"COALESCE({column})" if table.is_partitioned else column


def key_list(schema: TableSchema) -> str:
    """Return the columns of the key as ORDER BY has them."""
    return ", ".join(quoted(name) for name in schema.record_key)


def _select(schema: TableSchema, rules: Sequence[ColumnRule]) -> str:
    # MySQL before 9 takes a column called `*` for all columns, however it is quoted; not so inside an expression.
    star = quoted("*")
    expressions = ", ".join(f"COALESCE({star})" if rule.expression == star else rule.expression for rule in rules)
    return f"SELECT {expressions} FROM {qualified(schema.database, schema.name)}"  # noqa: S608 - quoted names


def key_literal(key_rules: Sequence[ColumnRule], key: Key) -> str:
    """Return a key as SQL: what is compared with its columns."""
    literals = [rule.literal(value) for rule, value in zip(key_rules, key, strict=True)]
    return literals[0] if len(literals) == 1 else f"({', '.join(literals)})"
