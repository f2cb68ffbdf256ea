"""Orders in shards: sixteen tables of one kind, and a write load that moves rows between them.

A row that moves is inserted in its new shard before it is deleted in the old one, in one transaction or in two. Keys are the same
in all shards. States change, so that rows begin and cease to match a condition.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from mysqlio.connection import Connection
from mysqlio.server_errors import ServerCode, ServerError, server_code
from schemas.errors import SourceError

Connect = Callable[[], "Connection"]

DATABASE: Final = "sales"
SHARDS: Final = tuple(f"orders_{number:02d}" for number in range(16))
LATER: Final = "returns"
"""A table that is not captured at first."""
STATES: Final = ("draft", "open", "paid")
_COLUMNS: Final = """
    id INT NOT NULL PRIMARY KEY,
    amount INT NOT NULL,
    status VARCHAR(10) NOT NULL,
    email VARCHAR(60),
    note TEXT"""
_STATEMENT_ROWS: Final = 500
_RETRIABLE: Final = frozenset({ServerCode.DEADLOCK, ServerCode.LOCK_WAIT_TIMEOUT, ServerCode.TABLE_CHANGED})
_JOIN_S: Final = 60.0


def create(connection: Connection, rows: int, seed: int) -> None:
    """Make the shards again with about that many rows in all."""
    rng, each = random.Random(seed), max(1, rows // len(SHARDS))
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        for number, table in enumerate((*SHARDS, LATER)):
            cursor.execute(f"CREATE TABLE {DATABASE}.{table} ({_COLUMNS}) ENGINE=InnoDB")
            keys = [key for key in range(1, each * 3 // 2 + 1) if (key + number) % 3]  # the others may move in
            values = [_row(key, rng) for key in keys]
            for first in range(0, len(values), _STATEMENT_ROWS):
                cursor.executemany(
                    f"INSERT INTO {DATABASE}.{table} VALUES (%s, %s, %s, %s, %s)", values[first : first + _STATEMENT_ROWS]
                )
    connection.commit()


def alter_one(connection: Connection) -> str:
    """Return the ALTER of one shard alone, which is made here."""
    statement = f"ALTER TABLE {DATABASE}.{SHARDS[3]} ADD COLUMN channel VARCHAR(10) NOT NULL DEFAULT 'web'"
    with connection.cursor() as cursor:
        cursor.execute(statement)
    return statement


class ShardLoad:
    """A thread that writes to the shards until it is stopped, about `rate` transactions a second."""

    def __init__(self, connect: Connect, seed: int, rate: float) -> None:
        self._connect = connect
        self._random = random.Random(seed)
        self._wait_s = 1 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shard-load", daemon=True)
        self._failure: Exception | None = None
        self._next_key = 1_000_000
        self.changes = 0
        self.moves = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End after the running transaction; `SourceError` if the load has failed."""
        self._stop.set()
        self._thread.join(_JOIN_S)
        if self._failure is not None:
            raise SourceError(f"the load on the shards failed: {self._failure}") from self._failure

    def _run(self) -> None:
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                while not self._stop.is_set():
                    self._transaction(connection, cursor)
                    time.sleep(self._wait_s)
        except (ServerError, OSError) as error:
            self._failure = error

    def _transaction(self, connection: Connection, cursor: Any) -> None:
        try:
            cursor.execute("BEGIN")
            kind = self._random.random()
            changes = self._move(cursor) if kind < 0.15 else self._insert(cursor) if kind < 0.4 else self._change(cursor)
            connection.commit()
            self.changes += changes
        except ServerError as error:
            if server_code(error) not in _RETRIABLE:
                raise
            connection.rollback()

    def _table(self) -> str:
        return f"{DATABASE}.{self._random.choice((*SHARDS, LATER))}"

    def _insert(self, cursor: Any) -> int:
        self._next_key += 1
        return self._insert_into(cursor, self._table(), _row(self._next_key, self._random))

    def _insert_into(self, cursor: Any, table: str, row: tuple[Any, ...]) -> int:
        cursor.execute(f"INSERT IGNORE INTO {table} (id, amount, status, email, note) VALUES (%s, %s, %s, %s, %s)", row)
        return int(cursor.rowcount)

    def _change(self, cursor: Any) -> int:
        key, table = self._random.randint(1, 400), self._table()
        if self._random.random() < 0.1:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
        else:
            state = self._random.choice(STATES)
            cursor.execute(f"UPDATE {table} SET amount = amount + 1, status = %s WHERE id BETWEEN %s AND %s", (state, key, key + 3))
        return int(cursor.rowcount)

    def _move(self, cursor: Any) -> int:
        """Move a row to another shard: it is there before it is gone here."""
        key, (old, new) = self._random.randint(1, 400), self._random.sample(SHARDS, 2)
        cursor.execute(f"SELECT id, amount, status, email, note FROM {DATABASE}.{old} WHERE id = %s", (key,))
        row = cursor.fetchone()
        if row is None:
            return 0
        inserted = self._insert_into(cursor, f"{DATABASE}.{new}", row)
        if self._random.random() < 0.5:
            cursor.execute("COMMIT")
            cursor.execute("BEGIN")
        cursor.execute(f"DELETE FROM {DATABASE}.{old} WHERE id = %s", (key,))
        self.moves += inserted
        return inserted + int(cursor.rowcount)


def _row(key: int, rng: random.Random) -> tuple[Any, ...]:
    return key, rng.randrange(10_000), rng.choice(STATES), f"buyer{key}@example.org", None if rng.random() < 0.5 else "note"
