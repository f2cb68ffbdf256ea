"""The tables of a PostgreSQL database: rows by COPY in its binary form, in which a row is one message of the server.

Each value is selected as text, but for bytes; dates and times as numbers of days and microseconds, which years before 1 have, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psycopg
import pyarrow as pa
from numpy.typing import NDArray

from schemas.identity import TableName
from schemas.overriding import override
from schemas.secrets import secret_of
from schemas.settings.database_url import parse_url
from schemas.settings.url_options import LIBPQ_DEFAULTS
from tidemark.verify.relational_reader import SERVICE, SinkDatabaseError, SinkServer
from tidemark.verify.sink_reader import POSITION_COLUMN
from tidemark.verify.stored_values import (
    INSTANT,
    WALL_TIME,
    StoredColumn,
    decimal_type,
    reading_of,
    type_of_comment,
)
from tidemark.verify.text_rows import Cells

if TYPE_CHECKING:
    from schemas.settings import SinkSettings

_BLOCK_BYTES: Final = 4 << 20
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER_BYTES: Final = len(_SIGNATURE) + 8
_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "bytea": pa.large_binary(),
    "date": pa.date32(),
    "timestamp without time zone": WALL_TIME,
    "timestamp with time zone": INSTANT,
}
_PINS: Final = (
    "SET TIME ZONE 'UTC'",
    "SET extra_float_digits = 1",
    "SET standard_conforming_strings = on",
    "SET statement_timeout = 0",
    "SET default_transaction_read_only = on",
)
_COLUMNS: Final = """SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(col_description(c.oid, a.attnum), '')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_TARGETS: Final = """SELECT n.nspname, c.relname
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE a.attname = %s AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND n.nspname <> %s
    AND NOT starts_with(n.nspname, 'pg_') ORDER BY 1, 2"""


class PostgresServer(SinkServer):
    """The database of a sink of type `postgresql`."""

    def __init__(self, sink: SinkSettings) -> None:
        self._sink = sink
        self._url = parse_url(sink.url, sink.type, f"sinks: {sink.name}: url")

    @override
    def columns(self, target: TableName) -> list[StoredColumn]:
        with self._connection() as connection:
            rows = connection.execute(_COLUMNS, (target.database, target.table)).fetchall()
        return [_column(self.quoted(name), name, kind, comment) for name, kind, comment in rows]

    @override
    def targets(self) -> list[TableName]:
        with self._connection() as connection:
            return [TableName(*row) for row in connection.execute(_TARGETS, (POSITION_COLUMN, SERVICE)).fetchall()]

    @override
    def read(self, sql: str) -> Iterator[list[Cells]]:
        statement = f"COPY ({sql}) TO STDOUT (FORMAT binary)".encode()
        with self._connection() as connection, connection.cursor().copy(statement) as copy:
            rows: list[bytes] = []
            size = 0
            while data := copy.read():
                row = bytes(data)
                if row.startswith(_SIGNATURE):
                    row = row[_HEADER_BYTES:]
                if not row or row == b"\xff\xff":  # the header alone, and the end
                    continue
                rows.append(row)
                size += len(row)
                if size >= _BLOCK_BYTES:
                    yield _split(rows)
                    rows, size = [], 0
            if rows:
                yield _split(rows)

    @override
    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(sql.encode()).fetchall()

    @override
    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    @override
    def literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection, closed at the end also in the middle of a result; errors of the client become ours."""
        try:
            with self._connect() as connection:
                for pin in _PINS:
                    connection.execute(pin.encode())
                try:
                    yield connection
                except GeneratorExit:
                    connection.close()  # nobody reads what is left
                    raise
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            raise SinkDatabaseError(f"the sink's database {self._url.server} cannot be read: {said}") from error

    def _connect(self) -> psycopg.Connection[Any]:
        own = {"connect_timeout": 10, **self._url.options, "application_name": "tidemark verify"}
        options: Mapping[str, Any] = {**LIBPQ_DEFAULTS, **own}
        os.environ.pop("PGSERVICE", None)  # libpq has no option for no service
        return psycopg.connect(
            host=self._url.address,
            port=self._url.port,
            dbname=self._url.database,
            user=self._sink.user,
            password=secret_of(self._sink.password, self._sink.password_file, "sinks: password_file"),
            autocommit=True,
            client_encoding="utf8",
            keepalives_idle=30,
            **options,
        )


def _column(quoted: str, name: str, stored: str, comment: str) -> StoredColumn:
    numeric = _NUMERIC.fullmatch(stored)
    own = decimal_type(int(numeric[1]), int(numeric[2])) if numeric else _TYPES.get(stored, pa.large_string())
    ours = type_of_comment(comment)
    kind = ours if ours is not None and _stored_as(ours) == own else own  # somebody may have changed the type since
    return StoredColumn(name, kind, _expression(quoted, kind), reading_of(kind))


def _stored_as(kind: pa.DataType) -> pa.DataType:
    """Return the type of the column in which the merge job keeps a type."""
    if pa.types.is_nested(kind):
        return pa.large_string()
    return pa.int16() if pa.types.is_int8(kind) else kind


def _expression(quoted: str, kind: pa.DataType) -> str:
    """Return the text of a value, or its bytes."""
    if pa.types.is_large_binary(kind):
        return quoted
    if pa.types.is_boolean(kind):
        return f"{quoted}::integer::text"
    if pa.types.is_date(kind):
        return f"({quoted} - DATE '1970-01-01')::text"
    if pa.types.is_timestamp(kind):
        return _microseconds(f"({quoted} AT TIME ZONE 'UTC')" if kind.tz else quoted)
    return f"{quoted}::text"


def _microseconds(moment: str) -> str:
    """Return microseconds since 1970: whole numbers, as `extract(epoch ...)` of servers before 14 does not give them."""
    days = f"({moment}::date - DATE '1970-01-01')::bigint * 86400000000"
    minutes = f"extract(hour FROM {moment})::bigint * 3600000000 + extract(minute FROM {moment})::bigint * 60000000"
    return f"({days} + {minutes} + extract(microseconds FROM {moment})::bigint)::text"


def _split(rows: list[bytes]) -> list[Cells]:
    """Return the cells of rows, column by column: a row is the number of its columns, then length and bytes of each."""
    buffer = np.frombuffer(b"".join(rows), dtype=np.uint8)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    at = np.cumsum(sizes) - sizes + 2
    columns: list[Cells] = []
    for _ in range(int.from_bytes(rows[0][:2], "big")):
        lengths = _big_endian(buffer, at)
        nulls = lengths == 0xFFFFFFFF
        begins = at + 4
        at = begins + np.where(nulls, 0, lengths)
        columns.append(Cells(buffer, begins, at, nulls))
    return columns


def _big_endian(buffer: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    value = np.zeros(len(at), dtype=np.int64)
    for byte in range(4):
        value = (value << 8) | buffer[at + byte].astype(np.int64)
    return value
