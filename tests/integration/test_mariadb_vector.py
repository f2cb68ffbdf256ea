"""MariaDB's VECTOR: a VARBINARY in the log, and a record like MySQL's, from the log and from a chunk alike."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.producers import Running, Source, running
from tests.support.servers import own_database

SIGNAL = "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
LONG = [number / 8 for number in range(70)]  # more than 255 bytes: the length takes two


@pytest.fixture(params=["FULL", "NO_LOG"])
def source(request: pytest.FixtureRequest, kafka: Any, fresh_database: Any) -> Iterator[Source]:
    server = own_database("mariadb118", "vectors")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL binlog_row_metadata = '{request.param}'")
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL)
    yield created
    created.connection.close()


def packed(*numbers: float) -> str:
    return f"x'{struct.pack(f'<{len(numbers)}f', *numbers).hex()}'"


def test_vectors_are_arrays_of_floats_in_rows_of_the_log_and_of_a_snapshot(source: Source) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3) NOT NULL, w VECTOR(70), b VARBINARY(12), VECTOR INDEX (v))",
        f"INSERT INTO t VALUES (1, VEC_FromText('[1,-2.5,1e-10]'), {packed(*LONG)}, {packed(1, 2, 3)})",
        f"INSERT INTO t VALUES (2, {packed(0, 0, 0)}, NULL, NULL)",
    )
    settings = source.settings()
    settings = replace(
        settings,
        snapshot=replace(settings.snapshot, mode="initial", merge="producer"),
        format=replace(settings.format, schemas=True),
    )
    with running(settings) as run:
        run.until(lambda: is_read(run), "the snapshot is there")
        source.execute(
            "UPDATE t SET b = NULL WHERE id = 1",
            f"UPDATE t SET v = {packed(0.1, 2, 3)} WHERE id = 2",
            "ALTER TABLE t ADD COLUMN x VECTOR(2) DEFAULT NULL",
            f"INSERT INTO t VALUES (3, {packed(1, 1, 1)}, NULL, NULL, {packed(7, 8)})",
        )
        run.caught_up(source)
    records = source.records("t")
    after = [(record.value["payload"]["op"], record.value["payload"]["after"]) for record in records]
    rows = {row["id"]: row for op, row in after if op == "r"}
    first = {"id": 1, "v": [1.0, -2.5, 1e-10], "w": LONG}
    assert {name: rows[1][name] for name in first} == first
    assert (rows[2]["v"], rows[2]["w"]) == ([0.0, 0.0, 0.0], None)
    changed = [row for op, row in after if op == "u"]
    assert [row for row in changed if row["id"] == 1] == [rows[1] | {"b": None}]
    assert [row["v"] for row in changed if row["id"] == 2] == [[0.1, 2.0, 3.0]]
    (inserted,) = [row for op, row in after if op == "c"]
    assert inserted == {"id": 3, "v": [1.0] * 3, "w": None, "b": None, "x": [7.0, 8.0]}
    (value,) = {str(fields_of(record)) for record in records if record.value["payload"]["op"] != "c"}
    assert value.count("io.debezium.data.FloatVector") == 2


def is_read(run: Running) -> bool:
    progress = run.producer.coordinator.progress()
    return bool(progress) and all(table.state == "done" for table in progress)


def fields_of(record: Any) -> list[dict[str, Any]]:
    """The fields of `after` in a record's schema."""
    fields: list[dict[str, Any]] = record.value["schema"]["fields"][1]["fields"]
    return fields
