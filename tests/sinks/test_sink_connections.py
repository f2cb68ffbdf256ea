"""Errors of the clients of databases, as a sink reports them; no server is needed."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pymysql
import pytest

from mysqlio.server_access import ServerAccess
from schemas.errors import SecretError, SinkError
from schemas.settings.database_url import parse_url
from spark_jobs.sinks.relational import mysql_connection, postgres_connection
from spark_jobs.sinks.relational.sink_connection import DatabaseError, DatabaseUnavailableError


def of_state(state: str, text: str = "said") -> psycopg.Error:
    return psycopg.errors.lookup(state)(text)


def of_code(code: int) -> pymysql.MySQLError:
    return pymysql.err.OperationalError(code, "said")


@pytest.mark.parametrize(
    ("error", "kind", "passes"),
    [
        (of_state("40001"), DatabaseError, "conflict"),
        (of_state("40P01"), DatabaseError, "deadlock"),
        (of_state("55P03"), DatabaseError, "a lock was not granted in time"),
        (of_state("23505"), DatabaseError, None),
        (of_state("23505", 'unique constraint "pg_namespace_nspname_index"'), DatabaseError, "another transaction made it meanwhile"),
        (of_state("57P01"), DatabaseUnavailableError, None),
        (of_state("53300"), DatabaseUnavailableError, None),
        (psycopg.OperationalError("the connection is lost"), DatabaseUnavailableError, None),
        (psycopg.InterfaceError("the connection is closed"), DatabaseUnavailableError, None),
        (of_state("28P01"), SinkError, None),
        (of_code(1213), DatabaseError, "deadlock"),
        (of_code(1205), DatabaseError, "a lock was not granted in time"),
        (of_code(1020), DatabaseError, "conflict"),
        (of_code(1062), DatabaseError, None),
        (of_code(2013), DatabaseUnavailableError, None),
        (pymysql.err.InterfaceError(0, ""), DatabaseUnavailableError, None),
        (of_code(1045), SinkError, None),
    ],
)
def test_an_error_of_a_client_says_whether_another_attempt_helps(error: Exception, kind: type[SinkError], passes: str | None) -> None:
    if isinstance(error, psycopg.Error):
        found = postgres_connection.sink_error(error, "db:1")
    else:
        assert isinstance(error, pymysql.MySQLError)
        found = mysql_connection.sink_error(error, "db:1")
    assert type(found) is kind
    assert "db:1" in str(found)
    assert getattr(found, "passes", None) == passes
    assert getattr(found, "is_duplicate", False) == any(code in repr(error.args) + type(error).__name__ for code in ("1062", "Unique"))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('FATAL: password authentication failed for user "u"', SinkError, "refuses the user: .*: check user and password_file"),
        ('FATAL: no pg_hba.conf entry for host "h"', SinkError, "refuses the user"),
        ('FATAL: role "u" does not exist', SinkError, "refuses the user"),
        ('FATAL: database "x" does not exist', DatabaseError, 'says: .*database "x" does not exist'),
        ("server does not support SSL, but SSL was required", DatabaseError, "says: .*server does not support SSL"),
        ("FATAL: the database system is starting up", DatabaseUnavailableError, "does not answer"),
        ("FATAL: sorry, too many clients already", DatabaseUnavailableError, "does not answer"),
        ("SSL SYSCALL error: Connection reset by peer", DatabaseUnavailableError, "does not answer"),
        ('invalid sslmode value: "always"', DatabaseError, "says: .*invalid sslmode value"),
        ("timeout expired", DatabaseUnavailableError, "does not answer"),
    ],
)
def test_a_refused_connection_to_postgresql_is_distinguished_from_a_missing_server(text: str, kind: type[SinkError], words: str) -> None:
    found = postgres_connection.start_error(psycopg.OperationalError(f"connection failed: {text}"), "db:1")
    assert type(found) is kind
    with pytest.raises(SinkError, match=words):
        raise found


def _to_mysql(password_file: str | None) -> None:
    url = parse_url("mysql://127.0.0.1:1", "mysql", "sinks: url")
    mysql_connection.MySqlConnection(ServerAccess.of_url(url, "u", "", password_file, "sinks"))


def _to_postgres(_password_file: str | None) -> None:
    postgres_connection.PostgresConnection(parse_url("postgresql://127.0.0.1:1/x", "postgresql", "sinks: url"), "u", "p")


@pytest.mark.parametrize("connect", [_to_mysql, _to_postgres])
def test_a_port_without_a_server_is_a_database_that_does_not_answer(connect: Callable[[str | None], None]) -> None:
    with pytest.raises(DatabaseUnavailableError, match=r"the database 127\.0\.0\.1:1 does not answer"):
        connect(None)


def test_a_missing_file_of_the_password_is_named() -> None:
    with pytest.raises(SecretError, match=r"sinks\.password_file"):
        _to_mysql("/no/such/file")
