"""Halves of surrogate pairs in texts: no characters, but some servers store them."""

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

TABLE = """CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20) CHARACTER SET utf8mb4, b TEXT CHARACTER SET utf8mb3,
    c VARCHAR(20) CHARACTER SET ucs2, d VARCHAR(20) CHARACTER SET utf32)"""
HALF = "X'61EDA08062'"
ROWS = f"""INSERT IGNORE INTO t VALUES (1, {HALF}, {HALF}, X'0061D8000062', X'000000610000D80000000062'),
    (2, X'EDA0BDEDB880', X'EDA0BDEDB880', X'D83DDE00', X'0000D83D0000DE00'), (3, 'x', 'x', 'x', 'x')"""


@pytest.mark.parametrize("name", ["mysql57", "mysql80", "mariadb114"])
def test_halves_of_pairs_are_the_same_in_log_and_chunk_and_stop_nothing(name: str) -> None:
    server = database(name)
    connector: Any = server.flavour
    schema = new_database(server)
    start = log_position(server)
    with session(server, schema) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute(ROWS)
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
    found = [list(json.loads(v or b"")["after"].values()) for v in logged]
    assert found == [list(json.loads(v or b"")["after"].values()) for v in rows]
    assert [reader.after_bytes(v or b"") for v in logged] == [reader.after_bytes(v or b"") for v in rows]
    assert found[2] == [3, "x", "x", "x", "x"]
    if name == "mariadb114":
        assert found[:2] == [[1, *["a?b"] * 4], [2, *["??"] * 4]]
