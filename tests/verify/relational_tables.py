"""Tables of relational sinks, written by hand as the merge job makes them: with its statements, types and comments."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type

from devservers import Database, Postgres
from schemas.identity import TableName
from schemas.overriding import override
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.sinks.relational.mysql_dialect import MySqlDialect, server_of
from spark_jobs.sinks.relational.postgres_dialect import PostgresDialect
from spark_jobs.sinks.relational.sql_dialect import Dialect
from spark_jobs.sinks.relational.table_keys import TableKeys


class SinkTables(ABC):
    """The tables of one server."""

    dialect: Dialect

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The keys of a sink in this server, but for `work`."""

    @abstractmethod
    def run(self, sql: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        """Run a statement, once or for each row."""

    def drop(self, *names: TableName) -> None:
        """Drop tables that may be there."""
        for name in names:
            self.run(f"DROP TABLE IF EXISTS {self.dialect.table(name)}")

    def write(self, name: TableName, rows: pa.Table) -> None:
        """Replace a table; its key is `id`, of each source table."""
        keys = [SOURCE] * (SOURCE in rows.column_names) + ["id"]
        kinds = [(one.name, _spark_type(one.type)) for one in rows.schema if one.name != POSITION]
        self._make_schema(name.database)
        self.drop(name)
        for statement in self.dialect.create_table(name, kinds, TableKeys.of(keys)):
            self.run(statement)
        if rows.num_rows:
            listed = ", ".join(self.dialect.quoted(column) for column in rows.column_names)
            marks = ", ".join(["%s"] * rows.num_columns)
            values = [[_stored(value) for value in row.values()] for row in rows.to_pylist()]
            self.run(f"INSERT INTO {self.dialect.table(name)} ({listed}) VALUES ({marks})", values)

    @abstractmethod
    def _make_schema(self, database: str) -> None:
        """Make the schema or database."""


class PostgresTables(SinkTables):
    dialect = PostgresDialect()

    def __init__(self, server: Postgres) -> None:
        self._server = server

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        url = f"postgresql://{self._server.host}:{self._server.port}/{self._server.database}"
        return {"type": "postgresql", "url": url, "user": self._server.user, "password": self._server.password}

    @override
    def run(self, sql: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            if rows:
                cursor.executemany(sql, rows)  # type: ignore[arg-type]
            else:
                cursor.execute(sql)  # type: ignore[arg-type]

    @override
    def _make_schema(self, database: str) -> None:
        self.run(f"CREATE SCHEMA IF NOT EXISTS {self.dialect.quoted(database)}")

    @override
    def drop(self, *names: TableName) -> None:
        for name in names:
            self._make_schema(name.database)
        super().drop(*names)


class MySqlTables(SinkTables):
    def __init__(self, server: Database) -> None:
        self._server = server
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone() or ("",)
        self.dialect = MySqlDialect(server_of(str(version), server.name))

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        url = f"{self._server.flavour}://{self._server.host}:{self._server.port}/?sslMode=DISABLED"
        return {"type": self._server.flavour, "url": url, "user": self._server.user, "password": self._server.password}

    @override
    def run(self, sql: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            if rows:
                cursor.executemany(sql, rows)
            else:
                cursor.execute(sql)

    @override
    def _make_schema(self, database: str) -> None:
        self.run(f"CREATE DATABASE IF NOT EXISTS {self.dialect.quoted(database)}")


def _spark_type(kind: pa.DataType) -> T.DataType:
    if pa.types.is_struct(kind):  # Spark's own function fails on a field called `wkb`
        return T.StructType([T.StructField(field.name, _spark_type(field.type)) for field in kind])
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _stored(value: Any) -> Any:
    """Return a value as the merge job writes it: JSON without NULL fields for what is nested, times in UTC."""
    if isinstance(value, dict):
        return json.dumps({name: _in_json(one) for name, one in value.items() if one is not None}, separators=(",", ":"))
    if isinstance(value, list):
        return json.dumps([_in_json(one) for one in value], separators=(",", ":"))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat(" ", "microseconds").removesuffix("+00:00")
    return value


def _in_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
