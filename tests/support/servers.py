"""Real servers for tests: each is started once per pytest process, on first use, and stopped at its end.

Fixtures: `mysql80`, `mysql97`, `mysql57`, `mariadb114`, `postgres17`, `kafka`, `registry`, and `fresh_database`, a function
that makes an empty schema on a server and drops it after the test. The functions behind them
(`database(name)`, `kafka_server()`, `registry_server()`) serve parametrised tests. A test that kills or
configures a server starts one of its own with `devservers`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import ER
from pymysql.cursors import Cursor

from devservers import (
    Database,
    Kafka,
    Postgres,
    Registry,
    start_database,
    start_postgres,
    start_registry,
)
from schemas.settings import KafkaSettings
from tests.support.cpu_time import shared_start
from tests.support.own_broker import own_kafka

_RUN_FOLDER = "TIDEMARK_TEST_FOLDER"
_numbers = itertools.count(1)
_started: list[Database | Kafka | Postgres | Registry] = []


def pytest_configure(config: pytest.Config) -> None:
    """One folder for all servers of a run, those of its workers included.

    The process that began the run removes it when its workers are gone, also those that had no time to do so.
    """
    if not hasattr(config, "workerinput"):
        folder = os.environ[_RUN_FOLDER] = tempfile.mkdtemp(prefix="tidemark-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def shared_folder() -> Path:
    """Folder of all processes of a run."""
    return Path(os.environ[_RUN_FOLDER])


@cache
def run_folder() -> Path:
    """Folder of this process's servers, deleted at its end."""
    return Path(tempfile.mkdtemp(prefix="tidemark-tests-", dir=os.environ[_RUN_FOLDER]))


@cache
def database(name: str) -> Database:
    """The session's server of that name ("mysql80", "mysql97", "mariadb114", ...)."""
    with shared_start():
        server = start_database(name, run_folder())
    _started.append(server)
    return server


@cache
def postgres(name: str) -> Postgres:
    """The session's PostgreSQL server of that name ("postgres17", "postgres18")."""
    with shared_start():
        server = start_postgres(name, run_folder())
    _started.append(server)
    return server


def close_with_session(server: Kafka) -> Kafka:
    """Have a broker closed at the end of the session, and return it."""
    _started.append(server)
    return server


def end_connection(cursor: Cursor, number: int) -> None:
    """KILL a connection of a list that was read before: one that has ended by itself since is no error."""
    try:
        cursor.execute(f"KILL {number}")
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.NO_SUCH_THREAD:
            raise


def wait_until_gone(cursor: Cursor, number: int) -> None:
    """Until the server has let go a connection that its client has closed: what it prepared (XA) is anyone's then.

    The list of processes lacks it before that.
    """
    deadline = time.monotonic() + 120
    try:
        while True:
            cursor.execute(f"KILL {number}")
            assert time.monotonic() < deadline, f"connection {number} is not let go"
            time.sleep(0.01)
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.NO_SUCH_THREAD:
            raise


def end_dumps(server: Database) -> None:
    """End what the server still sends of its log to readers that are gone, which it sees late: PURGE spares the files of theirs."""
    deadline = time.monotonic() + 60
    with server.connect() as connection, connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
            dumps = [number for (number,) in cursor.fetchall()]
            if not dumps:
                return
            assert time.monotonic() < deadline, dumps
            for number in dumps:
                end_connection(cursor, number)
            time.sleep(0.05)


@cache
def own_database(name: str, owner: str) -> Database:
    """A server for one suite alone: for logs that other suites' events or global settings would disturb."""
    folder = run_folder() / owner
    folder.mkdir(exist_ok=True)
    with shared_start():
        server = start_database(name, folder)
    _started.append(server)
    return server


@cache
def kafka_server() -> Kafka:
    """The session's broker."""
    # one that stands still for longer than nine seconds would be fenced by its own controller: no partition has a leader
    patience = {"broker.session.timeout.ms": "120000"}
    with shared_start():
        server = own_kafka(run_folder(), record_classes=True, properties=patience)
    _started.append(server)
    return server


@cache
def registry_server() -> Registry:
    """The session's schema registry."""
    with shared_start():
        server = start_registry(run_folder(), record_classes=True)
    _started.append(server)
    return server


def new_database(server: Database) -> str:
    """Create an empty schema and return its name; unique in the session."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


def drop_database(server: Database, name: str) -> None:
    """Drop a schema if the server still runs and has it."""
    if server.running:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")


def cluster(bootstrap_servers: str) -> KafkaSettings:
    """The settings of a cluster without passwords."""
    return KafkaSettings(bootstrap_servers=bootstrap_servers)


def unique_name(prefix: str) -> str:
    """A name for a topic, group or transactional id that no other test uses."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session", autouse=True)
def _servers_end_with_the_session() -> Iterator[None]:
    yield
    while _started:
        server = _started.pop()
        if not isinstance(server, Kafka | Registry):
            server.kill()  # its data go with the folder; an orderly end takes seconds. The others record their classes
        server.close()
    if run_folder.cache_info().currsize:
        shutil.rmtree(run_folder(), ignore_errors=True)


@pytest.fixture(scope="session")
def mysql80() -> Database:
    """MySQL 8.0."""
    return database("mysql80")


@pytest.fixture(scope="session")
def mysql97() -> Database:
    """MySQL 9.7."""
    return database("mysql97")


@pytest.fixture(scope="session")
def mysql57() -> Database:
    """MySQL 5.7."""
    return database("mysql57")


@pytest.fixture(scope="session")
def mariadb114() -> Database:
    """MariaDB 11.4."""
    return database("mariadb114")


@pytest.fixture(scope="session")
def postgres17() -> Postgres:
    """PostgreSQL 17."""
    return postgres("postgres17")


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """A Kafka broker."""
    return kafka_server()


@pytest.fixture(scope="session")
def registry() -> Registry:
    """A schema registry."""
    return registry_server()


@pytest.fixture
def fresh_database() -> Iterator[Callable[[Database], str]]:
    """`fresh_database(server)` makes an empty schema and returns its name; dropped after the test."""
    made: list[tuple[Database, str]] = []

    def make(server: Database) -> str:
        name = new_database(server)
        made.append((server, name))
        return name

    yield make
    for server, name in reversed(made):
        drop_database(server, name)
