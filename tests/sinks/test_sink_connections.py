"""Errors of the clients of databases, as a sink reports them; no server is needed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psycopg
import pymysql
import pytest

from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import source_errors
from schemas.errors import ConfigError, SecretError, SinkError, SourceError
from schemas.overriding import override
from schemas.settings.database_url import parse_url
from spark_jobs.sinks.relational import mysql_connection, postgres_connection
from spark_jobs.sinks.relational.relational_sink import database_of
from spark_jobs.sinks.relational.sink_connection import (
    DatabaseError,
    DatabaseUnavailableError,
    SinkConnection,
    SinkDatabase,
    TlsError,
)


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
        (of_code(1047), DatabaseUnavailableError, None),  # Galera: "WSREP has not yet prepared node for application use"
        (of_code(1184), DatabaseUnavailableError, None),
        (of_code(1153), DatabaseError, None),
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
        ('FATAL: pg_hba.conf rejects connection for host "h"', SinkError, "refuses the user"),
        ('FATAL: unrecognized configuration parameter "x"', DatabaseError, "says: .*unrecognized configuration"),
        ('weak sslmode "prefer" may not be used with sslrootcert=system', DatabaseError, "says: .*weak sslmode"),
        ("channel binding required, but server authenticated client without channel binding", DatabaseError, "says: .*channel binding"),
        ("server does not support SSL, but SSL was required", TlsError, "says: .*server does not support SSL"),
        ("SSL error: certificate verify failed", TlsError, "says: .*certificate verify failed"),
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


def test_an_option_that_psycopg_does_not_take_is_final() -> None:
    found = postgres_connection.start_error(psycopg.ProgrammingError("bad value for connect_timeout: 'x'"), "db:1")
    assert type(found) is DatabaseError


TLS_ERRORS = [
    ssl.SSLCertVerificationError("certificate has expired"),
    of_code(2026),
]


@pytest.mark.parametrize("error", TLS_ERRORS)
def test_a_failed_tls_handshake_with_mysql_is_distinguished(error: Exception) -> None:
    with pytest.raises(SourceError) as caught, source_errors("db:1", "sinks.w"):
        raise error
    assert type(mysql_connection.sink_error(caught.value, "db:1")) is TlsError


class Connection(SinkConnection):
    """A connection that does nothing."""

    @override
    def execute(self, sql: str, *values: str | int) -> int:
        return 0

    @override
    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        return []

    @override
    def fill(self, table: str, file: Path) -> int:
        return 0

    @override
    def close(self) -> None: ...


@pytest.mark.parametrize("error", [TlsError("certificate has expired"), ConfigError("ssl-ca cannot be read")])
def test_tls_that_fails_is_final_at_the_first_connection_and_awaited_at_later_ones(error: Exception) -> None:
    outcomes: list[Exception | None] = [error, None, error]

    def connect() -> SinkConnection:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return Connection()

    database = SinkDatabase("db:1", connect)
    with pytest.raises(type(error)):
        database.open()
    database.open().close()
    with pytest.raises(DatabaseUnavailableError, match=str(error)):
        database.open()


class Server:
    """A MySQL client whose server takes statements of so many bytes, with the byte of the command."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.statements: list[bytes] = []

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, statement: str, _values: object = None) -> int:
        assert statement in {"BEGIN", "COMMIT", "ROLLBACK", "SELECT @@max_allowed_packet"}
        return 0

    def fetchall(self) -> list[tuple[int]]:
        return [(self.most,)]

    def query(self, statement: bytes) -> int:
        assert len(statement) + 1 < self.most, "the server would close the connection"
        self.statements.append(statement)
        return statement.count(b"(")


def filled(monkeypatch: pytest.MonkeyPatch, file: Path, rows: list[bytes], most: int) -> tuple[int, list[bytes]]:
    server = Server(most)
    monkeypatch.setattr(mysql_connection, "connect", lambda *_: server)
    file.write_bytes(b"".join(row + b"\n" for row in rows))
    count = mysql_connection.MySqlConnection(ServerAccess(host="db", port=1, user="u")).fill("t", file)
    return count, server.statements


def test_no_statement_is_longer_than_the_server_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [b"(%d,'%s')" % (number, b"x" * (5000 if number % 100 == 7 else 20)) for number in range(1000)]
    count, statements = filled(monkeypatch, tmp_path / "rows", rows, 5100)
    assert count == 1000
    prefix = b"INSERT INTO t VALUES "
    assert b",".join(one.removeprefix(prefix).replace(b"\n", b"") for one in statements) == b",".join(rows)
    assert len(statements) < 100, "short rows share a statement"


def test_a_row_that_no_packet_takes_is_final_for_its_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"db:1 says: a row needs a statement of 6,0\d\d bytes, .*max_allowed_packet.* 4,096") as caught:
        filled(monkeypatch, tmp_path / "rows", [b"(1,'%s')" % (b"x" * 6000)], 4096)
    assert caught.value.passes is None


def test_a_staged_file_that_cannot_be_read_is_no_missing_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mysql_connection, "connect", lambda *_: Server(4096))
    connection = mysql_connection.MySqlConnection(ServerAccess(host="db", port=1, user="u"))
    with pytest.raises(IsADirectoryError):
        connection.fill("t", tmp_path)


def _to_mysql(password_file: str | None) -> None:
    url = parse_url("mysql://127.0.0.1:1", "mysql", "sinks: url")
    mysql_connection.MySqlConnection(ServerAccess.of_url(url, "u", "", password_file, "sinks"))


def test_a_proxy_without_a_database_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        url = parse_url(f"mysql://127.0.0.1:{proxy.getsockname()[1]}?connectTimeout=1000", "mysql", "sinks: url")
        with pytest.raises(DatabaseUnavailableError, match=r"does not answer: .* nothing came .*is it a proxy whose database is down"):
            mysql_connection.MySqlConnection(ServerAccess.of_url(url, "u", "", None, "sinks"))


def _to_postgres(_password_file: str | None) -> None:
    postgres_connection.PostgresConnection(parse_url("postgresql://127.0.0.1:1/x", "postgresql", "sinks: url"), "u", "p")


@pytest.mark.parametrize("connect", [_to_mysql, _to_postgres])
def test_a_port_without_a_server_is_a_database_that_does_not_answer(connect: Callable[[str | None], None]) -> None:
    with pytest.raises(DatabaseUnavailableError, match=r"the database 127\.0\.0\.1:1 does not answer"):
        connect(None)


@pytest.mark.parametrize("url", ["mysql://[::1]:1", "postgresql://[::1]:1/x"])
def test_a_missing_file_of_the_password_is_named_with_its_sink(url: str) -> None:
    database = database_of(url.partition(":")[0], url, "u", "", "/no/such/file", "sinks.house")
    with pytest.raises(SecretError, match=r"sinks\.house\.password_file: cannot read /no/such/file"):
        database.open()


def test_the_address_of_a_server_is_written_as_in_its_url() -> None:
    with pytest.raises(DatabaseUnavailableError, match=r"the database \[::1\]:1 does not answer"):
        database_of("mysql", "mysql://[::1]:1", "u").open()
