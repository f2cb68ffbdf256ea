"""`python -m tests.conformance`: run both, compare, and say in the last line what was found."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from schemas.settings import Settings, from_mapping
from tests.conformance.compare import Comparison
from tests.conformance.debezium import Debezium
from tests.conformance.differences import DIFFERENCES
from tests.conformance.generator import Generator
from tests.support.producing import RunningProducer
from tests.support.topics import read_topics
from tidemark.embedded import Database, Kafka, start_database, start_kafka

LEFT, RIGHT = "debezium", "tidemark"
DATABASE = "conf"
END = "the_end"
PATIENCE_S = 300.0
SHOWN = 40


def main(arguments: list[str]) -> int:
    """0 when nothing differs but what is meant to."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--db", default="mysql97", help="server to read")
    parser.add_argument("--seed", type=int, default=1, help="seed of tables, rows and DDL")
    parser.add_argument("--tables", type=int, default=24)
    parser.add_argument("--steps", type=int, default=4000, help="changes, about")
    options = parser.parse_args(arguments)
    generator = Generator(options.seed, options.tables, options.steps)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-conformance-")))
        database: Database = stack.enter_context(start_database(options.db, folder))
        kafka: Kafka = stack.enter_context(start_kafka(folder))
        comparison = play(database, kafka, folder, generator)
    for problem in comparison.problems[:SHOWN]:
        print(problem)
    unneeded = [item.name for item in DIFFERENCES if not comparison.intended[item]]
    for name in unneeded:
        print(f"intended difference never seen: {name}")
    print(
        f"conformance: {comparison.records} records compared, {len(comparison.problems)} differences, "
        f"{sum(comparison.intended.values())} intended"
    )
    return 1 if comparison.problems or unneeded or not comparison.records else 0


def play(database: Database, kafka: Kafka, folder: Path, generator: Generator) -> Comparison:
    """Both readers on the same changes; what the comparison of their topics found."""
    execute(database, [f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4"], schema=None)
    include = {"table.include.list": rf"{DATABASE}\..*", "bigint.unsigned.handling.mode": "precise"}
    debezium = Debezium(folder, database, kafka, LEFT, include | {"enable.time.adjuster": "false"})
    with RunningProducer(settings_for(database, kafka)) as producer, debezium.start():
        producer.wait_until("it reads the log", lambda running: running.reader is not None)
        execute(database, generator.statements(), schema=DATABASE)
        end = (f"CREATE TABLE {END} (id INT PRIMARY KEY)", f"INSERT INTO {END} VALUES (1)")
        execute(database, end, schema=DATABASE)
        wait_for_end(kafka, producer, debezium)
    return compared(kafka, generator.tables)


def settings_for(database: Database, kafka: Kafka) -> Settings:
    """Tidemark's settings that correspond to those of the connector."""
    return from_mapping(
        {
            "name": RIGHT,
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": [rf"{DATABASE}\..*"],
            },
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 1},
            "format": {"type": "json", "schemas": True},
            "snapshot": {"mode": "never"},
        }
    )


def execute(database: Database, statements: Iterable[str], *, schema: str | None) -> None:
    """Execute on one connection; an error names its statement."""
    with database.connect() as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        if schema:
            cursor.execute(f"USE {schema}")
        for statement in statements:
            try:
                cursor.execute(statement)
            except Exception as error:
                error.add_note(statement)
                raise


def topic(prefix: str, table: str) -> str:
    """The change topic of a table."""
    return f"{prefix}.{DATABASE}.{table}"


def existing(kafka: Kafka) -> set[str]:
    """All topics there are."""
    return set(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).topics)


def wait_for_end(kafka: Kafka, producer: RunningProducer, debezium: Debezium) -> None:
    """Until both have written the row that was written last."""
    wanted = {topic(LEFT, END), topic(RIGHT, END)}
    deadline = time.monotonic() + PATIENCE_S
    while not (
        wanted <= existing(kafka) and all(read_topics(kafka.bootstrap_servers, list(wanted)).values())
    ):
        producer.check()
        debezium.check()
        if time.monotonic() > deadline:
            missing = ", ".join(sorted(wanted - existing(kafka))) or "a record"
            raise TimeoutError(f"after {PATIENCE_S} s still missing: {missing}")
        time.sleep(0.5)


def compared(kafka: Kafka, tables: Iterable[str]) -> Comparison:
    """The change topics of all tables, compared."""
    comparison, there = Comparison(LEFT, RIGHT), existing(kafka)
    for table in tables:
        sides: list[list[Any]] = []
        for prefix in (LEFT, RIGHT):
            name = topic(prefix, table)
            sides.append(read_topics(kafka.bootstrap_servers, [name])[name] if name in there else [])
        comparison.topic(table, *sides)
    return comparison


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
