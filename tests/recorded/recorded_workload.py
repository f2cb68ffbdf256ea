"""What is done to the source of a recording: the tables, and the changes of each part of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

DATABASE: Final = "shop"
SIGNALS: Final = "tidemark_signal"
BIG_ROWS: Final = 6_000
CUSTOMERS: Final = 120
SCHEMA: Final = (
    f"CREATE TABLE {SIGNALS} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, credit DECIMAL(12,2) NOT NULL, note TEXT)",
    """CREATE TABLE orders (customer BIGINT, n INT, status ENUM('new','paid','sent') NOT NULL, placed DATETIME(3),
        PRIMARY KEY (customer, n), FOREIGN KEY (customer) REFERENCES customers (id) ON DELETE CASCADE)""",
    """CREATE TABLE kinds (code VARBINARY(8), n INT UNSIGNED, c_big BIGINT UNSIGNED, c_small SMALLINT, c_float FLOAT,
        c_double DOUBLE, c_wide DECIMAL(65,30), c_date DATE, c_time TIME(6), c_moment TIMESTAMP(3) NULL, c_datetime DATETIME(6),
        c_year YEAR, c_bits BIT(12), c_set SET('a','b','c'), c_json JSON, c_blob BLOB, c_latin VARCHAR(20) CHARACTER SET latin1,
        c_fixed BINARY(4), c_shape GEOMETRY, PRIMARY KEY (code, n))""",
    "CREATE TABLE evolving (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
    "CREATE TABLE mixed (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE emptied (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE damaged (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE big (id BIGINT PRIMARY KEY, v INT NOT NULL, t VARCHAR(20))",
)
TABLES: Final = ("customers", "orders", "kinds", "evolving", "mixed", "emptied", "damaged", "big")
READ_FIRST: Final = ("customers", "orders", "kinds", "evolving", "emptied", "damaged")
EVOLVED: Final = (
    "INSERT INTO evolving VALUES (1001, 1, 'before')",
    "ALTER TABLE evolving ADD COLUMN c VARCHAR(10) NOT NULL DEFAULT 'new'",
    "INSERT INTO evolving VALUES (1002, 2, 'between', 'given')",
    "ALTER TABLE evolving MODIFY COLUMN a BIGINT",
    "INSERT INTO evolving VALUES (1003, 5000000000, 'wide', 'given')",
    "ALTER TABLE evolving DROP COLUMN b",
    "UPDATE evolving SET a = a + 1 WHERE id > 50",
    "DELETE FROM evolving WHERE id < 10",
)
FOLLOWED: Final = (
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied VALUES (1, 1), (2, 2)",
    "CREATE TABLE dropped (id INT PRIMARY KEY, v INT)",
    "INSERT INTO dropped VALUES (1, 1), (2, 2)",
    "DROP TABLE dropped",
    "DELETE FROM customers WHERE id BETWEEN 10 AND 19",
    "UPDATE orders SET n = n + 100 WHERE customer = 30",
    "DELETE FROM mixed WHERE id % 7 = 0",
    "UPDATE damaged SET v = v + 1",
)
"""Changes that are followed to their end before the recording's second snapshot: floors, swept children, moved keys."""
TAIL: Final = (
    "ALTER TABLE evolving ADD COLUMN d INT NOT NULL DEFAULT 7 FIRST",
    "INSERT INTO evolving (id, a, c) VALUES (2001, 1, 'tail')",
    "UPDATE evolving SET d = 8 WHERE id % 3 = 0",
    "DELETE FROM customers WHERE id BETWEEN 40 AND 44",
    "UPDATE orders SET status = 'sent' WHERE customer > 100",
    "DELETE FROM kinds WHERE n = 3",
    "UPDATE damaged SET v = -1 WHERE id = 5",
    "CREATE TABLE late (id INT PRIMARY KEY, v VARCHAR(10))",
    "INSERT INTO late VALUES (1, 'a'), (2, 'b')",
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied VALUES (3, 3)",
)
"""Written while nobody reads the log."""
TAIL_OF_BIG: Final = (
    "UPDATE big SET t = 'tail' WHERE id % 100 = 0",
    "DELETE FROM big WHERE id % 100 = 50",
    f"INSERT INTO big VALUES ({BIG_ROWS + 100}, 0, 'tail')",
)
LOCKED_BIG: Final = (
    "UPDATE big SET v = -v WHERE id % 30 = 0",
    "DELETE FROM big WHERE id % 30 = 15",
    f"INSERT INTO big VALUES ({BIG_ROWS + 1}, 1, 'locked'), ({BIG_ROWS + 2}, 2, 'locked')",
)
"""By the connection that has locked the table, while chunks of it are open."""


def fill(cursor: Any, seed: int = 14) -> None:
    """Insert the rows that are there before the producer's first start."""
    random_ = random.Random(seed)
    customers = [(n, f"name {n} é 漢 😀", f"{n}.{n % 100:02}", None if n % 3 else "note\n" * (n % 5)) for n in range(CUSTOMERS)]
    cursor.executemany("INSERT INTO customers VALUES (%s, %s, %s, %s)", customers)
    orders = [(c, n, random_.choice(("new", "paid")), f"2026-01-{n:02} 12:00:00.{c:03}") for c in range(CUSTOMERS) for n in (1, 2)]
    cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s, %s)", orders)
    cursor.executemany(f"INSERT INTO kinds VALUES ({', '.join(['%s'] * 18)}, ST_GeomFromText(%s))", list(_kinds(random_)))
    for table in ("mixed", "emptied", "damaged"):
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, n) for n in range(60)])
    cursor.executemany("INSERT INTO evolving VALUES (%s, %s, %s)", [(n, n, f"b{n}") for n in range(100)])
    cursor.executemany("INSERT INTO big VALUES (%s, %s, %s)", [(n, n % 97, f"t{n % 13}") for n in range(BIG_ROWS)])
    cursor.execute("ANALYZE NO_WRITE_TO_BINLOG TABLE big")


def churn(number: int) -> tuple[str, ...]:
    """Return small changes of several tables; other ones for each number."""
    return (
        f"INSERT INTO customers VALUES ({1000 + number}, 'churn', 1.50, NULL)",
        f"INSERT INTO orders VALUES ({1000 + number}, 1, 'new', NOW(3)), ({1000 + number}, 2, 'new', NULL)",
        f"UPDATE kinds SET c_double = {number} / 3, c_json = JSON_OBJECT('n', {number}, 'a', JSON_ARRAY(1, NULL)) WHERE n < 5",
        f"UPDATE customers SET credit = credit + 1 WHERE id % 10 = {number % 10}",
        f"DELETE FROM orders WHERE customer = {1000 + number - 5}",
        f"DELETE FROM evolving WHERE id = {50 + number}",
        f"INSERT INTO mixed VALUES ({500 + number}, {number})",
    )


def _kinds(random_: random.Random) -> Iterator[tuple[Any, ...]]:
    for number in range(40):
        yield (
            bytes([number, 0, 255]),
            number % 8,
            2**64 - 1 - number,
            -number,
            str(random_.uniform(-1e6, 1e6)),
            repr(random_.uniform(-1e300, 1e300)),
            f"-{'1' * 30}.{number:030}",
            f"2026-02-{number % 28 + 1:02}",
            f"-{number * 20}:59:59.{number:06}",
            None if number % 5 == 0 else f"2026-03-01 00:00:{number:02}.123",
            f"1000-01-01 00:00:{number:02}.000001",
            1901 + number,
            number,
            ("a", "a,c", "")[number % 3],
            '{"k": [1, 2.5, "x", null, true]}',
            None if number % 4 == 0 else random_.randbytes(number),
            f"latin é {number}",
            bytes([number]),
            None if number % 2 else f"POINT({number} 1.5)",
        )
