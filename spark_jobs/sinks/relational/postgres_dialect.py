"""PostgreSQL."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import TableName
from schemas.overriding import override
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.sinks.contract import Columns, Evolution
from spark_jobs.sinks.relational.sink_connection import SinkConnection
from spark_jobs.sinks.relational.sql_dialect import (
    CHECKPOINT,
    NESTED,
    OWNER,
    Dialect,
    TableColumn,
    TableIndex,
    comment_of,
    escaped,
)
from spark_jobs.sinks.relational.table_keys import TableKeys
from spark_jobs.sinks.sql_values import moment_text, number_text, plain

_BYTES: Final = 'text COLLATE "C"'
_TYPES: Final[Mapping[type[T.DataType], str]] = {
    T.BooleanType: "boolean",
    T.ByteType: "smallint",
    T.ShortType: "smallint",
    T.IntegerType: "integer",
    T.LongType: "bigint",
    T.FloatType: "real",
    T.DoubleType: "double precision",
    T.StringType: "text",
    T.BinaryType: "bytea",
    T.DateType: "date",
    T.TimestampNTZType: "timestamp without time zone",
    T.TimestampType: "timestamp with time zone",
}
_ESCAPES: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_FIRST_YEAR: Final = "0001-01-01"

def require_supported(connection: SinkConnection, server: str) -> None:
    """Refuse a database that cannot have every text (`SinkError`), and servers before version 12."""
    encoding = connection.value("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        message = f"the database {server} has the encoding {encoding}: make one with ENCODING 'UTF8', and give that in url"
        raise SinkError(message)
    version = int(connection.value("SELECT current_setting('server_version_num')"))
    if version < 120000:
        raise SinkError(f"the database {server} is PostgreSQL {version // 10000}: 12 is the oldest that is supported")


class PostgresDialect(Dialect):
    """The words of PostgreSQL."""

    most_name: ClassVar[int] = 63
    text_as: ClassVar[str] = "PostgreSQL"
    ddl_is_transactional: ClassVar[bool] = True
    analyzes_staging: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, T.DataType]] = {name: kind() for kind, name in _TYPES.items() if kind is not T.ByteType}
    exists_sql: ClassVar[str] = (
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
    )
    columns_sql: ClassVar[str] = """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(col_description(c.oid, a.attnum), '')
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
    indexes_sql: ClassVar[str] = """SELECT x.relname, i.indisprimary, a.attname
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey::smallint[])
        WHERE n.nspname = %s AND c.relname = %s AND (i.indisprimary OR x.relname LIKE 'tm\\_key\\_%%')
        ORDER BY x.relname, array_position(i.indkey::smallint[], a.attnum)"""

    @property
    @override
    def service_tables(self) -> Sequence[str]:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.service(OWNER)} (sink text PRIMARY KEY, epoch bigint NOT NULL)",
            (
                f"CREATE TABLE IF NOT EXISTS {self.service(CHECKPOINT)} (sink text, target text, query_id text NOT NULL, "
                "batch_id bigint NOT NULL, witness text NOT NULL, steps text NOT NULL, PRIMARY KEY (sink, target))"
            ),
        )

    @override
    def claim(self, connection: SinkConnection, name: str, wait_s: int) -> bool:
        key = int.from_bytes(hashlib.sha256(f"tidemark {name}".encode()).digest()[:8], "big", signed=True)
        for attempt in range(max(wait_s, 1)):
            if attempt:
                time.sleep(1)
            if connection.value("SELECT pg_try_advisory_lock(%s)", key):
                return True
        return False

    @override
    def add_owner(self) -> str:
        return f"INSERT INTO {self.service(OWNER)} VALUES (%s, 0) ON CONFLICT DO NOTHING"  # noqa: S608

    @override
    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    @override
    def name_size(self, name: str) -> int:
        return len(name.encode())

    @override
    def literal(self, value: Any, kind: T.DataType) -> str | None:
        found = plain(value, kind)
        if isinstance(found, bool):
            return str(found).upper()
        if isinstance(found, (int, float, Decimal)):
            return f"({number_text(found)})"
        if isinstance(found, bytes):
            return f"'\\x{found.hex()}'::bytea"
        if isinstance(found, dt.datetime):
            return f"TIMESTAMPTZ '{moment_text(found)}+00'" if found.tzinfo else f"TIMESTAMP '{moment_text(found)}'"
        if isinstance(found, dt.date):
            return f"DATE '{moment_text(found)}'"
        return None if found is None or "\0" in found else "'" + found.replace("'", "''") + "'"

    @override
    def column_type(self, kind: T.DataType) -> str:
        if isinstance(kind, T.DecimalType):
            return f"numeric({kind.precision},{kind.scale})"
        return "text" if isinstance(kind, NESTED) else _TYPES[type(kind)]

    @override
    def key_types(self, columns: Columns, keys: Sequence[str]) -> Mapping[str, str]:
        of_keys = [(name, kind) for name, kind in columns if name in keys]
        return {name: _BYTES if isinstance(kind, T.StringType) else self.column_type(kind) for name, kind in of_keys}

    @override
    def staged(self, value: Column, kind: T.DataType) -> Column:
        if isinstance(kind, NESTED):
            return F.to_json(value)
        if isinstance(kind, (T.DateType, T.TimestampNTZType)):  # years before 1 have no sign here
            pattern = "yyyy-MM-dd G" if isinstance(kind, T.DateType) else "yyyy-MM-dd HH:mm:ss.SSSSSS G"
            return F.when(value < F.lit(_FIRST_YEAR).cast(kind), F.date_format(value, pattern)).otherwise(value.cast("string"))
        if isinstance(kind, T.TimestampType):
            return F.concat(value.cast("string"), F.lit("+00"))
        return value.cast("smallint") if isinstance(kind, T.ByteType) else value

    @override
    def line(self, values: Sequence[tuple[Column, T.DataType]]) -> Column:
        """As the text format of COPY has it: tabs between values, a backslash before what would end one."""
        texts = []
        for value, kind in values:
            text = F.concat(F.lit("\\\\x"), F.hex(value)) if isinstance(kind, T.BinaryType) else value.cast("string")
            texts.append(F.coalesce(escaped(text, _ESCAPES) if isinstance(kind, T.StringType) else text, F.lit("\\N")))
        return F.concat_ws("\t", *texts)

    @override
    def plain_index(self, connection: SinkConnection, name: TableName) -> TableIndex | None:
        return None  # a column that it has may change its type

    @override
    def schema_statement(self, connection: SinkConnection, database: str) -> str | None:
        if connection.query("SELECT 1 FROM pg_namespace WHERE nspname = %s", database):
            return None
        return f"CREATE SCHEMA IF NOT EXISTS {self.quoted(database)}"

    @override
    def create_table(self, name: TableName, columns: Columns, keys: TableKeys) -> Sequence[str]:
        types = self.key_types(columns, keys.primary)
        listed = [
            f"{self.quoted(column)} {f'{types[column]} NOT NULL' if column in types else self.column_type(kind)}"
            for column, kind in columns
        ]
        listed += [f"{self.quoted(POSITION)} {_BYTES} NOT NULL", f"PRIMARY KEY ({', '.join(map(self.quoted, keys.primary))})"]
        asked = ((self.index_prefix, keys.identity), (self.plain_prefix, keys.plain))
        indexes = [self._index(prefix, name, own) for prefix, own in asked if own]
        return (f"CREATE TABLE {self.table(name)} ({', '.join(listed)})", *indexes, *self._comments(name, columns))

    def _index(self, prefix: str, name: TableName, columns: Sequence[str]) -> str:
        made = self.quoted(self.index_name(prefix, name, columns))
        return f"CREATE INDEX {made} ON {self.table(name)} ({', '.join(map(self.quoted, columns))})"

    def _comments(self, name: TableName, columns: Columns) -> list[str]:
        return [
            f"COMMENT ON COLUMN {self.table(name)}.{self.quoted(column)} IS {self.literal(comment_of(kind), T.StringType())}"
            for column, kind in columns
        ]

    @override
    def staging(self, name: str) -> str:
        return f"pg_temp.{self.quoted(name)}"

    @override
    def create_staging(self, staging: str, columns: Columns, keys: Sequence[str]) -> str:
        types = self.key_types(columns, keys)
        listed = [f"c{number} {types.get(name) or self.column_type(kind)}" for number, (name, kind) in enumerate(columns)]
        return f"CREATE TEMPORARY TABLE {staging} ({', '.join(listed)}, p {_BYTES} NOT NULL, d integer NOT NULL)"

    @override
    def alter_table(
        self,
        name: TableName,
        change: Evolution,
        existing: Sequence[TableColumn],
        index: TableIndex | None,
        plain: TableIndex | None = None,
    ) -> Sequence[str]:
        table, have = self.table(name), {column.name: column.kind for column in existing}
        keys = index.columns if index is not None else ()
        filled = {column: self.literal(value, kind) for column, kind, value in change.added}
        parts = [self._added(column, kind, filled[column]) for column, kind, _ in change.added]
        types = {column: kind for column, kind in change.retyped if column not in keys}
        of_keys = self.key_types([item for item in change.retyped if item[0] in keys], keys)
        for column, kind in change.retyped:
            made = of_keys[column] if column in keys else self.column_type(types[column])
            parts.append(f"ALTER COLUMN {self.quoted(column)} TYPE {made} USING {self._converted(column, have[column], kind)}")
        parts += [f"DROP COLUMN {self.quoted(column)}" for column in change.dropped]
        statements = [f"ALTER TABLE {table} {', '.join(parts)}"] if parts else []
        dropped = [f"ALTER COLUMN {self.quoted(column)} DROP DEFAULT" for column, value in filled.items() if value is not None]
        if SOURCE in filled and index is not None and index.is_primary:
            listed = ", ".join(map(self.quoted, (SOURCE, *keys)))
            dropped += [f"DROP CONSTRAINT {self.quoted(index.name)}", f"ADD PRIMARY KEY ({listed})"]
        if dropped:
            statements.append(f"ALTER TABLE {table} {', '.join(dropped)}")
        changed = [(column, kind) for column, kind, _ in change.added] + list(change.retyped)
        return (*statements, *self._comments(name, changed))

    def _added(self, column: str, kind: T.DataType, filled: str | None) -> str:
        made = _BYTES if column == SOURCE else self.column_type(kind)
        default = "" if filled is None else f" DEFAULT {filled}"
        return f"ADD COLUMN {self.quoted(column)} {made}{' NOT NULL' if column == SOURCE else ''}{default}"

    def _converted(self, column: str, given: T.DataType, kind: T.DataType) -> str:
        value = self.quoted(column)
        if isinstance(kind, (T.StringType, T.BinaryType)) and isinstance(given, T.TimestampType):
            value = f"({value} AT TIME ZONE 'UTC')"
        if isinstance(kind, T.BinaryType) and not isinstance(given, T.BinaryType):
            return f"convert_to({value}::text, 'UTF8')"
        if isinstance(given, T.BooleanType) and not isinstance(kind, T.StringType):
            value = f"{value}::integer"
        return f"{value}::{self.column_type(kind)}"

    @override
    def change_key(
        self, name: TableName, columns: Columns, keys: Sequence[str], indexes: Sequence[TableIndex]
    ) -> Sequence[str]:
        table = self.table(name)
        types, texts = self.key_types(columns, keys), {key for key, kind in columns if isinstance(kind, T.StringType)}
        retyped = [f"ALTER TABLE {table} ALTER COLUMN {self.quoted(key)} TYPE {types[key]}" for key in keys if key in texts]
        dropped = [
            f"ALTER TABLE {table} DROP CONSTRAINT {self.quoted(one.name)}"
            if one.is_primary
            else f"DROP INDEX {self.table(TableName(name.database, one.name))}"
            for one in indexes
        ]
        old = {column for one in indexes if one.is_primary for column in one.columns}
        freed = [f"ALTER TABLE {table} ALTER COLUMN {self.quoted(column)} DROP NOT NULL" for column in sorted(old - set(keys))]
        return (*dropped, *freed, *retyped, self._index(self.index_prefix, name, keys))

    @override
    def analyze(self, table: str) -> str:
        return f"ANALYZE {table}"

    @override
    def delete_staged(self, target: str, staging: str, match: str) -> str:
        return f"DELETE FROM {target} t USING {staging} s WHERE {match} AND s.d = 1 AND s.p > t.{POSITION}"  # noqa: S608

    @override
    def update_staged(self, target: str, staging: str, match: str, assigned: Sequence[tuple[str, str]]) -> str:
        listed = ", ".join(f"{name} = {value}" for name, value in assigned)
        return f"UPDATE {target} t SET {listed} FROM {staging} s WHERE {match} AND s.d = 0 AND s.p > t.{POSITION}"  # noqa: S608

    @override
    def text_of(self, column: str, kind: T.DataType) -> str:
        return f"encode({column}, 'hex')" if isinstance(kind, T.BinaryType) else f"{column}::text"
