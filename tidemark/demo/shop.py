"""The shop: a schema that meets what real ones do, and its rows.

A small integer key, an unsigned bigint key with values beyond 2^63, a composite key, a varchar key whose
collation does not distinguish upper from lower case, and a wide table with a column of every supported type.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark.demo import everything

if TYPE_CHECKING:
    from mysqlio.connection import Connection

DATABASE: Final = "shop"
SIGNAL_TABLE: Final = "tidemark_signal"
TABLES: Final = ("customers", "orders", "order_lines", "products", "everything")
HIGH_KEYS: Final = 1 << 63
STATUSES: Final = ("new", "paid", "shipped", "returned")
CITIES: Final = ("Zürich", "Århus", "Porto", "Łódź", "São Paulo", "東京", "Bern", "Lyon")
_SHARES: Final = {
    "customers": 0.19,
    "orders": 0.28,
    "order_lines": 0.47,
    "products": 0.03,
    "everything": 0.03,
}
_STATEMENT_ROWS: Final = 2000

_DDL: Final = {
    "customers": """
        id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        email VARCHAR(120) NOT NULL,
        name VARCHAR(80) NOT NULL,
        city VARCHAR(60),
        country CHAR(2) CHARACTER SET latin1 NOT NULL DEFAULT 'CH',
        credit DECIMAL(12,2) NOT NULL DEFAULT 0,
        vip TINYINT(1) NOT NULL DEFAULT 0,
        born DATE,
        updated TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
        note TEXT""",
    "orders": """
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        customer_id INT NOT NULL,
        status ENUM('new','paid','shipped','returned') NOT NULL DEFAULT 'new',
        placed DATETIME(3) NOT NULL,
        total DECIMAL(12,2) NOT NULL,
        KEY by_customer (customer_id)""",
    "order_lines": """
        order_id BIGINT UNSIGNED NOT NULL,
        line SMALLINT UNSIGNED NOT NULL,
        product VARCHAR(40) COLLATE utf8mb4_general_ci NOT NULL,
        quantity INT NOT NULL,
        price DECIMAL(10,2) NOT NULL,
        PRIMARY KEY (order_id, line)""",
    "products": """
        code VARCHAR(40) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY,
        name VARCHAR(100) NOT NULL,
        price DECIMAL(10,2) NOT NULL,
        stock INT NOT NULL,
        tags SET('new','sale','heavy','fragile') NOT NULL DEFAULT '',
        spec JSON""",
    "everything": everything.COLUMNS_SQL,
}


def create_schema(connection: Connection, flavour: str, database: str = DATABASE) -> None:
    """Create the database again, with its empty tables and the signal table.

    `flavour` is "mysql" or "mariadb"; the statements are the same for both where the server allows it.
    """
    options = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
    if flavour == "mariadb":
        options += " COLLATE=utf8mb4_general_ci"
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for table in TABLES:
            cursor.execute(f"CREATE TABLE {database}.{table} ({_DDL[table]}) {options}")
        cursor.execute(
            f"CREATE TABLE {database}.{SIGNAL_TABLE} "
            "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048)) " + options
        )


def load_rows(
    connection: Connection, rows: int = 210_000, *, seed: int = 1, database: str = DATABASE
) -> dict[str, int]:
    """Fill the tables with about that many rows in all, by INSERTs of many rows; the rows of each table.

    The same seed gives the same rows. Each statement is a transaction of its own.
    """
    sizes = row_counts(rows)
    rng = random.Random(seed)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        for table, values in (
            ("customers (email, name, city, country, credit, vip, born, note)", _customers(sizes, rng)),
            ("orders", _orders(sizes, rng)),
            ("order_lines", _order_lines(sizes, rng)),
            ("products", _products(sizes, rng)),
        ):
            for block in _blocks(values):
                cursor.execute(f"INSERT INTO {database}.{table} VALUES {','.join(block)}")
        _load_everything(cursor, database, sizes["everything"], rng)
        connection.commit()
    return sizes


def row_counts(rows: int) -> dict[str, int]:
    """Return how many rows `load_rows` gives each table."""
    return {table: max(1, int(rows * share)) for table, share in _SHARES.items()}


def add_column(connection: Connection, database: str = DATABASE) -> str:
    """Return the ALTER of the demo, on a populated table while everything runs; its text."""
    statement = f"ALTER TABLE {database}.customers ADD COLUMN loyalty INT NOT NULL DEFAULT 5"
    with connection.cursor() as cursor:
        cursor.execute(statement)
    return statement


def order_key(number: int) -> int:
    """Return the key of the n-th order: every sixth is beyond 2^63, far apart from its neighbours."""
    return HIGH_KEYS + number * 1009 if number % 6 == 0 else number


def product_code(number: int) -> str:
    """Return the key of the n-th product, in mixed case."""
    return f"{('Lamp', 'chair', 'DESK', 'Été', 'straße')[number % 5]}-{number:05d}"


def _blocks(values: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for value in values:
        block.append(value)
        if len(block) == _STATEMENT_ROWS:
            yield block
            block = []
    if block:
        yield block


def _customers(sizes: dict[str, int], rng: random.Random) -> Iterator[str]:
    for number in range(1, sizes["customers"] + 1):
        cents, city = rng.randrange(10_000_000), CITIES[number % len(CITIES)]
        note = "NULL" if number % 3 else f"'note {cents} ✓'"
        yield (
            f"('c{number}@example.org','Customer {number}','{city}','{('CH', 'DK', 'PT')[number % 3]}',"
            f"{cents / 100:.2f},{number % 7 == 0:d},'{1940 + number % 70}-{number % 12 + 1:02d}-15',{note})"
        )


def _orders(sizes: dict[str, int], rng: random.Random) -> Iterator[str]:
    # In key order: the clustered index is then written from left to right.
    for key in sorted(order_key(number) for number in range(1, sizes["orders"] + 1)):
        total = rng.randrange(100_000)
        yield (
            f"({key},{rng.randrange(1, sizes['customers'] + 1)},'{STATUSES[total % 4]}',"
            f"'2026-{total % 12 + 1:02d}-{total % 28 + 1:02d} {total % 24:02d}:00:00.{total % 1000:03d}',"
            f"{total / 100:.2f})"
        )


def _order_lines(sizes: dict[str, int], rng: random.Random) -> Iterator[str]:
    orders, left = sizes["orders"], sizes["order_lines"]
    for key in sorted(order_key(number) for number in range(1, orders + 1)):
        lines = min(left, rng.choice((1, 2, 2, 2, 2)))
        left -= lines
        for line in range(1, lines + 1):
            code = product_code(rng.randrange(sizes["products"]))
            yield f"({key},{line},'{code}',{rng.randrange(1, 9)},{rng.randrange(9_999) / 100:.2f})"
        if not left:
            return


def _products(sizes: dict[str, int], rng: random.Random) -> Iterator[str]:
    for number in range(sizes["products"]):
        tags = ",".join(tag for tag in ("new", "sale", "heavy", "fragile") if rng.random() < 0.3)
        spec = f'{{"w": {rng.randrange(999)}, "colour": "{rng.choice(("red", "grün", "noir"))}"}}'
        yield (
            f"('{product_code(number)}','Product {number}',{rng.randrange(99_999) / 100:.2f},"
            f"{rng.randrange(500)},'{tags}','{spec}')"
        )


def _load_everything(cursor: Any, database: str, rows: int, rng: random.Random) -> None:
    names = ", ".join(everything.NAMES)
    marks = ", ".join(["%s"] * len(everything.NAMES))
    statement = f"INSERT INTO {database}.everything ({names}) VALUES ({marks})"
    data: list[Sequence[object]] = [everything.row(key, rng) for key in range(1, rows + 1)]
    for first in range(0, rows, _STATEMENT_ROWS):
        cursor.executemany(statement, data[first : first + _STATEMENT_ROWS])
