"""The database of one workload: its table, its rows, and a signal table for each tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scene import DATABASE as TABLE
from bench.scene import TRANSACTION_ROWS, Scene
from mysqlio.server_facts import current_position

_COLUMNS = """
    id BIGINT PRIMARY KEY, a INT, b VARCHAR(64), c DECIMAL(12,2), d DATETIME(6), e TEXT, f DOUBLE,
    g TINYINT(1), h JSON NULL, i TIMESTAMP NULL"""
_ROW = """
    {at} + n, n, CONCAT('name ', {at} + n), n / 4, '2024-05-06 07:08:09.123456', REPEAT('x', 80), n * 0.1,
    n % 2, NULL, '2024-05-06 07:08:09'"""
_KINDS = (
    ("INT", "n"),
    ("VARCHAR(40)", "CONCAT('value ', n)"),
    ("DECIMAL(12,2)", "n / 8"),
    ("DATETIME(6)", "'2024-05-06 07:08:09.5'"),
    ("BIGINT", "n * 1000000"),
)
WIDE = 80
LOAD_TABLE = f"{TABLE}_load"
BOTH_TABLES = rf"{TABLE}(_load)?"
"""A regular expression: every tool captures `bench` and `bench_load`, where there is one."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the binary log."""

    file: str
    offset: int


class Stage:
    """A database with the table `bench` of ten columns, or of as many as are asked for."""

    def __init__(self, scene: Scene, folder: Path, name: str, columns: int = 10) -> None:
        self.scene, self.folder, self.name = scene, folder / name, name
        self.folder.mkdir(parents=True)
        more = [_KINDS[number % len(_KINDS)] for number in range(columns - 10)]
        self._columns = _COLUMNS + "".join(f", x{number} {kind}" for number, (kind, _) in enumerate(more))
        self._row = _ROW + "".join(f", {expression}" for _, expression in more)
        self._next = self._probe = 0
        digits = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10)) + ")"
        with scene.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {name}")
            cursor.execute(f"CREATE TABLE {TABLE} ({self._columns})")
            cursor.execute("CREATE TABLE thousand (n INT PRIMARY KEY)")
            cursor.execute(
                f"INSERT INTO thousand SELECT x.d + 10 * y.d + 100 * z.d FROM {digits} x, {digits} y, {digits} z"
            )

    def add_load_table(self) -> None:
        """Create `bench_load`, which has the columns of `bench`; call it before the tools are made."""
        self.execute(f"CREATE TABLE {LOAD_TABLE} ({self._columns})")

    def connect(self) -> Any:
        """Return a connection to the database."""
        return self.scene.database.connect(database=self.name)

    def execute(self, *statements: str) -> None:
        """Execute statements."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def add_signal_table(self, name: str) -> None:
        """Create a signal table."""
        self.execute(f"CREATE TABLE {name} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))")

    def request_snapshot(self, signal_table: str, number: int) -> None:
        """Signal an incremental snapshot of the table."""
        data = json.dumps({"data-collections": [rf"{self.name}\.{TABLE}"], "type": "INCREMENTAL"})
        with self.connect() as connection, connection.cursor() as cursor:
            row = (f"bench-{number}", "execute-snapshot", data)
            cursor.execute(f"INSERT INTO {signal_table} VALUES (%s, %s, %s)", row)

    def insert(self, rows: int) -> None:
        """Insert rows in transactions of a thousand."""
        first, self._next = self._next, self._next + rows
        starts = range(first, first + rows, TRANSACTION_ROWS)
        with self.written_soon():
            self.execute(*(f"INSERT INTO {TABLE} SELECT {self.row_at(at)} FROM thousand" for at in starts))

    def insert_one_by_one(self, rows: int, each: int = 1) -> None:
        """Insert rows in transactions of their own, or of `each` rows."""
        first, self._next = self._next, self._next + rows
        source = "(SELECT 0 AS n) one" if each == 1 else f"thousand WHERE n < {each}"
        insert = f"INSERT INTO {TABLE} SELECT {self.row_at('at')} FROM {source}"
        with self.written_soon():
            self.execute(
                "DROP PROCEDURE IF EXISTS one_by_one",
                f"CREATE PROCEDURE one_by_one() BEGIN DECLARE at INT DEFAULT {first};"
                f" WHILE at < {first + rows} DO {insert}; SET at = at + {each}; END WHILE; END",
                "CALL one_by_one()",
            )

    def row_at(self, at: int | str) -> str:
        """Return the expressions of a row of the table: its key is `at` and the column n of the table `thousand`."""
        return self._row.format(at=at)

    @contextmanager
    def written_soon(self) -> Iterator[None]:
        """Have the server write what is only preparation without synchronising each commit."""
        names = ("sync_binlog", "innodb_flush_log_at_trx_commit")
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names))
            before = cursor.fetchone()
        self.execute(*(f"SET GLOBAL {name} = 0" for name in names))
        try:
            yield
        finally:
            self.execute(*(f"SET GLOBAL {name} = {value}" for name, value in zip(names, before, strict=True)))

    def probe(self, table: str = TABLE) -> int:
        """Insert a row with a negative key, which shows whether a tool reads the log; return the key."""
        self._probe -= 1
        self.execute(f"INSERT INTO {table} (id) VALUES ({self._probe})")
        return self._probe

    def position(self) -> Position:
        """Return the end of the log."""
        with self.connect() as connection:
            end = current_position(connection)
        return Position(end.file, end.pos)
