"""Connections to MySQL and MariaDB, by the client of the producer (`mysqlio`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from mysqlio.connection import Connection, close_quietly, connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import ServerCode, ServerError, is_lost, server_code
from schemas.errors import (
    AccessDeniedError,
    HandshakeError,
    RetriableSourceError,
    SecretError,
    SinkError,
    SourceError,
)
from schemas.overriding import override
from spark_jobs.sinks.relational.sink_connection import SinkConnection, server_error

_SESSION: Final = (
    (
        "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', lock_wait_timeout = 60, "
        "innodb_lock_wait_timeout = 60, completion_type = 0"
    ),
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_INSERT_BYTES: Final = 1 << 20
"""Of one statement, if no row is longer: a server takes 16 MiB and more."""
_BROKEN: Final = frozenset({1042, 1043, 1047, 1080, 1081, 1154, 1155, 1156, 1157, 1184})
"""Connections that failed, beside the codes of `is_lost` (SQLSTATE 08…); 1047: a node of Galera that is not in its cluster."""
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
        self._packet_bytes = 0

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
        self._packet_bytes = self._packet_bytes or int(self.value("SELECT @@max_allowed_packet"))
        with self.transaction(), file.open("rb") as lines:
            for rows in _blocks(lines, self._packet_bytes - len(into) - 2):
                statement = into + b",".join(rows)
                self._require_fitting(len(statement))
                with _raising(self._server):
                    found += self._client.query(statement)
        return found

    def _require_fitting(self, length: int) -> None:
        """Refuse a statement of so many bytes that the server would close the connection."""
        if length + 1 >= self._packet_bytes:  # the first byte of a packet is the command
            said = (
                f"a row needs a statement of {length:,} bytes, and max_allowed_packet lets no more through than "
                f"{self._packet_bytes:,}: raise it on the server"
            )
            raise server_error(self._server, said)

    @override
    def close(self) -> None:
        close_quietly(self._client)


def _blocks(lines: BinaryIO, most: int) -> Iterator[list[bytes]]:
    """Yield the rows of a file, for statements of at most so many bytes; a longer row is alone."""
    while rows := lines.readlines(min(_INSERT_BYTES, most // 2)):
        if len(rows) > 1 and sum(map(len, rows)) + len(rows) > most:  # all but the last are in the half
            yield rows[:-1]
            rows = rows[-1:]
        yield rows


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
    lost, untrusted = lost or code in _BROKEN, isinstance(error, HandshakeError)
    passes = _CONTESTED.get(code)
    is_duplicate = code in _TWICE
    return server_error(
        server, _words(error), refused=refused, untrusted=untrusted, lost=lost, passes=passes, is_duplicate=is_duplicate
    )


def _words(error: BaseException) -> str:
    """Return the words of the server, or of the client about it."""
    cause = error if isinstance(error, (ServerError, HandshakeError)) else error.__cause__
    said = cause.args[1] if isinstance(cause, ServerError) and len(cause.args) > 1 else error
    return " ".join(str(said).split())
