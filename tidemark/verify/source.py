"""The source side: what a table is, and its rows as columns of common type.

Every statement runs with pinned session settings (UTC, utf8mb4, empty `sql_mode`), so that the server prints
values in one way. Reads take no locks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pymysql.connections import Connection
from pymysql.constants import ER
from pymysql.err import OperationalError

from mysqlio.connection import connect as connect_to_source
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import source_errors
from producer.source.visibility import visible_position
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import ConfigError, SourceError
from schemas.position import Position, file_number
from schemas.settings import SourceSettings
from schemas.signals import WINDOW_CLOSE, WINDOW_OPEN
from tidemark.verify.column_rule import ColumnRule, IncomparableError, Value, quoted
from tidemark.verify.text_rows import read_columns

_SYSTEM_SCHEMAS: Final = ("mysql", "information_schema", "performance_schema", "sys")
KEYS_PER_STATEMENT: Final = 1_000
_PINS: Final = (
    "SET sql_mode = '', time_zone = '+00:00', net_write_timeout = 3600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_STATUS_BY_NEW_NAME: Final = (8, 2)
_TYPE_NAMES: Final = {"geomcollection": "geometrycollection"}
_DATES: Final = frozenset({ColumnType.DATE, ColumnType.DATETIME, ColumnType.TIMESTAMP})
_NO_CASCADE: Final = ("RESTRICT", "NO ACTION")
_MEMBER: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'")

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
        self._connection = connect(settings)

    def close(self) -> None:
        """Close the connection, also in the middle of a result."""
        if self._connection.open:
            self._connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 - unread rows are no error

    def reconnect(self) -> None:
        """Open a new connection, for use after a result that was not read to its end."""
        self.close()
        self._connection = connect(self._settings)

    def table_names(self) -> list[tuple[str, str]]:
        """Database and name of every captured base table, sorted."""
        rows = self._rows(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        )
        ours = [(database, name) for database, name in rows if database.lower() not in _SYSTEM_SCHEMAS]
        return sorted(name for name in ours if self._settings.captures(*name))

    def table(self, database: str, name: str) -> ReadTable:
        """Return what a table is now; `IncomparableError` when it has a column of a type that is not captured."""
        rows = self._rows(
            "SELECT column_name, data_type, column_type, is_nullable, numeric_precision, numeric_scale,"
            " datetime_precision, character_set_name, collation_name, column_default, extra"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, name),
        )
        described = [_column(*row[:-2]) for row in rows]
        literal = {row[0] for row in rows if _is_literal(row[-2], row[-1])}
        columns = self._with_dates(database, name, described, literal)
        primary, unique = self._keys(database, name)
        kept = self._rows(
            "SELECT COALESCE(table_rows, 0), COALESCE(create_options, '') LIKE '%%partitioned%%', COALESCE(engine, '')"
            " FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (database, name),
        )
        estimate, is_partitioned, engine = kept[0] if kept else (0, 0, "")
        rules = self._rows(
            "SELECT delete_rule, update_rule FROM information_schema.referential_constraints"
            " WHERE constraint_schema = %s AND table_name = %s",
            (database, name),
        )
        schema = TableSchema(database, name, columns, primary, unique)
        cascades = any(rule not in _NO_CASCADE for pair in rules for rule in pair)
        return ReadTable(schema, int(estimate), cascades, bool(is_partitioned), str(engine).upper())

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
        rows = self._rows(self._status_statement())
        if not rows:
            message = "the source writes no binlog (log_bin is off): set log_bin=ON and restart it"
            raise SourceError(message)
        return Position(epoch, file_number(str(rows[0][0])), int(rows[0][1]))

    def barrier(self, epoch: int, ident: str) -> Position:
        """Return the end of the binlog; every transaction before it is visible from now on.

        A row is committed behind it to the signal table: it opens a window of nobody's, which every reader of signals passes over.
        `ident` is a UUID. Where nothing may be written, the server reports what is visible.
        """
        if self._settings.read_only:
            end = visible_position(self._connection)
            return Position(epoch, file_number(end.file), end.pos)
        low = self.position(epoch)
        self._write_row(f"{ident}-open", WINDOW_OPEN)
        return low

    def end_barrier(self, ident: str) -> None:
        """Remove the barrier's row, if there is one; the log then ends behind every position taken before.

        A user who may not delete (only `insert_delete` needs that) closes the window by another row.
        """
        if self._settings.read_only:
            return
        try:
            self._execute(f"DELETE FROM {self._signal_table()} WHERE id = %s", (f"{ident}-open",))  # noqa: S608 - quoted
        except OperationalError as error:
            if error.args[0] != ER.TABLEACCESS_DENIED_ERROR:
                raise
            self._write_row(f"{ident}-close", WINDOW_CLOSE)

    # --- inside ------------------------------------------------------------------------------------------

    def _read(self, sql: str, rules: Sequence[ColumnRule]) -> Iterator[list[pa.Array]]:
        for columns in read_columns(self._connection, sql):
            yield [rule.from_source(cells) for rule, cells in zip(rules, columns, strict=True)]

    def _signal_table(self) -> str:
        names = self._settings.signal_names
        if names is None:
            message = (
                "source.signal_table is not set: rows that differ cannot be judged while the source moves; verify when "
                "nobody writes"
            )
            raise ConfigError(message)
        return f"{quoted(names[0])}.{quoted(names[1])}".replace("%", "%%")  # always beside arguments

    def _status_statement(self) -> str:
        text = str(self._rows("SELECT VERSION()")[0][0])
        version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
        new_name = "mariadb" not in text.lower() and version >= _STATUS_BY_NEW_NAME
        return "SHOW BINARY LOG STATUS" if new_name else "SHOW MASTER STATUS"

    def _keys(self, database: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the primary key, and the first unique index of whole NOT NULL columns."""
        rows = self._rows(
            "SELECT index_name, column_name, nullable, sub_part FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s AND non_unique = 0"
            " ORDER BY index_name, seq_in_index",
            (database, name),
        )
        indexes: dict[str, list[tuple[str | None, str | None, int | None]]] = {}
        for index, *part in rows:
            indexes.setdefault(index, []).append((part[0], part[1], part[2]))
        primary = tuple(str(column) for column, _, _ in indexes.pop("PRIMARY", []))
        for parts in indexes.values():
            if all(column is not None and null != "YES" and sub is None for column, null, sub in parts):
                return primary, tuple(str(column) for column, _, _ in parts)
        return primary, ()

    def _with_dates(
        self, database: str, name: str, columns: Sequence[Column], literal: set[str]
    ) -> tuple[Column, ...]:
        """Return the columns, those of dates that are NOT NULL with their literal defaults: what records have for zero dates."""
        asked = [c for c in columns if c.name in literal and c.type in _DATES and not c.nullable]
        if not asked:
            return tuple(columns)
        casts = ", ".join(f"CAST(DEFAULT({quoted(column.name)}) AS CHAR)" for column in asked)
        rows = self._rows(f"SELECT {casts} FROM {quoted(database)}.{quoted(name)} LIMIT 1")  # noqa: S608 - quoted
        found = dict(zip((column.name for column in asked), rows[0], strict=True)) if rows else {}
        return tuple(
            replace(column, default=found[column.name], has_default=True) if found.get(column.name) else column
            for column in columns
        )

    def _rows(self, sql: str, values: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(values) or None)  # else a `%` is a place
            return list(cursor.fetchall())

    def _write_row(self, ident: str, kind: str) -> None:
        statement = f"INSERT INTO {self._signal_table()} (id, type, data) VALUES (%s, %s, '{{}}')"  # noqa: S608 - quoted
        self._execute(statement, (ident, kind))

    def _execute(self, sql: str, values: Iterable[object]) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(values))


def connect(settings: SourceSettings) -> Connection[Any]:
    """Open a connection with pinned session settings; raises `SourceError` when the server cannot be reached."""
    connection = connect_to_source(ServerAccess.of(settings))
    try:
        with source_errors(f"{settings.host}:{settings.port}"), connection.cursor() as cursor:
            for statement in _PINS:
                cursor.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_literal(default: str | None, extra: str) -> bool:
    """Return whether a default is a value, not an expression: MariaDB's texts are SQL, MySQL's are not."""
    text = (default or "").upper()
    return bool(text) and "DEFAULT_GENERATED" not in extra.upper() and text.startswith(("'", *"0123456789"))


def _column(
    name: str,
    data_type: str,
    column_type: str,
    nullable: str,
    precision: int | None,
    scale: int | None,
    fraction: int | None,
    charset: str | None,
    collation: str | None,
) -> Column:
    try:
        kind = ColumnType(_TYPE_NAMES.get(data_type.lower(), data_type.lower()))
    except ValueError:
        message = f"column {name}: type {column_type} is not captured yet"
        raise IncomparableError(message) from None
    temporal = kind in {ColumnType.TIME, ColumnType.DATETIME, ColumnType.TIMESTAMP}
    return Column(
        name=name,
        type=kind,
        nullable=nullable == "YES",
        unsigned="unsigned" in column_type.lower(),
        length=_length(kind, column_type),
        precision=fraction if temporal else precision,
        scale=scale,
        charset=charset,
        collation=collation,
        members=tuple(_MEMBER.findall(column_type)) if kind in {ColumnType.ENUM, ColumnType.SET} else (),
    )


def _length(kind: ColumnType, column_type: str) -> int | None:
    match = re.search(r"\((\d+)\)", column_type)
    return int(match.group(1)) if match and kind not in {ColumnType.ENUM, ColumnType.SET} else None


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
    return f"SELECT {expressions} FROM {quoted(schema.database)}.{quoted(schema.name)}"  # noqa: S608 - quoted names


def key_literal(key_rules: Sequence[ColumnRule], key: Key) -> str:
    """Return a key as SQL: what is compared with its columns."""
    literals = [rule.literal(value) for rule, value in zip(key_rules, key, strict=True)]
    return literals[0] if len(literals) == 1 else f"({', '.join(literals)})"
