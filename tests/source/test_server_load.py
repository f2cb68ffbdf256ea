"""The load of the source, as each server says it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, start_database
from producer.source.server_load import Measured, replica_lag_s, threads_running
from tests.support.replication import follow, options_of, prepare
from tests.support.servers import database

SERVERS = ("mysql80", pytest.param("mysql57", marks=pytest.mark.slow), pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Database:
    return database(request.param)


def test_the_thread_that_asks_runs(server: Database) -> None:
    with server.connect() as connection:
        measured = threads_running(connection)
    assert measured.value is not None
    assert measured.value >= 1
    assert measured.unknown == ""


def test_a_server_that_is_no_replica_says_so(server: Database) -> None:
    with server.connect() as connection:
        assert replica_lag_s(connection) == Measured(None, "the source is no replica")


def test_without_the_right_to_ask_the_grant_is_named(server: Database) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS 'lagless'@'%' IDENTIFIED BY 'lagless'")
    try:
        with server.connect(user="lagless", password="lagless") as poor:
            measured = replica_lag_s(poor)
            assert threads_running(poor).value is not None
    finally:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP USER 'lagless'@'%'")
    assert measured.value is None
    assert " STATUS is refused: " in measured.unknown
    assert "Run: GRANT " in measured.unknown


def folder(above: Path, name: str) -> Path:
    made = above / name
    made.mkdir()
    return made


@pytest.fixture(params=("mysql80", "mariadb114"))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    with (
        start_database(request.param, folder(tmp_path, "one"), options_of(request.param, 11, "binlog")) as primary,
        start_database(request.param, folder(tmp_path, "two"), options_of(request.param, 12, "other")) as replica,
    ):
        for one in (primary, replica):
            prepare(one)
        follow(replica, primary, former_primary=False)
        yield primary, replica


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_replica_says_how_far_it_is_behind(pair: tuple[Database, Database]) -> None:
    primary, replica = pair

    def on(server: Database, *statements: str) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    with replica.connect() as connection:
        known: Any = connection
        until(lambda: replica_lag_s(known) == Measured(0), "it has caught up")
        admin = {"user": "replication_admin", "password": "replication_admin"} if replica.flavour == "mariadb" else {}
        with replica.connect(**admin) as other, other.cursor() as cursor:
            cursor.execute("STOP SLAVE")
            cursor.execute("CHANGE MASTER TO MASTER_DELAY = 3600")
            cursor.execute("START SLAVE")
        on(primary, "CREATE DATABASE late", "CREATE TABLE late.t (id INT PRIMARY KEY)")
        until(lambda: (replica_lag_s(known).value or 0) >= 2, "it is behind")
        with replica.connect(**admin) as other, other.cursor() as cursor:
            cursor.execute("STOP SLAVE")
        assert replica_lag_s(known) == Measured(None, "replication is stopped in a channel of the source")
