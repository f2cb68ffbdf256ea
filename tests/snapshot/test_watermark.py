"""The signal table and its window rows on real servers; the race itself is in tests/integration."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
import pytest

from devservers import Database
from mysqlio.server_facts import identity_of, server_facts
from mysqlio.signal_table import SignalTable
from producer.snapshot import watermark
from producer.snapshot.watermark import (
    WindowRow,
    choose_low_watermark,
    commit_barrier,
    commit_close,
    end_of_binlog,
    require_no_xa,
    window_of,
)
from producer.snapshot.windowing import ReadOnly
from producer.source.log_facts import xa_recover
from schemas.errors import RetriableSourceError, SourceError
from schemas.position import Position
from tests.support.servers import database

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, 1500, dt.UTC)


@pytest.fixture(params=("mysql80", pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114"))
def source(
    request: pytest.FixtureRequest, fresh_database: Callable[[Database], str]
) -> Iterator[tuple[Any, SignalTable]]:
    server = database(request.param)
    name = fresh_database(server)
    with server.connect(database=name) as connection:
        yield connection, SignalTable(name, "signals")


def run(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_the_table_is_debeziums_and_made_once(source: tuple[Any, SignalTable]) -> None:
    connection, table = source
    table.ensure(connection)
    table.ensure(connection)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO signals VALUES ('a', 'log', NULL)")
        cursor.execute("SELECT id, type, data FROM signals")
        assert cursor.fetchall() == (("a", "log", None),)


@pytest.mark.parametrize(
    ("definition", "wrong"),
    [
        ("(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048), more INT)", "4 columns"),
        ("(id VARCHAR(36) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))", "a signal and its window rows need"),
        (
            "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048)) ENGINE=MyISAM",
            "order of the log",
        ),
        ("(id INT PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))", "a signal and its window rows need"),
    ],
)
def test_a_table_that_cannot_carry_window_rows_is_refused_with_the_sql(
    source: tuple[Any, SignalTable], definition: str, wrong: str
) -> None:
    connection, table = source
    run(connection, f"CREATE TABLE signals {definition}")
    with pytest.raises(SourceError, match=wrong) as raised:
        table.ensure(connection)
    message = str(raised.value)
    assert "name another table in source.signal_table" in message
    assert "CREATE TABLE <database>.tidemark_signal (id VARCHAR(42) PRIMARY KEY, " in message
    assert "drop" not in message.lower(), "it may be a table of data"


def test_debeziums_tables_under_any_column_names_will_do(source: tuple[Any, SignalTable]) -> None:
    connection, table = source
    run(connection, "CREATE TABLE signals (a VARCHAR(64), b VARCHAR(32), c TEXT)")
    table.ensure(connection)
    commit_barrier(connection, table, WindowRow.open("w", "db.t", "r", NOON))


def test_where_it_may_not_be_created_the_sql_is_reported(source: tuple[Any, SignalTable]) -> None:
    connection, table = source
    run(connection, "CREATE USER IF NOT EXISTS 'poor'@'%' IDENTIFIED BY 'poor'")
    poor = pymysql.connect(host=connection.host, port=connection.port, user="poor", password="poor")
    try:
        with pytest.raises(SourceError, match=r"CREATE TABLE IF NOT EXISTS .* GRANT SELECT, INSERT"):
            table.ensure(poor)
    finally:
        poor.close()
        run(connection, "DROP USER 'poor'@'%'")


def test_window_rows_are_worded_as_debeziums() -> None:
    opened = WindowRow.open("u", "db.t", "r", NOON)
    closed = WindowRow.close("u", "db.t", "r", NOON, NOON + dt.timedelta(seconds=2))
    assert (opened.id, opened.type) == ("u-open", "snapshot-window-open")
    assert (closed.id, closed.type) == ("u-close", "snapshot-window-close")
    assert json.loads(opened.data) == {
        "openWindowTimestamp": "2026-11-21T12:00:00.001500Z",
        "correlationId": "r",
        "dataCollectionId": "db.t",
    }
    assert json.loads(closed.data)["closeWindowTimestamp"] == "2026-11-21T12:00:02.001500Z"
    assert window_of("u-open") == ("u", "-open")
    assert window_of("u-close") == ("u", "-close")
    assert window_of("signal-1") is None


def test_low_is_the_end_of_the_log_before_the_barrier_and_never_below_the_bound(
    source: tuple[Any, SignalTable],
) -> None:
    connection, table = source
    table.ensure(connection)
    before = end_of_binlog(connection, 3)
    low = choose_low_watermark(connection, table, WindowRow.open("a", "db.t", "r", NOON), Position(3, 0, 0))
    after = end_of_binlog(connection, 3)
    assert before.position == low.position < after.position
    bound = Position(3, 9_999_999, 4)
    assert choose_low_watermark(connection, table, WindowRow.open("b", "db.t", "r", NOON), bound).position == bound


def test_a_close_row_that_is_there_already_is_as_good(source: tuple[Any, SignalTable]) -> None:
    connection, table = source
    table.ensure(connection)
    row = WindowRow.close("u", "db.t", "r", NOON, NOON)
    commit_close(connection, table, row)
    commit_close(connection, table, row)


def test_prepared_xa_transactions_are_waited_for(source: tuple[Any, SignalTable]) -> None:
    connection, table = source
    table.ensure(connection)
    require_no_xa(connection)
    for sql in (
        "XA START 'w'",
        "INSERT INTO signals VALUES ('x', 'log', '')",
        "XA END 'w'",
        "XA PREPARE 'w'",
    ):
        run(connection, sql)
    with pytest.raises(RetriableSourceError, match="XA RECOVER"):
        require_no_xa(connection)
    run(connection, "XA ROLLBACK 'w'")
    require_no_xa(connection)


def test_a_server_is_known_by_its_uuid_or_id(source: tuple[Any, SignalTable]) -> None:
    connection, _ = source
    facts = server_facts(connection)
    assert identity_of(connection) == (facts.server_uuid or f"server_id={facts.server_id}")


def prepare(connection: Any, xid: str, number: int) -> None:
    for sql in (
        f"XA START {xid}",
        f"INSERT INTO signals VALUES ('xa{number}', 'log', '')",
        f"XA END {xid}",
        f"XA PREPARE {xid}",
    ):
        run(connection, sql)


def test_an_xid_may_be_any_bytes(source: tuple[Any, SignalTable]) -> None:
    """As the transaction managers of Java make them."""
    connection, table = source
    table.ensure(connection)
    with second_connection(connection) as other:
        prepare(other, "X'FF00FEC3',X'80',4660", 1)
        try:
            with pytest.raises(RetriableSourceError, match="XA RECOVER"):
                require_no_xa(connection)
        finally:
            run(other, "XA ROLLBACK X'FF00FEC3',X'80',4660")


def test_xa_transactions_that_come_and_go_all_the_time_are_not_waited_for_to_end(
    source: tuple[Any, SignalTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is always one; those that were there when it was asked first are the ones that matter."""
    connection, table = source
    table.ensure(connection)
    asked: list[object] = []

    with second_connection(connection) as one, second_connection(connection) as other:

        def overlapping(asking: Any) -> tuple[str, ...]:
            """The second comes, and the first goes, as soon as somebody knows of the first."""
            found = xa_recover(asking)
            if not asked:
                prepare(other, "'other'", 2)
                run(one, "XA COMMIT 'one'")
            asked.append(found)
            return found

        monkeypatch.setattr(watermark, "xa_recover", overlapping)
        prepare(one, "'one'", 1)
        try:
            require_no_xa(connection, 30.0)
            with pytest.raises(RetriableSourceError, match="1 prepared XA"):
                require_no_xa(connection, 0.1)
        finally:
            run(other, "XA ROLLBACK 'other'")


def test_a_connection_that_breaks_says_nothing_of_tables_and_grants(source: tuple[Any, SignalTable]) -> None:
    connection, table = source
    table.ensure(connection)
    for ask in (table.ensure, identity_of, require_no_xa, *([ReadOnly(lambda: None).prepare] if is_mysql(connection) else [])):  # type: ignore[arg-type,return-value]
        with second_connection(connection) as killed:
            run(connection, f"KILL {killed.thread_id()}")
            with pytest.raises(RetriableSourceError, match="gone"):
                ask(killed)


def is_mysql(connection: Any) -> bool:
    return "mariadb" not in str(connection.get_server_info()).lower()


@contextmanager
def second_connection(connection: Any) -> Iterator[Any]:
    again = pymysql.connect(
        host=connection.host,
        port=connection.port,
        user=connection.user.decode(),
        password=connection.password.decode(),
        database=connection.db.decode(),
        autocommit=True,
    )
    try:
        yield again
    finally:
        with suppress(pymysql.MySQLError):
            again.close()
