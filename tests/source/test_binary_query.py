"""BinaryQuery against real servers: raw packets in, the same values out as PyMySQL's text protocol."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pymysql
import pytest

from devservers import Database
from mysqlio.binary_query import BinaryQuery
from tests.support.servers import database

SERVERS = ("mysql80", "mariadb114")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Database:
    return database(request.param)


@pytest.fixture
def connection(server: Database, fresh_database: Callable[[Database], str]) -> Iterator[Any]:
    name = fresh_database(server)
    with server.connect() as made:
        made.select_db(name)
        yield made


def execute(connection: Any, *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.commit()


def packets(query: BinaryQuery, buffer: np.ndarray | None = None) -> list[bytes]:
    """The payloads of all row packets."""
    found = []
    for buf, start, end in query.blocks(buffer):
        data = buf[start:end].tobytes()
        at = 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 3], "little")
            if length == 0xFFFFFF:
                length = len(data) - 4
            found.append(data[at + 4 : at + 4 + length])
            at += 4 + length
    return found


def longs(query: BinaryQuery) -> list[int]:
    """The values of a result set of one BIGINT column."""
    return [int.from_bytes(packet[2:], "little", signed=True) for packet in packets(query)]


def numbers_table(connection: Any, rows: int) -> None:
    execute(connection, "CREATE TABLE n (id BIGINT PRIMARY KEY, v VARCHAR(200))")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO n VALUES (%s, %s)", [(i, "x" * (i % 190)) for i in range(rows)])
    connection.commit()


def test_all_rows_arrive_once_and_in_order_whatever_the_buffer(connection: Any) -> None:
    numbers_table(connection, 20_000)
    for size in (64, 4096, 1 << 20, 8 << 20):
        with BinaryQuery(connection, "SELECT id, v FROM n ORDER BY id") as query:
            rows = packets(query, np.empty(size, np.uint8))
        ids = [struct.unpack("<q", row[2:10])[0] for row in rows]
        assert ids == list(range(20_000))
        assert all(row[10] == i % 190 for i, row in enumerate(rows))


def test_the_connection_serves_ordinary_queries_before_and_after(connection: Any) -> None:
    numbers_table(connection, 10)
    for _ in range(3):
        with BinaryQuery(connection, "SELECT id FROM n") as query:
            assert len(packets(query)) == 10
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM n")
            assert cursor.fetchone() == (10,)


def test_an_empty_result_has_columns_and_no_rows(connection: Any) -> None:
    execute(connection, "CREATE TABLE e (a INT UNSIGNED NOT NULL, d DECIMAL(9,4), t DATETIME(3))")
    with BinaryQuery(connection, "SELECT a, d, t FROM e") as query:
        assert packets(query) == []
    assert [column.name for column in query.columns] == ["a", "d", "t"]
    assert [column.type_code for column in query.columns] == [3, 246, 12]
    assert query.columns[0].flags & 32, "unsigned"
    assert [column.decimals for column in query.columns[1:]] == [4, 3]


def test_rows_of_16_mib_and_more_are_joined(connection: Any) -> None:
    execute(connection, "SET GLOBAL max_allowed_packet = 67108864")
    fresh = connection.__class__(**connection_arguments(connection))
    try:
        # lengths around the protocol's limit: the payload is 1 header byte, 1 NULL bitmap byte, length, text
        for length in (100, 0xFFFFFF - 6, 0xFFFFFF - 5, 0xFFFFFF, 20_000_000, 2 * 0xFFFFFF - 6):
            sql = f"SELECT REPEAT('ab', {length // 2}), 7 UNION ALL SELECT 'last', 8"
            with BinaryQuery(fresh, sql) as query:
                first, last = packets(query)
            assert first.count(b"ab") == length // 2
            assert b"last" in last
    finally:
        fresh.close()


def connection_arguments(connection: Any) -> dict[str, Any]:
    return {
        "host": connection.host,
        "port": connection.port,
        "user": connection.user.decode() if isinstance(connection.user, bytes) else connection.user,
        "password": connection.password.decode()
        if isinstance(connection.password, bytes)
        else connection.password,
    }


def test_an_error_while_preparing_is_pymysqls_and_leaves_the_connection_usable(connection: Any) -> None:
    with pytest.raises(pymysql.err.ProgrammingError, match="nothing_here"):
        BinaryQuery(connection, "SELECT * FROM nothing_here")
    with BinaryQuery(connection, "SELECT CAST(5 AS SIGNED)") as query:
        assert longs(query) == [5]


def test_an_error_in_the_middle_of_the_rows_is_pymysqls(connection: Any) -> None:
    numbers_table(connection, 5000)
    with (
        BinaryQuery(
            connection, "SELECT id, (SELECT a FROM (SELECT 1 a UNION SELECT 2) q WHERE id > 4000) FROM n"
        ) as query,
        pytest.raises(pymysql.err.OperationalError, match="more than 1 row"),
    ):
        packets(query)
    with BinaryQuery(connection, "SELECT CAST(6 AS SIGNED)") as query:
        assert longs(query) == [6]


def test_leaving_before_the_last_row_closes_the_connection(server: Database) -> None:
    with server.connect() as connection:
        query = BinaryQuery(
            connection, "SELECT a.help_topic_id, b.help_topic_id FROM mysql.help_topic a, mysql.help_topic b"
        )
        query.close()
        assert not connection.open


def test_a_killed_query_is_an_operational_error(connection: Any, server: Database) -> None:
    query = BinaryQuery(
        connection,
        "SELECT REPEAT('x', 4000), SLEEP(0.01) FROM information_schema.columns a, mysql.user b",
    )
    with server.connect() as other, other.cursor() as cursor:
        cursor.execute(f"KILL {connection.thread_id()}")
    with pytest.raises(pymysql.err.OperationalError):
        packets(query)


def test_a_statement_with_parameters_is_refused(connection: Any) -> None:
    with pytest.raises(ValueError, match="1 parameters"):
        BinaryQuery(connection, "SELECT ?")
