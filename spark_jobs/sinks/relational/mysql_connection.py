"""Connections to MySQL and MariaDB, by the client of the producer (`mysqlio`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mysqlio.connection import Connection, close_quietly, connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import ServerCode, ServerError, is_lost, server_code
from schemas.errors import AccessDeniedError, RetriableSourceError, SecretError, SinkError, SourceError
from schemas.overriding import override
from spark_jobs.sinks.relational.sink_connection import SinkConnection, server_error

_SESSION: Final = (
    (
        "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', lock_wait_timeout = 60, "
        "innodb_lock_wait_timeout = 60"
    ),
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_INSERT_BYTES: Final = 1 << 20
"""Of one statement, if no row is longer: a server takes 16 MiB and more."""
_REFUSED: Final = (1045, ServerCode.DATABASE_ACCESS_DENIED)
_CONTESTED: Final[Mapping[int, str]] = {
    ServerCode.DEADLOCK: "deadlock",
    ServerCode.LOCK_WAIT_TIMEOUT: "a lock was not granted in time",
    ServerCode.RECORD_CHANGED: "conflict",
}
_TWICE: Final = (ServerCode.DUPLICATE_ENTRY, 1586)


class MySqlConnection(SinkConnection):
    """One connection. `access` has the server, the user and TLS; the password is read again for each connection."""

    def __init__(self, access: ServerAccess) -> None:
        self._server = access.address
        with _raising(self._server):
            self._client: Connection = connect(access, _SESSION)

    @override
    def execute(self, sql: str, *values: str | int) -> int:
        with _raising(self._server), self._client.cursor() as cursor:
            return cursor.execute(sql, values or None)

    @override
    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        with _raising(self._server), self._client.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    @override
    def fill(self, table: str, file: Path) -> int:
        found, into = 0, f"INSERT INTO {table} VALUES ".encode()  # noqa: S608
        with self.transaction(), file.open("rb") as lines, _raising(self._server):
            while rows := lines.readlines(_INSERT_BYTES):
                found += self._client.query(into + b",".join(rows))
        return found

    @override
    def close(self) -> None:
        close_quietly(self._client)


@contextmanager
def _raising(server: str) -> Iterator[None]:
    """Raise an error of the client as ours."""
    try:
        yield
    except (SourceError, ServerError, OSError) as error:
        if isinstance(error.__cause__, SecretError):
            raise error.__cause__ from None
        raise sink_error(error, server) from error


def sink_error(error: SourceError | ServerError | OSError, server: str) -> SinkError:
    """Return an error of the client as ours."""
    code = server_code(error)
    refused = isinstance(error, AccessDeniedError) or code in _REFUSED
    lost = isinstance(error, (RetriableSourceError, OSError)) or (isinstance(error, ServerError) and is_lost(error))
    passes = _CONTESTED.get(code)
    return server_error(server, _words(error), refused=refused, lost=lost, passes=passes, is_duplicate=code in _TWICE)


def _words(error: BaseException) -> str:
    """Return the words of the server, or of the client about it."""
    cause = error if isinstance(error, ServerError) else error.__cause__
    said = cause.args[1] if isinstance(cause, ServerError) and len(cause.args) > 1 else error
    return " ".join(str(said).split())
