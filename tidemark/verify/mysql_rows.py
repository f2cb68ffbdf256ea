"""The tables of a MySQL or MariaDB server: rows of text result sets, as `text_rows` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mysqlio.connection import Connection, abandon, connect
from mysqlio.quoting import quoted, text_literal
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import ServerError
from schemas.errors import SourceError
from schemas.identity import TableName
from schemas.overriding import override
from tidemark.verify import temporal
from tidemark.verify.relational_reader import SERVICE, SinkDatabaseError, SinkServer
from tidemark.verify.sink_reader import POSITION_COLUMN
from tidemark.verify.stored_values import (
    WALL_TIME,
    Reading,
    StoredColumn,
    decimal_type,
    reading_of,
    type_of_comment,
)
from tidemark.verify.text_rows import Cells, read_columns

if TYPE_CHECKING:
    from schemas.settings import SinkSettings

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": WALL_TIME,
    "varbinary": pa.large_binary(),
    "longblob": pa.large_binary(),
}
_COLUMNS: Final = """SELECT column_name, data_type, column_type, numeric_precision, numeric_scale, datetime_precision,
    column_comment FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_TARGETS: Final = """SELECT c.table_schema, c.table_name FROM information_schema.columns c JOIN information_schema.tables t
    ON t.table_schema = c.table_schema AND t.table_name = c.table_name
    WHERE c.column_name = %s AND c.table_schema <> %s AND t.table_type = 'BASE TABLE' ORDER BY 1, 2"""


class MySqlServer(SinkServer):
    """The server of a sink of type `mysql` or `mariadb`."""

    def __init__(self, sink: SinkSettings) -> None:
        self._access = ServerAccess.of_sink(sink)

    @override
    def columns(self, target: TableName) -> list[StoredColumn]:
        return [_column(*row) for row in self._rows(_COLUMNS, target.database, target.table)]

    @override
    def targets(self) -> list[TableName]:
        return [TableName(*row) for row in self._rows(_TARGETS, POSITION_COLUMN, SERVICE)]

    @override
    def read(self, sql: str) -> Iterator[list[Cells]]:
        with self._connection() as connection:
            yield from read_columns(connection, sql)

    @override
    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._rows(sql)

    @override
    def quoted(self, name: str) -> str:
        return quoted(name)

    @override
    def literal(self, text: str) -> str:
        return text_literal(text)

    def _rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Open a connection, closed at the end also in the middle of a result; errors of the client become ours."""
        try:
            connection = connect(self._access)
            try:
                yield connection
            finally:
                abandon(connection)
        except (ServerError, SourceError) as error:
            raise SinkDatabaseError(f"the sink's database {self._access.address} cannot be read: {error}") from error


def _column(
    name: str, data_type: str, column_type: str, precision: int | None, scale: int | None, fraction: int | None, comment: str
) -> StoredColumn:
    own = _TYPES.get(data_type.lower(), pa.large_string())
    if data_type.lower() == "decimal":
        own = decimal_type(int(precision or 10), int(scale or 0))
    elif "unsigned" in column_type.lower():
        own = pa.large_string()  # none of ours
    ours = type_of_comment(comment)
    kind = ours if ours is not None and _stored_as(ours) == own else own  # somebody may have changed the type since
    return StoredColumn(name, kind, _expression(name, kind), _reading(kind, int(fraction or 0)))


def _stored_as(kind: pa.DataType) -> pa.DataType:
    """Return the type of the column in which the merge job keeps a type."""
    if pa.types.is_nested(kind):
        return pa.large_string()
    if pa.types.is_boolean(kind):
        return pa.int8()
    return WALL_TIME if pa.types.is_timestamp(kind) else kind


def _expression(name: str, kind: pa.DataType) -> str:
    column = quoted(name)
    if pa.types.is_floating(kind):
        return f"{column} * 1e0"  # a FLOAT by itself is shown with six digits
    return f"COALESCE({column})" if name == "*" else column  # MySQL before 9 takes it for all columns


def _reading(kind: pa.DataType, fraction: int) -> Reading:
    if pa.types.is_date(kind):
        return lambda cells: _all_there(temporal.dates(cells), cells).cast(pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return lambda cells: _all_there(temporal.datetimes(cells, fraction), cells).cast(kind)
    return reading_of(kind)


def _all_there(array: pa.Array, cells: Cells) -> pa.Array:
    """Return the array; `pa.ArrowInvalid` where a value is no date, which a merge job writes nowhere."""
    if array.null_count > int(cells.nulls.sum()):
        raise pa.ArrowInvalid("a value that is no date (a zero date, or a day that its month does not have)")
    return array
