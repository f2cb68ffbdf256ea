"""MySQL and MariaDB, and TiDB as far as it speaks MySQL."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

import structlog
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from mysqlio.server_access import ServerAccess
from schemas.errors import SinkError
from schemas.identity import TableName
from schemas.overriding import override
from schemas.type_comments import MOST_CHARACTERS
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.sinks.contract import Columns, Evolution
from spark_jobs.sinks.relational.mysql_connection import MySqlConnection
from spark_jobs.sinks.relational.sink_connection import SinkConnection
from spark_jobs.sinks.relational.sql_dialect import (
    CHECKPOINT,
    NESTED,
    OWNER,
    SERVICE,
    Dialect,
    TableColumn,
    TableIndex,
    comment_of,
    escaped,
)
from spark_jobs.sinks.relational.table_keys import TableKeys
from spark_jobs.sinks.sql_values import moment_text, number_text
from spark_jobs.sinks.sql_values import plain as plain_value

log = structlog.get_logger()

_ESCAPES: Final = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}
_POSITION: Final = "CHAR(39) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_INDEX_BYTES: Final = 3072
_SOURCE_CHARACTERS: Final = 255
_INDEXED_CHARACTERS: Final = 191
_FIXED_BYTES: Final = 32
_WIDEST: Final = 4
"""Bytes of a character."""
_TYPES: Final[Mapping[type[T.DataType], str]] = {
    T.BooleanType: "tinyint(1)",
    T.ByteType: "tinyint",
    T.ShortType: "smallint",
    T.IntegerType: "int",
    T.LongType: "bigint",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.BinaryType: "longblob",
    T.DateType: "date",
    T.TimestampNTZType: "datetime(6)",
    T.TimestampType: "datetime(6)",
}
_KINDS: Final[Mapping[str, T.DataType]] = {
    "tinyint": T.ShortType(), "smallint": T.ShortType(), "int": T.IntegerType(), "bigint": T.LongType(), "float": T.FloatType(),
    "double": T.DoubleType(), "date": T.DateType(), "datetime": T.TimestampNTZType(), "longblob": T.BinaryType(),
}  # fmt: skip
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_EXACT_TEXT: Final = (8, 0, 17)
_INVISIBLE: Final = (8, 0, 23)
_OLDEST_MARIADB: Final = (11, 1, 1)


def _floating(value: Column) -> Column:
    """Return a FLOAT or DOUBLE as SQL has it: as the double that it is, since the digits of FLT_MAX are above it.

    It has an exponent: without one it is a decimal, which has no -0.0.
    """
    text = value.cast("double").cast("string")
    return F.when(text.contains("E"), text).otherwise(F.concat(text, F.lit("E0")))


def _floating_text(value: float, kind: T.DataType) -> str:
    """Return the same of a value of Python."""
    if isinstance(kind, T.FloatType):
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    text = repr(value)
    return text if "e" in text else f"{text}e0"


@dataclass(frozen=True, slots=True)
class MySqlTraits:
    """What a server is: the collation that compares text byte by byte, and whether a column may be invisible."""

    collation: str
    has_invisible: bool
    is_tidb: bool = False


def connect_to_service(access: ServerAccess) -> SinkConnection:
    """Open a connection; its current database is ours if that is there: a DELETE by alias wants one, whichever it is."""
    connection = MySqlConnection(access)
    try:
        if connection.query("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", SERVICE):
            connection.execute(f"USE {SERVICE}")
    except BaseException:
        connection.close()
        raise
    return connection


def server_of(version: str, server: str) -> MySqlTraits:
    """Return what a server is, by its version; `SinkError` for one that cannot compare texts by their bytes."""
    found = _VERSION.search(version)
    numbers = tuple(int(part) for part in found.groups()) if found else (0, 0, 0)
    if "TiDB" in version:
        reason = "TiDB speaks MySQL; Tidemark is not tested on it"
        log.warning("sink.untested_server", server=server, version=version, reason=reason)
        return MySqlTraits("utf8mb4_0900_bin", has_invisible=False, is_tidb=True)
    if "MariaDB" in version:
        numbers = max(tuple(int(part) for part in one) for one in _VERSION.findall(version))
        if numbers < _OLDEST_MARIADB:
            message = f"the database {server} is MariaDB {version}: 11.1.1 is the oldest that is supported"
            raise SinkError(message)
        return MySqlTraits("utf8mb4_nopad_bin", has_invisible=True)
    if numbers < _EXACT_TEXT:
        message = (
            f"the database {server} is MySQL {version}: before 8.0.17 it has no collation that compares texts by their bytes, "
            "so two rows of the source could have one key here. Update it, or give another database"
        )
        raise SinkError(message)
    return MySqlTraits("utf8mb4_0900_bin", has_invisible=numbers >= _INVISIBLE)


class MySqlDialect(Dialect):
    """The words of MySQL and MariaDB."""

    most_name: ClassVar[int] = 64
    text_as: ClassVar[str] = "this server"
    ddl_is_transactional: ClassVar[bool] = False
    kinds: ClassVar[Mapping[str, T.DataType]] = _KINDS
    exists_sql: ClassVar[str] = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    columns_sql: ClassVar[str] = """SELECT column_name, data_type, column_comment FROM information_schema.columns
        WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
    indexes_sql: ClassVar[str] = """SELECT index_name, index_name = 'PRIMARY', column_name FROM information_schema.statistics
        WHERE table_schema = %s AND table_name = %s AND (index_name = 'PRIMARY' OR index_name LIKE 'tm!_key!_%%' ESCAPE '!')
        ORDER BY index_name, seq_in_index"""

    def __init__(self, server: MySqlTraits) -> None:
        self._server = server

    @property
    def _text(self) -> str:
        return f"CHARACTER SET utf8mb4 COLLATE {self._server.collation}"

    @property
    @override
    def service_tables(self) -> Sequence[str]:
        name = f"VARCHAR(191) {self._text} NOT NULL"
        text = f"LONGTEXT {self._text} NOT NULL"
        return (
            f"CREATE TABLE IF NOT EXISTS {self.service(OWNER)} (sink {name} PRIMARY KEY, epoch BIGINT NOT NULL) ENGINE=InnoDB",
            (
                f"CREATE TABLE IF NOT EXISTS {self.service(CHECKPOINT)} (sink {name}, target {name}, query_id {name}, "
                f"batch_id BIGINT NOT NULL, witness {text}, steps {text}, PRIMARY KEY (sink, target)) ENGINE=InnoDB"
            ),
        )

    @property
    @override
    def share_lock(self) -> str:
        return "FOR UPDATE" if self._server.is_tidb else "LOCK IN SHARE MODE"  # TiDB has shared locks in name only

    @override
    def claim(self, connection: SinkConnection, name: str, wait_s: int) -> bool:
        connection.execute("SET SESSION wait_timeout = 31536000")  # the lock goes with this connection, which is used no more
        lock = f"tidemark {hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return bool(connection.value("SELECT GET_LOCK(%s, %s)", lock, wait_s) == 1)

    @override
    def add_owner(self) -> str:
        return f"INSERT IGNORE INTO {self.service(OWNER)} VALUES (%s, 0)"  # noqa: S608

    @override
    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    @override
    def name_size(self, name: str) -> int:
        return len(name)

    @override
    def literal(self, value: Any, kind: T.DataType) -> str | None:
        found = plain_value(value, kind)
        if isinstance(found, float):
            return _floating_text(found, kind)
        if isinstance(found, (bool, int, Decimal)):
            return number_text(found)
        if isinstance(found, bytes):
            return f"X'{found.hex()}'"
        if isinstance(found, dt.datetime):
            return f"TIMESTAMP '{moment_text(found)}'"
        if isinstance(found, dt.date):
            return f"DATE '{moment_text(found)}'"
        return None if found is None else f"_utf8mb4 X'{found.encode().hex()}'"  # no quotes, no escapes

    @override
    def column_type(self, kind: T.DataType) -> str:
        if isinstance(kind, T.DecimalType):
            return f"decimal({kind.precision},{kind.scale})"
        if isinstance(kind, (T.StringType, *NESTED)):
            return f"longtext {self._text}"
        return _TYPES[type(kind)]

    @override
    def key_types(self, columns: Columns, keys: Sequence[str]) -> Mapping[str, str]:
        """As the base class says. The columns of an index have 3072 bytes: what is left by the others, texts and bytes share."""
        of_keys = [(name, kind) for name, kind in columns if name in keys]
        wide = [name for name, kind in of_keys if isinstance(kind, (T.StringType, T.BinaryType)) and name != SOURCE]
        source = _SOURCE_CHARACTERS * _WIDEST if SOURCE in keys else 0
        left = _INDEX_BYTES - source - _FIXED_BYTES * (len(keys) - len(wide) - (1 if source else 0))
        share = left // len(wide) if wide else 0
        types = {}
        for name, kind in of_keys:
            if name == SOURCE:
                types[name] = f"varchar({_SOURCE_CHARACTERS}) {self._text}"
            elif isinstance(kind, T.StringType):
                types[name] = f"varchar({share // _WIDEST}) {self._text}"
            else:
                types[name] = f"varbinary({share})" if isinstance(kind, T.BinaryType) else self.column_type(kind)
        return types

    @override
    def staged(self, value: Column, kind: T.DataType) -> Column:
        if isinstance(kind, NESTED):
            return F.to_json(value)
        if isinstance(kind, (T.DateType, T.TimestampNTZType, T.TimestampType)):
            return value.cast("string")
        return value.cast("int") if isinstance(kind, T.BooleanType) else value

    @override
    def line(self, values: Sequence[tuple[Column, T.DataType]]) -> Column:
        """As VALUES of an INSERT has it. A decimal is a text there: with an exponent it would be a double."""
        texts = []
        for value, kind in values:
            if isinstance(kind, T.BinaryType):
                text = F.concat(F.lit("X'"), F.hex(value), F.lit("'"))
            elif isinstance(kind, (T.FloatType, T.DoubleType)):
                text = _floating(value)
            elif isinstance(kind, (T.StringType, T.DecimalType)):
                text = F.concat(F.lit("'"), escaped(value.cast("string"), _ESCAPES), F.lit("'"))
            else:
                text = value.cast("string")
            texts.append(F.coalesce(text, F.lit("NULL")))
        return F.concat(F.lit("("), F.concat_ws(",", *texts), F.lit(")"))

    @override
    def plain_index(self, connection: SinkConnection, name: TableName) -> TableIndex | None:
        sql = """SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s
            AND index_name LIKE 'tm!_by!_%%' ESCAPE '!' ORDER BY index_name, seq_in_index"""
        found = connection.query(sql, name.database, name.table)
        return TableIndex(str(found[0][0]), tuple(str(column) for _, column in found), is_primary=False) if found else None

    @override
    def schema_statement(self, connection: SinkConnection, database: str) -> str | None:
        if connection.query("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", database):
            return None
        return f"CREATE DATABASE IF NOT EXISTS {self.quoted(database)} {self._text}"

    def _defined(self, column: str, kind: T.DataType, of_key: str | None, default: str = "") -> str:
        made = of_key or self.column_type(kind)
        comment = comment_of(kind)
        if len(comment) > MOST_CHARACTERS:
            raise SinkError(
                f"column {column}: its type takes {len(comment)} characters in the column's comment, which has at most "
                f"{MOST_CHARACTERS}; compute a struct of fewer fields, or its text by to_json(...)"
            )
        comment = comment.replace("'", "''")
        null = "NOT NULL" if of_key else "NULL"
        return f"{self.quoted(column)} {made} {null}{default} COMMENT '{comment}'"

    @override
    def create_table(self, name: TableName, columns: Columns, keys: TableKeys) -> Sequence[str]:
        types = self.key_types(columns, keys.primary)
        listed = [self._defined(column, kind, types.get(column)) for column, kind in columns]
        invisible = " DEFAULT '' INVISIBLE" if self._server.has_invisible else ""
        listed += [f"{self.quoted(POSITION)} {_POSITION}{invisible}", f"PRIMARY KEY ({', '.join(map(self.quoted, keys.primary))})"]
        if keys.identity:
            made = self.index_name(self.index_prefix, name, keys.identity)
            listed.append(f"INDEX {self.quoted(made)} ({', '.join(map(self.quoted, keys.identity))})")
        if keys.plain:
            made = self.index_name(self.plain_prefix, name, keys.plain)
            listed.append(f"INDEX {self.quoted(made)} ({self._indexed(keys.plain, dict(columns))})")
        return (f"CREATE TABLE {self.table(name)} ({', '.join(listed)}) ENGINE=InnoDB {self._text}",)

    def _indexed(self, columns: Sequence[str], kinds: Mapping[str, T.DataType]) -> str:
        """Return the columns of an index that is no key: of texts and bytes it has the first characters."""
        wide = [name for name in columns if isinstance(kinds[name], (T.StringType, T.BinaryType, *NESTED))]
        left = _INDEX_BYTES - _FIXED_BYTES * (len(columns) - len(wide))
        most = min(_INDEXED_CHARACTERS, left // len(wide) // _WIDEST) if wide else 0
        return ", ".join(f"{self.quoted(name)}({most})" if name in wide else self.quoted(name) for name in columns)

    @override
    def create_staging(self, staging: str, columns: Columns, keys: Sequence[str]) -> str:
        types = self.key_types(columns, keys)
        listed = [f"c{number} {types.get(name) or self.column_type(kind)} NULL" for number, (name, kind) in enumerate(columns)]
        return f"CREATE TEMPORARY TABLE {staging} ({', '.join(listed)}, p {_POSITION}, d int NOT NULL) ENGINE=InnoDB"

    @override
    def drop_staging(self, staging: str) -> str:
        return f"DROP TEMPORARY TABLE IF EXISTS {staging}"

    @override
    def alter_table(
        self,
        name: TableName,
        change: Evolution,
        existing: Sequence[TableColumn],
        index: TableIndex | None,
        plain: TableIndex | None = None,
    ) -> Sequence[str]:
        """As the base class says: one statement, so that nobody sees a part of it. Rows are filled by the default of a column."""
        keys, is_primary = (index.columns, index.is_primary) if index is not None else ((), False)
        columns = {column.name: column.kind for column in existing} | dict(change.retyped)
        now = (SOURCE, *keys) if is_primary and any(column == SOURCE for column, _, _ in change.added) else keys
        types = self.key_types([(SOURCE, T.StringType()), *columns.items()], now)
        sources = [(column, source, value) for column, source, value in change.filled]
        parts = []
        for column, kind, value in sorted(change.added, key=lambda item: item[0] != SOURCE):
            default = self._default(kind, value, [(source, one) for name, source, one in sources if name == column])
            parts.append(f"ADD COLUMN {self._defined(column, kind, types.get(column), default)}")
        retyped = dict(change.retyped) | ({key: columns[key] for key in keys} if now != keys else {})  # shorter beside the source
        defined = self._defined if is_primary else self._nullable
        parts += [f"MODIFY COLUMN {defined(column, kind, types.get(column))}" for column, kind in retyped.items()]
        parts += [f"DROP COLUMN {self.quoted(column)}" for column in change.dropped]
        if plain is not None and not set(plain.columns).isdisjoint(retyped):  # a text is indexed in another way than a number
            own = self.quoted(plain.name)
            parts += [f"DROP INDEX {own}", f"ADD INDEX {own} ({self._indexed(plain.columns, columns)})"]
        if now != keys:
            parts += ["DROP PRIMARY KEY", f"ADD PRIMARY KEY ({', '.join(map(self.quoted, now))})"]
        return (f"ALTER TABLE {self.table(name)} {', '.join(parts)}",) if parts else ()

    def _default(self, kind: T.DataType, value: Any, of_sources: Sequence[tuple[str, Any]]) -> str:
        constant = self._constant(value, kind)
        if of_sources:
            cases = " ".join(
                f"WHEN HEX({self.quoted(SOURCE)}) = '{source.encode().hex().upper()}' THEN {self._constant(one, kind) or 'NULL'}"
                for source, one in of_sources
            )
            return f" DEFAULT (CASE {cases} ELSE {constant or 'NULL'} END)"
        if constant is None:
            return ""
        return f" DEFAULT ({constant})" if isinstance(kind, (T.StringType, T.BinaryType, *NESTED)) else f" DEFAULT {constant}"

    def _constant(self, value: Any, kind: T.DataType) -> str | None:
        """Return a value as a default has it: without quotes, which MariaDB writes into the table's definition as they are."""
        found = plain_value(value, kind)
        if isinstance(found, bytes):
            return f"UNHEX('{found.hex()}')"
        return f"CONVERT(UNHEX('{found.encode().hex()}') USING utf8mb4)" if isinstance(found, str) else self.literal(value, kind)

    @override
    def change_key(
        self, name: TableName, columns: Columns, keys: Sequence[str], indexes: Sequence[TableIndex]
    ) -> Sequence[str]:
        kinds, types, listed = dict(columns), self.key_types(columns, keys), ", ".join(map(self.quoted, keys))
        parts = ["DROP PRIMARY KEY" if one.is_primary else f"DROP INDEX {self.quoted(one.name)}" for one in indexes]
        old = [column for one in indexes for column in one.columns if column not in keys and column in kinds]
        parts += [f"MODIFY COLUMN {self._defined(column, kinds[column], None)}" for column in dict.fromkeys(old)]
        wide = [key for key in keys if isinstance(kinds[key], (T.StringType, T.BinaryType))]
        parts += [f"MODIFY COLUMN {self._nullable(key, kinds[key], types[key])}" for key in wide]
        parts.append(f"ADD INDEX {self.quoted(self.index_name(self.index_prefix, name, keys))} ({listed})")
        return (f"ALTER TABLE {self.table(name)} {', '.join(parts)}",)

    def _nullable(self, column: str, kind: T.DataType, made: str | None) -> str:
        return self._defined(column, kind, made).replace(" NOT NULL ", " NULL ", 1)

    @override
    def analyze(self, table: str) -> str:
        return f"ANALYZE TABLE {table}"

    @override
    def delete_staged(self, target: str, staging: str, match: str) -> str:
        return f"DELETE t FROM {staging} s STRAIGHT_JOIN {target} t ON {match} WHERE s.d = 1 AND s.p > t.{POSITION}"

    @override
    def update_staged(self, target: str, staging: str, match: str, assigned: Sequence[tuple[str, str]]) -> str:
        listed = ", ".join(f"t.{name} = {value}" for name, value in assigned)
        return f"UPDATE {staging} s STRAIGHT_JOIN {target} t ON {match} SET {listed} WHERE s.d = 0 AND s.p > t.{POSITION}"  # noqa: S608

    @override
    def text_of(self, column: str, kind: T.DataType) -> str:
        return f"HEX({column})" if isinstance(kind, T.BinaryType) else f"CAST({column} AS CHAR)"
