"""What the tests of `merge: producer` share: producers for several tests, writers beside them, consumers of the topics."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from producer.snapshot import windowing
from producer.snapshot.coordinator import SnapshotProgress
from schemas.settings import Settings
from tests.support.producers import Running, Source, running
from tests.support.servers import database, drop_database, new_database
from tests.support.topics import Record
from tests.support.writing_threads import writing_threads

_numbers = itertools.count(1)
COLUMNS = "id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(40)"


def settings_of(source: Source, *, records: dict[str, Any] | None = None, **snapshot: Any) -> Settings:
    settings = source.settings(records)
    options = {"merge": "producer", "readers": 1, "chunk_rows": 50, **snapshot}
    return replace(settings, snapshot=replace(settings.snapshot, **options))


@dataclass(frozen=True)
class Site:
    """A database and the producer that follows it."""

    source: Source
    run: Running

    def create(self, columns: str, rows: Sequence[tuple[Any, ...]]) -> str:
        """A table of a test's own; its name. The log has its creation, and none of its rows."""
        table = f"t{next(_numbers)}"
        self.source.execute(f"CREATE TABLE {table} ({columns})")
        with self.source.connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES ({','.join(['%s'] * len(rows[0]))})", rows[0])
            cursor.execute(f"DELETE FROM {table}")
        insert_unlogged(self.source, table, rows)
        return table

    def fill(self, rows: int, columns: str = COLUMNS) -> str:
        """The same, with as many rows."""
        return self.create(columns, [(number, 0, "x") for number in range(rows)])

    def snapshot(self, *tables: str, **data: Any) -> SnapshotProgress:
        """As the function, and the log is read to its end."""
        progress = snapshot(self.source, self.run, list(tables), **data)
        self.run.caught_up(self.source)
        return progress


def site_of(server: str, kafka: Any, **options: Any) -> Iterator[Site]:
    created = Source(database(server), new_database(database(server)), kafka.bootstrap_servers)
    with running(settings_of(created, **options)) as run:
        yield Site(created, run)
    created.connection.close()
    drop_database(created.server, created.schema)


def signal(source: Source, name: str, tables: list[str], **data: Any) -> None:
    document = {"data-collections": [rf"{source.schema}\.{table}" for table in tables], **data}
    with source.connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tidemark_signal VALUES (%s, 'execute-snapshot', %s)", (name, json.dumps(document))
        )


def snapshot(source: Source, run: Running, tables: list[str], **data: Any) -> SnapshotProgress:
    """Ask for a snapshot and wait for its end, well or not; what became of the first table."""
    name = f"s{next(_numbers)}"
    signal(source, name, tables, **data)
    run.until(lambda: ended(run, name), f"snapshot {name} has ended")
    assert run.producer.coordinator is not None
    return next(table for table in run.producer.coordinator.progress() if table.request == name)


def ended(run: Running, name: str) -> bool:
    assert run.producer.coordinator is not None
    states = [table.state for table in run.producer.coordinator.progress() if table.request == name]
    return bool(states) and all(state in ("done", "failed", "cancelled") for state in states)


def consumed(records: list[Record]) -> dict[str, Any]:
    """What a consumer has who keeps the last record of each key, by the key's text."""
    rows: dict[str, Any] = {}
    for record in records:
        key = json.dumps(record.key)
        if record.value is None or record.value["op"] == "d":
            rows.pop(key, None)
        else:
            rows[key] = record.value["after"]
    return rows


def stored(source: Source, table: str, key: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    with source.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {json.dumps({name: row[name] for name in key}): row for row in rows}


def reads(source: Source, table: str) -> list[Record]:
    return [record for record in source.records(table) if record.value and record.value["op"] == "r"]


def create(source: Source, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """A table with rows that are not in the log: only a snapshot has them."""
    source.execute(f"CREATE TABLE {table} ({columns})")
    insert_unlogged(source, table, rows)


def insert_unlogged(source: Source, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    source.execute("SET sql_log_bin = 0")
    with source.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES ({','.join(['%s'] * len(rows[0]))})", rows)
    source.execute("SET sql_log_bin = 1")


def writers(source: Source, table: str, keys: int, count: int = 1) -> AbstractContextManager[None]:
    """Threads that insert, update, delete, and change keys, hundreds of times a second."""

    def write(cursor: Any, dice: random.Random, _number: int) -> float:
        key, other, value = dice.randrange(keys), dice.randrange(keys), dice.randrange(1 << 40)
        kind = dice.random()
        if kind < 0.6:
            cursor.execute(f"UPDATE {table} SET v = %s WHERE id = %s", (value, key))
        elif kind < 0.75:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
        elif kind < 0.9:
            cursor.execute(f"REPLACE INTO {table} VALUES (%s, %s, 'new')", (key, value))
        else:
            cursor.execute(f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (other, key))
        return 0.003

    return writing_threads(source, write, count)


@contextmanager
def before_the_close_row(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[None]:
    """Run something once, after a chunk was read and before its close row is committed."""
    commit, done = windowing.commit_close, []

    def committed(*arguments: Any) -> None:
        if not done:
            done.append(1)
            act()
        commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(windowing, "commit_close", committed)
        yield
    assert done, "no chunk was read"
