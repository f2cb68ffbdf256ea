"""Connections to PostgreSQL, by psycopg."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from schemas.errors import SinkError
from schemas.overriding import override
from schemas.settings.database_url import DatabaseUrl
from schemas.settings.url_options import LIBPQ_DEFAULTS
from spark_jobs.sinks.relational.sink_connection import SinkConnection, server_error

_SETTINGS: Final = (
    "TIME ZONE 'UTC'",
    "lock_timeout = '60s'",
    "standard_conforming_strings = on",
    "DateStyle = 'ISO'",
    "extra_float_digits = 1",  # a float as text has all its digits
    "tcp_keepalives_idle = 30",  # the lock of a machine that is gone ends soon
    "tcp_keepalives_interval = 10",
    "tcp_keepalives_count = 3",
)
_OPTIONS: Final[Mapping[str, Any]] = {
    "connect_timeout": 10, "keepalives_idle": 60, "keepalives_interval": 10, "keepalives_count": 6, "application_name": "tidemark",
}  # fmt: skip
_LOST: Final = ("08", "57P", "53300")
_CONTESTED: Final = {"40001": "conflict", "40P01": "deadlock", "55P03": "a lock was not granted in time"}
_DUPLICATE: Final = "23505"
_OF_A_CATALOG: Final = re.compile(r'"pg_\w+_index"')
"""PostgreSQL's `CREATE … IF NOT EXISTS` looks, and fails at the index of its catalog where two transactions make the same."""
_REFUSED_START: Final = re.compile(
    r"authentication failed|no pg_hba\.conf entry|pg_hba\.conf rejects"
    r"|role .+ (?:does not exist|is not permitted to log in)|no password supplied"
)
_FAILED_START: Final = re.compile(
    r"database .+ does not exist|permission denied|invalid .*value|unrecognized configuration parameter|weak sslmode"
    r"|channel binding required"
)
_UNTRUSTED_START: Final = re.compile(r"certificate|private key|does not support SSL")
"""A client has no SQLSTATE of a connection that the server refuses, but its words."""
_COPY_BYTES: Final = 1 << 18


class _Client(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed with its last reference: psycopg's own warns then, but a sink keeps idle connections."""

    @override
    def __del__(self, *_: Any) -> None:
        if hasattr(self, "pgconn"):
            self.close()


class PostgresConnection(SinkConnection):
    """One connection, with the options of the URL."""

    def __init__(self, url: DatabaseUrl, user: str, password: str) -> None:
        self._server = url.server
        address = {"host": url.address, "port": url.port, "dbname": url.database, "user": user, "password": password}
        options = {**LIBPQ_DEFAULTS, **_OPTIONS, **url.options, **address, "client_encoding": "utf8"}
        os.environ.pop("PGSERVICE", None)  # libpq has no option for no service
        try:
            self._client = _Client.connect(autocommit=True, prepare_threshold=None, **options)
        except psycopg.Error as error:
            raise start_error(error, url.server) from error
        try:
            self.execute("; ".join(f"SET {one}" for one in _SETTINGS))
        except BaseException:
            self.close()
            raise

    @override
    def execute(self, sql: str, *values: str | int) -> int:
        with _raising(self._server):
            return self._client.execute(sql.encode(), values or None).rowcount

    @override
    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        with _raising(self._server):
            return self._client.execute(sql.encode(), values or None).fetchall()

    @override
    def fill(self, table: str, file: Path) -> int:
        with _raising(self._server), self._client.cursor() as cursor, file.open("rb") as data:
            with cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                while block := data.read(_COPY_BYTES):
                    copy.write(block)
            return cursor.rowcount

    @override
    def close(self) -> None:
        self._client.close()


@contextmanager
def _raising(server: str) -> Iterator[None]:
    """Raise an error of the client as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise sink_error(error, server) from error


def sink_error(error: psycopg.Error, server: str) -> SinkError:
    """Return an error of a statement as ours."""
    state, said = error.sqlstate or "", _words(error)
    lost = state.startswith(_LOST) or (not state and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)))
    passes = _CONTESTED.get(state)
    if state == _DUPLICATE and _OF_A_CATALOG.search(said):
        passes = "another transaction made it meanwhile"
    return server_error(server, said, refused=state.startswith("28"), lost=lost, passes=passes, is_duplicate=state == _DUPLICATE)


def start_error(error: psycopg.Error, server: str) -> SinkError:
    """Return the error of a connection that was not made."""
    said = _words(error)
    is_final = isinstance(error, psycopg.ProgrammingError) or _FAILED_START.search(said)
    refused, untrusted = bool(_REFUSED_START.search(said)), bool(_UNTRUSTED_START.search(said))
    return server_error(server, said, refused=refused, untrusted=untrusted and not is_final, lost=not is_final)


def _words(error: psycopg.Error) -> str:
    severity = error.diag.severity
    return " ".join(f"{severity}: {error}".split()) if severity else " ".join(str(error).split())
