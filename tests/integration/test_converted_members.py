"""ENUM and SET members behind MariaDB's CONVERT TO CHARACTER SET, which leaves their bytes in the old character set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import SourceError
from tests.support.producers import Source, running
from tests.support.servers import database
from tests.support.topics import read_topic

SIGNAL = "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
CONVERTED = (
    "ALTER TABLE t ADD COLUMN e_new ENUM('é','x') CHARACTER SET utf8mb4, ADD COLUMN s_new SET('ñ','q') CHARACTER SET utf8mb4",
    "UPDATE t SET e_new = e + 0, s_new = s + 0",
    "ALTER TABLE t DROP COLUMN e, DROP COLUMN s",
    "ALTER TABLE t CHANGE e_new e ENUM('é','x') CHARACTER SET utf8mb4, CHANGE s_new s SET('ñ','q') CHARACTER SET utf8mb4",
)


@pytest.fixture
def source(kafka: Any, fresh_database: Any) -> Iterator[Source]:
    server = database("mariadb114")
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL)
    yield created
    created.connection.close()


def test_members_that_a_conversion_left_behind_stop_the_producer_until_they_are_mended(source: Source) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('é','x'), s SET('ñ','q')) CHARACTER SET latin1",
        "CREATE TABLE plain (id INT PRIMARY KEY, e ENUM('a','b')) CHARACTER SET latin1",
    )
    with running(replace(source.settings(), on_table_error="stop")) as run:
        source.execute("INSERT INTO t VALUES (1, 'x', 'q')")  # with 'é' the conversion is refused, or loses it
        run.caught_up(source)
        source.execute("ALTER TABLE plain CONVERT TO CHARACTER SET utf8mb4", "INSERT INTO plain VALUES (1, 'b')")
        run.caught_up(source)
        source.execute("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", "INSERT INTO t VALUES (2, 1, 3), (3, 'x', 'q')")
        run.until_ended()
    assert isinstance(run.error, SourceError)
    assert "members of column e cannot be read" in str(run.error)
    assert "Make a new column" in str(run.error)
    assert [record.value["after"] for record in source.changes("plain")] == [{"id": 1, "e": "b"}]
    source.execute(*CONVERTED)
    with running(source.settings()) as run:
        source.execute("INSERT INTO t (id, e, s) VALUES (4, 'é', 'ñ')")
        run.caught_up(source)
    created = [record.value["after"] for record in source.changes("t") if record.value["op"] == "c"]
    assert [(row["id"], row["e"], row["s"]) for row in created] == [
        (1, "x", "q"),
        (2, "é", "ñ,q"),
        (3, "x", "q"),
        (4, "é", "ñ"),
    ]
    with source.connection.cursor() as cursor:
        cursor.execute("SELECT id, e, s FROM t ORDER BY id")
        assert cursor.fetchall() == tuple((row["id"], row["e"], row["s"]) for row in created)


def test_a_conversion_that_loses_members_has_the_table_read_again(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('é','x')) CHARACTER SET latin1", "SET SESSION sql_mode = ''")
    with running(source.settings()) as run:
        source.execute("INSERT INTO t VALUES (1, 'é'), (2, 'x')")
        run.caught_up(source)
        assert not run.producer.coordinator.progress()
        source.execute("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4")
        run.until(lambda: bool(run.producer.coordinator.progress()), "the table is to be read again")
        run.until(lambda: run.producer.coordinator.progress()[0].state == "done", "it is read")
    rows = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.t")
    after = [record.value["after"] for record in rows if "after" in record.value]
    assert sorted((row["id"], row["e"]) for row in after) == [(1, ""), (2, "x")]
