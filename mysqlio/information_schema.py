"""Tables as the server's information_schema has them: as they are now, not at some position in the log.

It knows what a TABLE_MAP does not: defaults, FLOAT(M,D), collations, unique keys, and types that hide behind
others in the log (MariaDB's UUID and INET are BINARY there). Facts found on MySQL 8.0.15 and MariaDB 11.4.5:

* virtual generated and invisible columns are in the log like any other, with their values; they are captured
  (a SELECT has to name them).
* MySQL shows a TIMESTAMP default in the time zone of the session that ran the DDL, and cuts a VARBINARY default at
  its first zero byte; `DEFAULT(column)` is right for both, and for nullable columns of an empty table, too.
* MariaDB's DEFAULT texts are SQL expressions (`'it''s'`, `NULL`, `current_timestamp()`), MySQL's are values.
* The hidden column of a functional index (MySQL 8.0.13 to 8.0.17) and of a UNIQUE key over BLOBs (MariaDB)
  is in the log and in no SELECT; the history of a system-versioned table is in the log as rows of its
  own. Such tables are refused.
* A DDL is in the log before the server is done with it: `wait_for_ddl` waits for its lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mysqlio.connection import Connection, server_version
from mysqlio.definitions.character_sets import BINARY, SUPPORTED, charset_name
from mysqlio.definitions.column_definition import ColumnDefinition, parse_default, parse_definition
from mysqlio.definitions.column_types import to_column
from mysqlio.definitions.table_parts import SYSTEM_DATABASES, Key, KeyPart, Rules
from mysqlio.definitions.token_cursor import Cursor
from mysqlio.definitions.tokens import tokenise
from mysqlio.quoting import qualified, quoted
from mysqlio.server_errors import ServerCode, ServerError, is_lost, server_code, source_errors
from mysqlio.server_facts import flavour_of, is_mariadb
from schemas.columns import Column, TableSchema
from schemas.errors import SourceError, UnsupportedTypeError
from schemas.types.column_facts import (
    BINARY_TYPES,
    MEMBER_TYPES,
    TEXT_TYPES,
    Semantic,
    semantic_of,
    types_of,
)

HIDDEN_HASH: Final = "DB_ROW_HASH_"
_NAMED_AT_MOST: Final = 20
_GONE: Final = frozenset({ServerCode.UNKNOWN_DATABASE, ServerCode.NO_SUCH_TABLE})

_TABLES: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
    WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN %s
    ORDER BY TABLE_SCHEMA, TABLE_NAME"""
_TABLES_WITH_KEYS: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB' AND TABLE_SCHEMA NOT IN %s"""
_KIND: Final = """
    SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""
_COLUMNS: Final = """
    SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, CHARACTER_SET_NAME, COLLATION_NAME,
    COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
_COLLATION: Final = """
    SELECT C.CHARACTER_SET_NAME, T.TABLE_COLLATION FROM information_schema.TABLES AS T
    JOIN information_schema.COLLATIONS AS C ON C.COLLATION_NAME = T.TABLE_COLLATION
    WHERE T.TABLE_SCHEMA = %s AND T.TABLE_NAME = %s"""
_DATABASES: Final = """
    SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"""
_CHARSETS: Final = "SELECT CHARACTER_SET_NAME, DEFAULT_COLLATE_NAME FROM information_schema.CHARACTER_SETS"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as the server has it. `unsupported` maps columns that can't be captured to what they are.

    `schema` holds the other columns only. `refusal` says why the table can't be captured at all, "" for none.
    `charset` and `collation` are what new columns get that name none; `keys` are its indexes, in order.
    """

    schema: TableSchema
    unsupported: dict[str, str]
    refusal: str = ""
    charset: str = ""
    collation: str = ""
    keys: tuple[Key, ...] = ()


def list_tables(connection: Connection) -> list[tuple[str, str]]:
    """All base tables outside the server's own databases as (database, table), sorted."""
    rows = _rows(connection, _TABLES, (SYSTEM_DATABASES,))
    return sorted((str(database), str(table)) for database, table in rows)


def list_tables_with_keys(connection: Connection) -> list[tuple[str, str]]:
    """Return the tables that may have foreign keys: those of InnoDB."""
    return sorted((str(database), str(table)) for database, table in _rows(connection, _TABLES_WITH_KEYS, (SYSTEM_DATABASES,)))


def read_table_schema(connection: Connection, database: str, table: str) -> TableSchema | None:
    """Return the table as it is now, None when it does not exist.

    Raises `UnsupportedTypeError` naming columns that can't be captured, `SourceError` for a table that can't.
    """
    facts = read_table_facts(connection, database, table)
    if facts is None:
        return None
    _require_supported([facts])
    return facts.schema


def check_supported(connection: Connection, tables: Iterable[tuple[str, str]]) -> None:
    """Refuse, before anything is read, tables that can't be captured; one error names them all.

    Raises `SourceError` where whole tables can't be captured, `UnsupportedTypeError` where columns can't.
    """
    facts = [read_table_facts(connection, database, table) for database, table in tables]
    _require_supported([known for known in facts if known is not None])


def unsupported_tables(
    connection: Connection, tables: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], SourceError | UnsupportedTypeError]:
    """Those of the tables that can't be captured, and why."""
    found: dict[tuple[str, str], SourceError | UnsupportedTypeError] = {}
    for database, table in tables:
        facts = read_table_facts(connection, database, table)
        try:
            _require_supported([] if facts is None else [facts])
        except (SourceError, UnsupportedTypeError) as error:
            found[database, table] = error
    return found


def read_table_facts(connection: Connection, database: str, table: str) -> TableFacts | None:
    """Return all that the server reports of a table, None when it does not exist, or ceases to while it is asked about."""
    try:
        return _read_table_facts(connection, database, table)
    except SourceError as error:
        if server_code(error) in _GONE:
            return None
        raise


def _read_table_facts(connection: Connection, database: str, table: str) -> TableFacts | None:
    rows = _rows(connection, _COLUMNS, (database, table))
    if not rows:
        return None
    mariadb = is_mariadb(connection)
    columns, unsupported = [], {}
    for row in rows:
        column = _column(row, mariadb=mariadb)
        if isinstance(column, Column):
            columns.append(column)
        else:
            unsupported[str(row[0])] = column
    columns = _with_asked_defaults(connection, database, table, columns)
    indexes = _indexes(connection, database, table)
    keys = _Keys(indexes)
    schema = TableSchema(database, table, tuple(columns), keys.primary, () if keys.primary else keys.unique)
    collation = _rows(connection, _COLLATION, (database, table))
    names = [str(name) for name in collation[0]] if collation and collation[0][0] else ["", ""]
    return TableFacts(
        schema,
        unsupported,
        _refusal(connection, database, table, indexes),
        charset_name(names[0]),
        names[1],
        keys.all,
    )


def read_databases(connection: Connection) -> dict[str, tuple[str, str]]:
    """(character set, collation) of new tables that name none, by database."""
    return {
        str(name): (charset_name(str(charset)), str(collation))
        for name, charset, collation in _rows(connection, _DATABASES, ())
    }


def read_rules(connection: Connection) -> Rules:
    """Return what DDL texts mean on this server."""
    collations = {charset_name(str(charset)): str(name) for charset, name in _rows(connection, _CHARSETS, ())}
    variables = _rows(connection, "SHOW GLOBAL VARIABLES LIKE 'explicit_defaults_for_timestamp'", ())
    explicit = bool(variables) and str(variables[0][1]).upper() in ("ON", "1")
    return Rules(flavour_of(server_version(connection)), collations, explicit)


def wait_for_ddl(connection: Connection, database: str, table: str, timeout_s: int = 5) -> None:
    """Wait until a DDL on the table that is in the log already is visible to information_schema.

    Gives up after `timeout_s` (someone else holds the table's lock), and where the table cannot be opened: it is gone, may not
    be read, is damaged or a view of what is gone. A question about such a table gets that answer itself.
    """
    statement = f"SELECT 1 FROM {qualified(database, table)} LIMIT 0"  # noqa: S608
    with source_errors(f"{connection.host}:{connection.port}"), connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = %s", (timeout_s,))
        try:
            cursor.execute(statement)
        except ServerError as error:
            if is_lost(error):
                raise
        cursor.execute("SET SESSION lock_wait_timeout = DEFAULT")  # the next user of this connection may wait


def _require_supported(facts: Sequence[TableFacts]) -> None:
    refusals = [known.refusal for known in facts if known.refusal]
    if refusals:
        raise SourceError("; ".join(refusals))
    named = [
        f"{known.schema.full_name}.{column} ({kind})"
        for known in facts
        for column, kind in known.unsupported.items()
    ]
    if named:
        more = f" and {len(named) - _NAMED_AT_MOST} more" if len(named) > _NAMED_AT_MOST else ""
        message = (
            f"columns whose type can't be captured yet: {', '.join(named[:_NAMED_AT_MOST])}{more}. "
            f"Leave their tables out of source.tables"
        )
        raise UnsupportedTypeError(message)


# ── columns ────────────────────────────────


def _column(row: Sequence[Any], *, mariadb: bool) -> Column | str:
    """Return the column of a row of information_schema.COLUMNS, or what it is where it can't be captured."""
    name, type_text, nullable, default, extra, charset, collation, comment = row
    flavour = "mariadb" if mariadb else "mysql"
    definition = parse_definition(Cursor(tokenise(type_text, flavour)), str(name))
    definition.nullable = nullable == "YES"
    column = to_column(definition, None, flavour)
    if column is None:
        return str(type_text)
    if column.type in TEXT_TYPES or column.type in MEMBER_TYPES:
        known = charset_name(str(charset or BINARY))
        if known not in SUPPORTED:
            return f"{type_text} with character set {known}"
        column = replace(column, charset=known, collation=str(collation))
    is_generated = "GENERATED" in str(extra).replace("DEFAULT_GENERATED", "")
    is_counter = "auto_increment" in str(extra)
    column = replace(
        column,
        comment=str(comment) if comment else None,
        filled_by="expression" if is_generated else "counter" if is_counter else "",
    )
    if default is None or is_generated:
        return column
    return _with_sql_default(column, str(default)) if mariadb else _with_default(column, str(default), extra)


def _with_default(column: Column, text: str, extra: str) -> Column:
    """MySQL: the text is the value; `extra` says that it is an expression (5.7 knows only one)."""
    timed = semantic_of(column) in (Semantic.TIMESTAMP, Semantic.DATETIME)
    if timed and text.upper().startswith("CURRENT_TIMESTAMP"):
        return replace(column, has_default=True, default="CURRENT_TIMESTAMP", default_is_expression=True)
    if "DEFAULT_GENERATED" in extra:
        return replace(column, has_default=True, default=None, default_is_expression=True)
    return replace(column, has_default=True, default=text)


def _with_sql_default(column: Column, text: str) -> Column:
    """MariaDB: the text is an SQL expression, most often a literal."""
    cursor = Cursor(tokenise(text, "mariadb"))
    definition = ColumnDefinition(column.name)
    parse_default(cursor, definition)
    if not definition.has_default:
        return column
    if not cursor.done or definition.default_is_expression:
        known = definition.default if cursor.done else None
        return replace(column, has_default=True, default=known, default_is_expression=True)
    return replace(column, has_default=True, default=definition.default)


def _with_asked_defaults(
    connection: Connection, database: str, table: str, columns: list[Column]
) -> list[Column]:
    """Return the same columns, with the defaults that only DEFAULT(column) gives right."""
    asked = [
        column
        for column in columns
        if column.has_default
        and not column.default_is_expression
        and column.type in _ASKED
    ]
    if not asked:
        return columns
    source = qualified(database, table)
    # The names are quoted. A row knows the default of a NOT NULL column, too; the outer join gives its one row from
    # an empty table, where MySQL 8.0 says NULL for such a column.
    wanted = ", ".join(
        f"COALESCE((SELECT {_default_expression(column, 'r')} FROM {source} AS r LIMIT 1), "  # noqa: S608
        f"{_default_expression(column, 't')})"
        for column in asked
    )
    statement = f"SELECT {wanted} FROM (SELECT 1) AS one LEFT JOIN {source} AS t ON FALSE"  # noqa: S608
    rows = _rows(connection, statement, ())
    answers = dict(zip((column.name for column in asked), rows[0], strict=True))
    return [
        replace(column, default=_asked_text(answers[column.name]))
        if answers.get(column.name) is not None
        else column
        for column in columns
    ]


def _default_expression(column: Column, alias: str) -> str:
    value = f"DEFAULT({alias}.{quoted(column.name)})"
    return f"CONCAT('0x', HEX({value}))" if column.type in BINARY_TYPES else f"CAST({value} AS CHAR)"


_ASKED: Final = types_of(Semantic.BINARY, Semantic.TIMESTAMP, Semantic.UUID, Semantic.INET)


def _asked_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# ── keys ────────────────────────────────


@dataclass(frozen=True, slots=True)
class _IndexPart:
    """A column of an index; `column` is None for an expression."""

    index: str
    column: str | None
    unique: bool
    nullable: bool
    kind: str
    prefix: int


def _indexes(connection: Connection, database: str, table: str) -> list[_IndexPart]:
    """Return the parts of all indexes, in the server's order: primary, unique NOT NULL ones, others."""
    statement = f"SHOW INDEX FROM {quoted(table)} FROM {quoted(database)}"
    return [
        _IndexPart(str(row[2]), row[4], not row[1], row[9] == "YES", str(row[10]), int(row[7] or 0))
        for row in _rows(connection, statement, ())
    ]


class _Keys:
    """The primary key, the first unique index that can identify a row, and all indexes."""

    def __init__(self, parts: Sequence[_IndexPart]) -> None:
        grouped: dict[str, list[_IndexPart]] = {}
        for part in parts:
            grouped.setdefault(part.index, []).append(part)
        self.primary: tuple[str, ...] = ()
        self.unique: tuple[str, ...] = ()
        for name, index in grouped.items():
            columns = tuple(part.column for part in index if part.column is not None)
            if name == "PRIMARY":
                self.primary = columns
            elif not self.unique and all(_identifies(part) for part in index):
                self.unique = columns
        self.all = tuple(
            Key(name, index[0].unique, tuple(KeyPart(part.column or "", part.prefix) for part in index))
            for name, index in grouped.items()
        )


def _identifies(part: _IndexPart) -> bool:
    # The log takes no unique index on prefixes for a key.
    return part.unique and not part.nullable and part.column is not None and not part.prefix


# ── refusals ────────────────────────────────


def _refusal(connection: Connection, database: str, table: str, indexes: Sequence[_IndexPart]) -> str:
    name = f"{database}.{table}"
    version = server_version(connection)
    rows = _rows(connection, _KIND, (database, table))
    kind, engine = (str(rows[0][0]), str(rows[0][1])) if rows else ("", "")
    if kind == "SYSTEM VERSIONED":
        return (
            f"table {name} is system-versioned: its history is in the log as rows of its own, which is "
            f"not supported yet. Leave it out of source.tables, or ALTER TABLE {name} DROP SYSTEM VERSIONING"
        )
    if "mariadb" in version.lower():
        hashed = [part.index for part in indexes if part.kind == "HASH" and engine != "MEMORY"]
        if hashed:
            return hidden_column_refusal(name, f"its UNIQUE index {hashed[0]} hashes a long column")
    elif (8, 0, 13) <= _numbers(version) < (8, 0, 18) and any(part.column is None for part in indexes):
        return hidden_column_refusal(name, "it has an index on an expression")
    return ""


def hidden_column_refusal(table: str, why: str) -> str:
    """Return the words for a table with a column that only the log shows."""
    return (
        f"table {table} can't be captured: {why}, so the log holds a hidden column that no SELECT shows. "
        f"Drop that index, or leave the table out of source.tables"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


def _rows(connection: Connection, statement: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
    with source_errors(f"{connection.host}:{connection.port}"), connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)  # without arguments a `%` is itself
        return list(cursor.fetchall())
