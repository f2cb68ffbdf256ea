"""Foreign keys that change rows below the log, from the source into the lake, through kills of the producer."""

from __future__ import annotations

import random

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import spark_section
from tests.support.servers import unique_name

SCHEMA = """
CREATE TABLE customer (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(20));
CREATE TABLE orders (customer BIGINT UNSIGNED, n INT, v INT, PRIMARY KEY (customer, n),
    FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE line (id INT PRIMARY KEY, customer BIGINT UNSIGNED, n INT,
    FOREIGN KEY (customer, n) REFERENCES orders (customer, n) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE note (id INT PRIMARY KEY, customer BIGINT UNSIGNED,
    FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE SET NULL ON UPDATE SET NULL);
CREATE TABLE reply (id INT PRIMARY KEY, re INT, FOREIGN KEY (re) REFERENCES reply (id) ON DELETE CASCADE)
"""
TABLES = ("customer", "orders", "line", "note", "reply")
FIRST = 2**64 - 1000
CUSTOMERS = 200


def test_children_are_followed_into_the_lake_when_the_producer_is_killed(mysql80: Database, make_pipeline: MakePipeline) -> None:
    database = unique_name("cascades").replace("-", "_")
    customers = range(FIRST, FIRST + CUSTOMERS)
    with mysql80.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"USE {database}")
        for statement in SCHEMA.split(";"):
            cursor.execute(statement)
        cursor.executemany("INSERT INTO customer VALUES (%s, 'x')", [(c,) for c in customers])
        cursor.executemany("INSERT INTO orders VALUES (%s, %s, 0)", [(c, n) for c in customers for n in (1, 2)])
        lines = [(number, c, n) for number, (c, n) in enumerate((c, n) for c in customers for n in (1, 1, 2))]
        cursor.executemany("INSERT INTO line VALUES (%s, %s, %s)", lines)
        cursor.executemany("INSERT INTO note VALUES (%s, %s)", list(enumerate(customers)))
        cursor.executemany("INSERT INTO reply VALUES (%s, %s)", [(n, n - 1 if n % 10 else None) for n in range(200)])
    pipeline = make_pipeline(mysql80, database, snapshot={"mode": "initial", "readers": 2}, spark=spark_section(trigger_s=3))
    pipeline.start("merge", "run")
    pipeline.wait_for_snapshot(*TABLES)
    pipeline.wait_for_sink(*TABLES)
    chosen = random.Random(1).sample(customers, 40)
    for number, verb in enumerate(("run", None)):
        gone = chosen[20 * number : 20 * number + 20]
        pipeline.sql(
            *(f"DELETE FROM customer WHERE id = {c}" for c in gone[:10]),
            *(f"UPDATE customer SET id = {c + 500} WHERE id = {c}" for c in gone[10:]),
            *(f"DELETE FROM reply WHERE id = {10 * n + number}" for n in range(20)),
        )
        if verb is not None:
            pipeline.kill(verb)
            pipeline.start(verb)
    pipeline.wait_for_log()
    pipeline.wait("all was followed", lambda s: not s.snapshot_running and not any(t.inexact for t in s.tables))
    pipeline.wait_for_sink(*TABLES)
    report = pipeline.assert_equal()
    assert report.rows < 200 + 400 + 600 + 200 + 200 - 20 * 6
