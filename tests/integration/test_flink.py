"""Flink SQL reads our change topics with its `debezium-json` format, and computes what the source holds.

Values are in the modes that Flink's columns take: decimals as text, unsigned numbers as they fit into a long.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from schemas.settings import Settings
from tests.support.flink import Flink, Rows
from tests.support.producers import Running, Source, running

TABLE = """CREATE TABLE things (
    id INT PRIMARY KEY, n BIGINT, u BIGINT UNSIGNED, d DECIMAL(20,4), f DOUBLE, t VARCHAR(50), b VARBINARY(20),
    flag BIT(1), day DATE, at DATETIME(6), ts TIMESTAMP(3) NULL, e ENUM('red','grün') NOT NULL, j JSON)"""
# The same in Flink, and what is in our JSON for its types.
COLUMNS = """id INT, n BIGINT, u BIGINT, d DECIMAL(20,4), f DOUBLE, t STRING, b BYTES, flag BOOLEAN, `day` INT,
    `at` BIGINT, ts TIMESTAMP_LTZ(3), e STRING, j STRING, origin STRING METADATA FROM 'value.source.table' VIRTUAL"""
IN_FLINK = """SELECT id, n, u, CAST(d AS STRING), f, t, b, CAST(flag AS INT), `day`, `at`, CAST(ts AS STRING), e, origin, j
    FROM {}"""
IN_THE_SOURCE = """SELECT id, n, u, CAST(d AS CHAR), f, t, b, flag + 0, DATEDIFF(day, '1970-01-01'),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at), CAST(ts AS CHAR), e, 'things', j FROM {}"""
BY_COLOUR = "SELECT e, COUNT(*), COUNT(t), SUM(n), SUM(d), MIN(id) FROM {} GROUP BY e"
KEYS = 120


@pytest.fixture
def source(kafka, mysql80, fresh_database) -> Iterator[Source]:
    place = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    place.execute("SET time_zone = '+00:00'", TABLE)
    yield place
    place.connection.close()


def settings_of(source: Source, *, schemas: bool, records: dict[str, Any] | None = None) -> Settings:
    settings = source.settings(records)
    wire = replace(settings.format, schemas=schemas, decimal="string", bigint_unsigned="long")
    snapshot = replace(settings.snapshot, merge="producer", readers=1, chunk_rows=20)
    return replace(settings, format=wire, snapshot=snapshot)


def row(dice: random.Random, key: int) -> tuple[Any, ...]:
    """A row of `things`; any column that may be NULL is, now and then."""
    values = (
        dice.randrange(-(1 << 40), 1 << 40),
        dice.randrange(1 << 63),
        f"{dice.randrange(-(10**15), 10**15)}.{dice.randrange(10**4):04}",
        dice.uniform(-1e9, 1e9),
        dice.choice(("", "plain", "日本 🎉", 'quoted " \\ \n')),
        dice.randbytes(dice.randrange(20)),
        dice.randrange(2),
        f"20{dice.randrange(10, 40)}-0{dice.randrange(1, 10)}-1{dice.randrange(10)}",
        f"1{dice.randrange(100, 999)}-01-02 03:04:05.{dice.randrange(10**6):06}",
        f"2024-06-01 12:00:0{dice.randrange(10)}.{dice.randrange(1000):03}",
    )
    colour = dice.choice(("red", "grün"))
    document = json.dumps({"a": [dice.randrange(9), None], "ä": dice.random() < 0.5})
    nullable = [None if dice.random() < 0.1 else value for value in (*values, document)]
    return (key, *nullable[:-1], colour, nullable[-1])


PLACES = ",".join(["%s"] * 13)
NAMES = ("n", "u", "d", "f", "t", "b", "flag", "day", "at", "ts", "e", "j")


def play(source: Source, seed: int, transactions: int) -> None:
    """A workload: inserts, updates, key changes, deletes, some in one transaction, some rolled back."""
    dice = random.Random(seed)
    with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for _ in range(transactions):
            cursor.execute("BEGIN")
            for _ in range(dice.choice((1, 1, 2, 5))):
                key, kind = dice.randrange(KEYS), dice.random()
                if kind < 0.4:
                    cursor.execute(f"INSERT IGNORE INTO things VALUES ({PLACES})", row(dice, key))
                elif kind < 0.7:
                    chosen = dice.sample(range(len(NAMES)), 3)
                    values = row(dice, key)
                    assignments = ", ".join(f"`{NAMES[number]}` = %s" for number in chosen)
                    changed = [values[number + 1] for number in chosen]
                    cursor.execute(f"UPDATE things SET {assignments} WHERE id = %s", (*changed, key))
                elif kind < 0.85:
                    cursor.execute("UPDATE IGNORE things SET id = %s WHERE id = %s", (dice.randrange(KEYS), key))
                else:
                    cursor.execute("DELETE FROM things WHERE id = %s", (key,))
            cursor.execute("ROLLBACK" if dice.random() < 0.1 else "COMMIT")


def register(flink: Flink, source: Source, table: str, columns: str, *, key: str = "", **options: str) -> str:
    """Tell Flink of a change topic as it is now; the table's name there."""
    source.records(table)  # when all of them can be seen: a commit is answered before, and Flink reads up to what it sees
    name = f"{source.schema}_{table}"
    settings = {
        "connector": "kafka",
        "topic": f"{source.name}.{source.schema}.{table}",
        "properties.bootstrap.servers": source.bootstrap_servers,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "debezium-json",
        "debezium-json.timestamp-format.standard": "ISO-8601",
        **options,
    }
    named = ", ".join(f"'{option}' = '{value}'" for option, value in settings.items())
    keyed = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    flink.sql(f"CREATE TABLE {name} ({columns}{keyed}) WITH ({named})")
    return name


def stored(source: Source, query: str) -> Rows:
    """The rows of a query on the source."""
    with source.connection.cursor() as cursor:
        cursor.execute(query)
        return Counter(cursor.fetchall())


def by_meaning(rows: Rows) -> Rows:
    """Rows whose last column is JSON, which the server writes in another style than we."""
    return Counter(
        {
            (*values[:-1], values[-1] and json.dumps(json.loads(values[-1]), sort_keys=True)): count
            for values, count in rows.items()
        }
    )


def assert_flink_has_the_source(flink: Flink, source: Source, name: str) -> None:
    expected = by_meaning(stored(source, IN_THE_SOURCE.format("things")))
    assert len(expected) > KEYS // 4
    assert by_meaning(flink.rows(IN_FLINK.format(name))) == expected
    assert flink.rows(BY_COLOUR.format(name)) == stored(source, BY_COLOUR.format("things"))


def test_flink_computes_the_tables_from_their_changes(flink: Flink, source: Source) -> None:
    with running(settings_of(source, schemas=False)) as run:
        play(source, 1, 250)
        source.execute(
            "CREATE TABLE emptied (id INT PRIMARY KEY, v INT)",
            "INSERT INTO emptied VALUES (1, 1), (2, 2)",
            "TRUNCATE emptied",
            "INSERT INTO emptied VALUES (3, 3)",
        )
        run.caught_up(source)
    assert_flink_has_the_source(flink, source, register(flink, source, "things", COLUMNS))
    # A TRUNCATE is no record by default, as with Debezium: a consumer of changes keeps the rows.
    emptied = register(flink, source, "emptied", "id INT, v INT")
    assert flink.rows(f"SELECT * FROM {emptied}") == Counter([(1, 1), (2, 2), (3, 3)])


def test_flink_computes_the_tables_from_a_snapshot_amid_their_changes(flink: Flink, source: Source) -> None:
    play(source, 2, 150)
    with running(settings_of(source, schemas=True)) as run:
        ask_for_a_snapshot(source)
        play(source, 3, 250)
        run.until(lambda: ended(run), "the snapshot has ended")
        run.caught_up(source)
    topic = [record.value["payload"]["op"] for record in source.records("things") if record.value is not None]
    assert {"r", "c", "u", "d"} <= set(topic)
    name = register(flink, source, "things", COLUMNS, key="id", **{"debezium-json.schema-include": "true"})
    # A row may be changed before it is read, so that its r is a second insert: Flink is configured to expect that.
    flink.set("table.exec.source.cdc-events-duplicate", "true")
    try:
        assert_flink_has_the_source(flink, source, name)
    finally:
        flink.set("table.exec.source.cdc-events-duplicate", "false")


def ask_for_a_snapshot(source: Source) -> None:
    data = json.dumps({"data-collections": [rf"{source.schema}\.things"]})
    with source.connection.cursor() as cursor:
        cursor.execute("INSERT INTO tidemark_signal VALUES ('s', 'execute-snapshot', %s)", (data,))


def ended(run: Running) -> bool:
    assert run.producer.coordinator is not None
    states = [table.state for table in run.producer.coordinator.progress()]
    assert "failed" not in states
    return states == ["done"]


def test_flink_refuses_the_truncates_that_are_left_out_by_default(flink: Flink, source: Source) -> None:
    """Why they are: with `skipped_operations: none` its job fails."""
    with running(settings_of(source, schemas=False, records={"skipped_operations": ["none"]})) as run:
        source.execute(
            "CREATE TABLE emptied (id INT PRIMARY KEY, v INT)", "INSERT INTO emptied VALUES (1, 1)", "TRUNCATE emptied"
        )
        run.caught_up(source)
    emptied = register(flink, source, "emptied", "id INT, v INT")
    with pytest.raises(Py4JJavaError, match='Unknown "op" value "t"'):
        flink.rows(f"SELECT * FROM {emptied}")
