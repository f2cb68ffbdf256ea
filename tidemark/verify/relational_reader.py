"""The sinks of databases as verification reads them: PostgreSQL, MySQL and MariaDB through their own clients. No JVM.

Each scan is one statement on a connection of its own, so it shows one committed state, and rows are streamed as they come. The
modules `postgres_rows` and `mysql_rows` have what differs between the servers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from schemas.errors import SinkError
from schemas.identity import TableName
from schemas.overriding import override
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.sink_reader import POSITION_COLUMN, SOURCE_COLUMN, KeySpan, Near, SinkReader, TargetRows
from tidemark.verify.stored_values import StoredColumn, whole_numbers
from tidemark.verify.text_rows import Cells

SERVICE: Final = "tidemark"
"""The schema (PostgreSQL) or database (MySQL, MariaDB) of the merge job's own tables."""


class SinkDatabaseError(SinkError, OSError):
    """The database of a sink refuses, cannot be reached, or was lost while it was read."""


class SinkServer(ABC):
    """A database server with targets. Any thread may call it: each call opens a connection and closes it."""

    @abstractmethod
    def columns(self, target: TableName) -> list[StoredColumn]:
        """Return the columns of a table in their order; none where there is no such table. Raises `SinkDatabaseError`."""

    @abstractmethod
    def read(self, sql: str) -> Iterator[list[Cells]]:
        """Run a SELECT and yield blocks of some MiB, each a list with the cells of every column. Raises `SinkDatabaseError`."""

    @abstractmethod
    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a statement. Raises `SinkDatabaseError`."""

    @abstractmethod
    def targets(self) -> list[TableName]:
        """Return the tables with a column `POSITION_COLUMN`, but for those in `SERVICE`. Raises `SinkDatabaseError`."""

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Return an identifier in quotes."""

    @abstractmethod
    def literal(self, text: str) -> str:
        """Return a text as SQL."""


class RelationalReader(SinkReader):
    """The tables of a database; a schema (PostgreSQL) or database (MySQL, MariaDB) is the first part of a target's name."""

    def __init__(self, server: SinkServer) -> None:
        self._server = server

    @override
    def rows(self, target: TableName, source: str | None = None) -> RelationalRows:
        return RelationalRows(self._server, target, source)

    @override
    def targets(self) -> Iterator[TableName]:
        """Yield the tables; `SinkDatabaseError` where the database does not answer."""
        yield from self._server.targets()


class RelationalRows(TargetRows):
    """The rows of one table, with the columns that it has when it is opened."""

    def __init__(self, server: SinkServer, target: TableName, source: str | None) -> None:
        super().__init__(source)
        self._server = server
        self._table = f"{server.quoted(target.database)}.{server.quoted(target.table)}"
        try:
            self._columns = {column.name: column for column in server.columns(target)}
        except SinkDatabaseError as error:
            raise IncomparableError(str(error)) from error
        if not self._columns:
            raise IncomparableError(f"there is no table {target.plain} in the sink's database yet")
        if POSITION_COLUMN not in self._columns:
            message = f"the table {target.plain} in the sink's database has no column {POSITION_COLUMN}: no merge job has made it"
            raise IncomparableError(message)

    @property
    @override
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.kind) for column in self._columns.values()])

    @override
    def total(self) -> int:
        return sum(
            sum(whole_numbers(count).to_pylist())
            for (count,) in self._server.read(f"SELECT CONCAT(COUNT(*)) FROM {self._table}")  # noqa: S608 - quoted names only
        )

    @override
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        wanted = [self._columns[name] for name in columns]
        schema = pa.schema([(column.name, column.kind) for column in wanted])
        selected = ", ".join(column.expression for column in wanted)
        conditions = self._conditions(near)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        for block in self._server.read(f"SELECT {selected} FROM {self._table}{where}"):  # noqa: S608 - quoted names only
            arrays = [self._array(column, cells) for column, cells in zip(wanted, block, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, column: StoredColumn, cells: Cells) -> pa.Array:
        """Return the cells as an array of the column's type; the error of a value that it does not have names the column."""
        try:
            return column.read(cells)
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(f"column {column.name} of {self._table}: {error}") from error

    def _conditions(self, near: Near | None) -> list[str]:
        found = []
        if self.source is not None and SOURCE_COLUMN in self._columns:
            found.append(f"{self._server.quoted(SOURCE_COLUMN)} = {self._server.literal(self.source)}")
        if near is None:
            return found
        name = self._server.quoted(near.name)
        if isinstance(near, KeySpan):
            found += [] if near.first is None else [f"{name} >= {near.first}"]
            return found + ([] if near.end is None else [f"{name} < {near.end}"])
        return [*found, f"{name} IN ({', '.join(map(str, near.values))})" if near.values else "1 = 0"]
