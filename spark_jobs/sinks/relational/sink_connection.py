"""Connections of a relational sink: statements enter, rows leave; errors of the clients leave as ours.

A statement has `%s` in the place of each value; with values, a `%` of its own is written `%%`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from schemas.errors import ConfigError, RetriableSinkError, SecretError, SinkError

_MOST_IDLE: Final = 4


class DatabaseError(SinkError):
    """A statement that the database refused. `passes` says why another attempt helps; None if it does not."""

    def __init__(self, message: str, *, passes: str | None = None, is_duplicate: bool = False) -> None:
        super().__init__(message)
        self.passes = passes
        self.is_duplicate = is_duplicate
        """Whether a unique index has the key already."""

    def at(self, location: str) -> DatabaseError:
        """Return the same error with the table that it is about."""
        return DatabaseError(f"{location}: {self}", passes=self.passes, is_duplicate=self.is_duplicate)


class TlsError(DatabaseError):
    """A connection for which TLS is missing, or a certificate is not trusted."""


class DatabaseUnavailableError(RetriableSinkError):
    """The database does not answer, or a connection to it broke: the batch is repeated."""


def server_error(
    server: str,
    said: str,
    *,
    refused: bool = False,
    untrusted: bool = False,
    lost: bool = False,
    passes: str | None = None,
    is_duplicate: bool = False,
) -> SinkError:
    """Return the error of a server that refuses the user, with which TLS fails, that is lost, or that refuses a statement."""
    if refused:
        return SinkError(f"the database {server} refuses the user: {said}: check user and password_file")
    if untrusted:
        return TlsError(f"the database {server} says: {said}")
    if lost:
        return DatabaseUnavailableError(f"the database {server} does not answer: {said}")
    return DatabaseError(f"the database {server} says: {said}", passes=passes, is_duplicate=is_duplicate)


class SinkConnection(ABC):
    """One connection. Used by one thread at a time. Its methods raise `DatabaseError` and `DatabaseUnavailableError`."""

    @abstractmethod
    def execute(self, sql: str, *values: str | int) -> int:
        """Run a statement; return how many rows it changed."""

    @abstractmethod
    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of a query, for few rows of texts and numbers."""

    @abstractmethod
    def fill(self, table: str, file: Path) -> int:
        """Insert the rows of a file, whose lines are as `Dialect.line` has them; return how many came in."""

    @abstractmethod
    def close(self) -> None:
        """Close; the database rolls back what was not committed."""

    def value(self, sql: str, *values: str | int) -> Any:
        """Return the first value of a query; None for no row."""
        rows = self.query(sql, *values)
        return rows[0][0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end, roll back on an error."""
        self.execute("BEGIN")
        try:
            yield self
            self.execute("COMMIT")
        except BaseException:
            try:
                self.execute("ROLLBACK")
            except SinkError:  # the connection is gone, and its transaction with it
                self.close()
            raise


class SinkDatabase:
    """A database with its open connections, which `connect` makes. Safe for several threads. `server` names it in messages."""

    def __init__(self, server: str, connect: Callable[[], SinkConnection]) -> None:
        self.server = server
        self._connect = connect
        self._has_connected = False
        self._idle: list[SinkConnection] = []
        self._lock = Lock()

    def open(self) -> SinkConnection:
        """Return a new connection, which the caller closes; `DatabaseUnavailableError`, or `SinkError` if it is refused.

        If TLS worked before, a certificate that has expired, or is being replaced, is a database that does not answer.
        """
        try:
            connection = self._connect()
        except (TlsError, ConfigError) as error:
            if not self._has_connected or isinstance(error, SecretError):
                raise
            raise DatabaseUnavailableError(str(error)) from error
        self._has_connected = True
        return connection

    @contextmanager
    def connection(self) -> Iterator[SinkConnection]:
        """Use a connection that others use before and after. On any error it is closed, as are the idle ones."""
        with self._lock:
            one = self._idle.pop() if self._idle else None
        one = one or self.open()
        try:
            yield one
        except BaseException:
            one.close()
            self.close()
            raise
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(one)
                return
        one.close()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()
