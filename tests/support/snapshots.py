"""A fresh schema to snapshot, and what its snapshot topics hold."""

from __future__ import annotations

import json
from typing import Any

from devservers import Database
from producer.snapshot.watermark import end_of_binlog
from schemas.position import Position
from schemas.settings import SnapshotSettings
from tests.support.memory_log import Durable, MemoryLog, begin, settings_for


class Source:
    """A fresh schema with a signal table's worth of helpers."""

    def __init__(self, server: Database, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.connection: Any = server.connect(database=schema)
        self._signals = 0

    def run(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def numbers(self, table: str, count: int) -> None:
        self.run(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v INT NOT NULL)")
        with self.connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(i, i) for i in range(1, count + 1)])
            # The server counts rows while they come: without this a table is cut by any number between none and all of them.
            cursor.execute(f"ANALYZE NO_WRITE_TO_BINLOG TABLE {table}")

    def end(self) -> Position:
        """Where the log ends now, as the memory log counts."""
        return end_of_binlog(self.connection, 0).position

    def signal(self, kind: str, data: Any = None, signal_id: str | None = None) -> str:
        self._signals += 1
        signal_id = signal_id or f"s{self._signals}"
        text = data if isinstance(data, str) else json.dumps(data or {})
        with self.connection.cursor() as cursor:
            cursor.execute("INSERT INTO signals VALUES (%s, %s, %s)", (signal_id, kind, text))
        return signal_id

    def tables(self) -> list[tuple[str, str]]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.tables "
                "WHERE table_schema = %s AND table_name <> 'signals'",
                (self.schema,),
            )
            return [(self.schema, name) for (name,) in cursor.fetchall()]


def memory_log(source: Source, durable: Durable | None = None, **options: Any) -> MemoryLog:
    snapshot = {key: options.pop(key) for key in SnapshotSettings.__slots__ if key in options}
    settings = settings_for(source.server, source.schema, **snapshot)
    return MemoryLog(settings, durable or begin(settings), source.tables, **options)


def snapshot_rows(durable: Durable, schema: str, table: str) -> list[dict[str, Any]]:
    records = durable.topics.records.get(f"srv-snapshot.{schema}.{table}", [])
    return [json.loads(value) for _, value in records]


def ids(durable: Durable, schema: str, table: str) -> list[int]:
    return sorted(row["after"]["id"] for row in snapshot_rows(durable, schema, table))


def explain(connection: Any, sql: str) -> list[dict[str, Any]]:
    """Return the server's plan for a query, one mapping per line."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
