"""Generated and invisible columns: in the log with their values, and the same bytes in a chunk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mysqlio.information_schema import read_table_schema
from producer.snapshot.ranges import KeyRange, chunk_query
from tests.codec.oracle import (
    Reader,
    chunk_records,
    event_context,
    log_position,
    make_codec,
    rows_events,
    session,
    values_of,
)
from tests.support.servers import database, drop_database, new_database

TABLE = """CREATE TABLE t (
    a INT, twice INT AS (a * 2) STORED, hidden INT INVISIBLE, text VARCHAR(20) AS (CONCAT('v', a)) VIRTUAL,
    known INT NOT NULL DEFAULT 7 INVISIBLE, id INT PRIMARY KEY, next INT AS (a + 1) VIRTUAL INVISIBLE)"""


@pytest.mark.parametrize("name", ["mysql97", "mariadb114"])
def test_generated_and_invisible_columns_are_the_same_in_log_and_chunk(name: str) -> None:
    server = database(name)
    connector: Any = server.flavour
    schema = new_database(server)
    start = log_position(server)
    with session(server, schema) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute("INSERT INTO t (id, a) VALUES (1, 10), (2, NULL)")
        cursor.execute("INSERT INTO t (id, a, hidden, known) VALUES (3, -1, 5, 6)")
        table = read_table_schema(connection, schema, "t")
        assert table is not None
        events = rows_events(server, start, "t")
        reader = Reader(table, "json", connector)
        codec = make_codec(table, events[0].layout, "json", connector)
        logged = [v for e in events for v in values_of(codec.encode_rows(e.buf, e.start, e.end, event_context(e.op)))]
        chunk = make_codec(table, None, "json", connector)
        read = chunk_records(chunk, connection, chunk_query(table, KeyRange()))
        rows = [value for records in read for value in values_of(records)]
    drop_database(server, schema)
    assert [reader.after_bytes(v or b"") for v in logged] == [reader.after_bytes(v or b"") for v in rows]
    assert [list(json.loads(v or b"")["after"].values()) for v in logged] == [
        [10, 20, None, "v10", 7, 1, 11],
        [None, None, None, None, 7, 2, None],
        [-1, -2, 5, "v-1", 6, 3, 0],
    ]
