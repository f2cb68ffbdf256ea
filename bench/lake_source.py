"""The source's side of the workloads of the lake: few rows in the server, all of them in the lake.

A table of 20,000,000 rows costs the server minutes and gigabytes, and only the rows that change matter to the log. So before each
step the table is emptied and filled with the rows that will change, in a session that writes no log. What is changed then is in the
log as in a table that has all rows. Keys are spread by a multiplication modulo the number of rows, which is a permutation.

Row `id` is a function of its key (`lake_rows` has the same in Arrow); change `number` sets `a` to 1,000 + number, `b` and `c`.
After each step the server's table has exactly the changed rows, so its sums are the truth of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from bench.scene import DATABASE as TABLE
from bench.scene import TRANSACTION_ROWS
from bench.stage import Stage

SPREAD = 2_654_435_761
"""A prime: multiplied by it modulo the number of rows, following numbers are far apart, and no two are the same."""
FIRST_CHANGE = 1_000
"""`a` of the first change: rows that were never changed have less."""

_BASE = """
    id, id % 1000, CONCAT('name ', id), (id % 1000) / 4, '2024-05-06 07:08:09.123456', REPEAT('x', 80),
    (id % 1000) * 0.1, id % 2, NULL, '2024-05-06 07:08:09'"""
_CHANGED = f"""
    id, {FIRST_CHANGE} + number, CONCAT('change ', number), number % 1000 / 4, '2024-05-06 07:08:09.123456',
    REPEAT('x', 80), (id % 1000) * 0.1, id % 2, NULL, '2024-05-06 07:08:09'"""
_SUMS = "COUNT(*), COALESCE(SUM(id), 0), COALESCE(SUM(a), 0), COALESCE(SUM(CRC32(CONCAT_WS('|', id, a, b, c))), 0)"


@dataclass(frozen=True, slots=True)
class Sums:
    """What two sets of rows are compared by."""

    rows: int
    ids: int
    a: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes `first` to `first + count`, and the key of each as an expression of SQL over `number`.

    `distinct` is the number of keys if it is lower: so many following numbers have all of them.
    """

    first: int
    count: int
    key: str
    inserts: bool = False
    distinct: int | None = None


def uniform(rows: int, first: int, count: int) -> Changes:
    """Return updates all over a table of so many rows."""
    return Changes(first, count, f"number * {SPREAD} % {rows}")


def hot(rows: int, keys: int, first: int, count: int) -> Changes:
    """Return updates of few keys."""
    return Changes(first, count, f"number % {keys} * {max(1, rows // keys)}", distinct=keys)


def inserts(rows: int, first: int, count: int) -> Changes:
    """Return new rows; the key of change 0 is `rows`, that of each later one is one more."""
    return Changes(first, count, f"number + {rows}", inserts=True)


def following(rows: int, first: int, count: int) -> Changes:
    """Return new rows behind those of a table that has the keys below `rows`, whatever changes there were before."""
    return inserts(rows - first, first, count)


def insert_rows(stage: Stage, keys: Sequence[int], table: str = TABLE) -> None:
    """Insert rows as they are before any change, in one transaction, into the log."""
    values = " UNION ALL ".join(f"SELECT {key} AS id" for key in keys)
    stage.execute(f"INSERT INTO {table} SELECT {_BASE} FROM ({values}) k")


def insert_range(stage: Stage, rows: int, table: str = TABLE) -> None:
    """Insert rows 0 to `rows` as they are before any change, in transactions of a thousand."""
    stage.execute(*(
        f"INSERT INTO {table} SELECT {_BASE} FROM (SELECT n + {at} AS id FROM thousand WHERE n + {at} < {rows}) k"
        for at in range(0, rows, TRANSACTION_ROWS)
    ))


def prepare(stage: Stage, changes: Changes) -> None:
    """Leave in the table the rows that will change, and no trace of that in the log."""
    count = min(changes.count, changes.distinct or changes.count)
    numbers = range(changes.first, changes.first + count, TRANSACTION_ROWS)
    statements = [f"TRUNCATE {TABLE}"]
    if not changes.inserts:
        statements += [f"INSERT IGNORE INTO {TABLE} SELECT {_BASE} FROM {_keys(changes, at)} k" for at in numbers]
    with stage.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        for statement in statements:
            cursor.execute(statement)


def make(stage: Stage, changes: Changes) -> None:
    """Make the changes, in transactions of a thousand rows."""
    stage.execute(*_transactions(changes))


def make_in_turns(stage: Stage, one: Changes, other: Changes) -> None:
    """Make changes of two kinds, a transaction of a thousand rows of the one after each of the other."""
    pairs = zip_longest(_transactions(one), _transactions(other))
    stage.execute(*(statement for pair in pairs for statement in pair if statement is not None))


def _transactions(changes: Changes) -> list[str]:
    numbers = range(changes.first, changes.first + changes.count, TRANSACTION_ROWS)
    if changes.inserts:
        return [f"INSERT INTO {TABLE} SELECT {_CHANGED} FROM {_keys(changes, at)} k" for at in numbers]
    return [
        f"UPDATE {TABLE} t JOIN {_keys(changes, at)} k ON t.id = k.id SET t.a = {FIRST_CHANGE} + k.number,"
        " t.b = CONCAT('change ', k.number), t.c = k.number % 1000 / 4"
        for at in numbers
    ]


def sums_of(stage: Stage, table: str = TABLE) -> Sums:
    """Return the sums of a table of the source."""
    with stage.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {_SUMS} FROM {table}")
        found: Sequence[Any] = cursor.fetchone()
    return Sums(*(int(value) for value in found))


def _keys(changes: Changes, at: int) -> str:
    last = changes.first + changes.count
    return (
        f"(SELECT number, {changes.key} AS id FROM"
        f" (SELECT n + {at} AS number FROM thousand WHERE n + {at} < {last}) numbers)"
    )
