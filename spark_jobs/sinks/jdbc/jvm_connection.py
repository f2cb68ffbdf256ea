"""Connections to a database by the JVM's JDBC: statements enter, rows leave; errors leave as ours.

No Python client is needed: the driver program calls `java.sql` by py4j.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from schemas.errors import RetriableSinkError, SinkError
from schemas.secrets import secret_of
from spark_jobs.spark_errors import lost_class

_REFUSED: Final = ("28", "1045", "1044")
_LOST: Final = ("08", "57P", "53300")
_CONTESTED: Final = {"40001": "conflict", "40P01": "deadlock", "55P03": "a lock was not granted in time"}
_CONTESTED_CODES: Final = {1213: "deadlock", 1205: "a lock was not granted in time", 1020: "conflict"}
_OF_A_CATALOG: Final = re.compile(r'"pg_\w+_index"')
"""PostgreSQL's `CREATE … IF NOT EXISTS` looks, and fails at the index of its catalog where two transactions make the same."""
_TWICE_CODES: Final = (1062, 1586)
_MOST_IDLE: Final = 4
_COPY_BYTES: Final = 1 << 18


class DatabaseError(SinkError):
    """A statement that the database refused. `passes` says why another attempt helps; None if it does not."""

    def __init__(self, message: str, state: str = "", code: int = 0, passes: str | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.code = code
        self.passes = passes

    def at(self, location: str) -> DatabaseError:
        """Return the same error with the table that it is about."""
        return DatabaseError(f"{location}: {self}", self.state, self.code, self.passes)

    @property
    def is_duplicate(self) -> bool:
        """Whether a unique index has the key already."""
        return self.state == "23505" or self.code in _TWICE_CODES


class DatabaseUnavailableError(RetriableSinkError):
    """The database does not answer, or a connection to it broke: the batch is repeated."""


@dataclass(frozen=True, slots=True)
class DatabaseAccess:
    """How a database is reached. `properties` are for the JDBC driver; the password is read again for each connection."""

    url: str
    driver: str
    server: str
    user: str
    password: str = field(default="", repr=False)
    password_file: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def secret(self) -> str:
        """Return the password; `SecretError` if its file cannot be read."""
        return secret_of(self.password, self.password_file, "sinks: password_file")


class Connection:
    """One connection, in the JVM. Used by one thread at a time."""

    def __init__(self, java: Any, server: str) -> None:
        self._java = java
        self._server = server

    def execute(self, sql: str, *values: str | int) -> int:
        """Run a statement with its `?` filled; return how many rows it changed."""
        with raising(self._server), self._statement(sql, values) as (statement, given):
            return int(statement.executeUpdate(*given))

    def run(self, sql: str) -> int:
        """Run a statement that no driver prepares, as DDL; return how many rows it changed, if it is one that changes rows."""
        with raising(self._server):
            statement = self._java.createStatement()
            try:
                statement.execute(sql)
                return int(statement.getUpdateCount())
            finally:
                statement.close()

    def copy(self, sql: str, file: Path) -> int:
        """Run a COPY of PostgreSQL that reads a file of the driver's machine; return how many rows came in."""
        context: Any = SparkContext._active_spark_context  # noqa: SLF001 - the file is read by the JVM
        with raising(self._server):
            stream = context._jvm.java.io.FileInputStream(str(file))  # noqa: SLF001 - as above
            try:
                return int(self._java.getCopyAPI().copyIn(sql, stream, _COPY_BYTES))
            finally:
                stream.close()

    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of a query, for few rows of texts and numbers."""
        with raising(self._server), self._statement(sql, values) as (statement, given):
            found = statement.executeQuery(*given)
            count, rows = int(found.getMetaData().getColumnCount()), []
            while found.next():
                rows.append(tuple(found.getObject(number) for number in range(1, count + 1)))
            return rows

    def value(self, sql: str, *values: str | int) -> Any:
        """Return the first value of a query; None for no row."""
        rows = self.query(sql, *values)
        return rows[0][0] if rows else None

    @contextmanager
    def _statement(self, sql: str, values: Sequence[str | int]) -> Iterator[tuple[Any, tuple[str, ...]]]:
        """Give a statement, and what it is executed with: nothing is prepared that has no `?` to fill."""
        statement = self._java.prepareStatement(sql) if values else self._java.createStatement()
        try:
            for number, value in enumerate(values, start=1):
                if isinstance(value, int):
                    statement.setLong(number, value)
                else:
                    statement.setString(number, value)
            yield statement, () if values else (sql,)
        finally:
            statement.close()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commit at the end, roll back on an error."""
        with raising(self._server):
            self._java.setAutoCommit(False)
        try:
            yield self
            with raising(self._server):
                self._java.commit()
        except BaseException:
            self._undo()
            raise
        with raising(self._server):
            self._java.setAutoCommit(True)

    def _undo(self) -> None:
        try:
            self._java.rollback()
            self._java.setAutoCommit(True)
        except Py4JJavaError:  # the connection is gone, and its transaction with it
            self.close()

    def close(self) -> None:
        """Close; the database rolls back what was not committed."""
        try:
            self._java.close()
        except Py4JJavaError:
            return


class SinkDatabase:
    """A database with its open connections. Safe for several threads. `prepare` is run on each new connection."""

    def __init__(self, access: DatabaseAccess, prepare: Callable[[Connection], None]) -> None:
        self.access = access
        self._prepare = prepare
        self._idle: list[Connection] = []
        self._lock = Lock()

    def open(self) -> Connection:
        """Open a connection that the caller closes; `DatabaseUnavailableError`, or `SinkError` where it is refused."""
        context: Any = SparkContext._active_spark_context  # noqa: SLF001 - the JVM is where the drivers are
        if context is None:
            raise SinkError("there is no Spark session, so there is no JDBC")
        access, jvm = self.access, context._jvm  # noqa: SLF001 - as above
        with raising(access.server):
            found = jvm.java.util.Properties()
            for key, value in {**access.properties, "user": access.user, "password": access.secret()}.items():
                found.setProperty(key, value)
            try:
                loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
                driver = loader.loadClass(access.driver).getDeclaredConstructor(None).newInstance(None)
            except Py4JJavaError as error:
                if lost_class(error):
                    raise
                message = f"the JDBC driver {access.driver} is not among Spark's jars: add its jar to spark.jars"
                raise SinkError(message) from error
            connection = Connection(driver.connect(access.url, found), access.server)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
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


@contextmanager
def raising(server: str) -> Iterator[None]:
    """Raise an error of JDBC as ours."""
    try:
        yield
    except Py4JJavaError as error:
        found = database_error(error, server)
        if found is None:
            raise
        raise found from error


def database_error(error: Py4JJavaError, server: str) -> SinkError | None:
    """Return what an error of JDBC, or one that it caused, is for us; None for another error."""
    cause, sql = error.java_exception, None
    while cause is not None:
        if hasattr(cause, "getSQLState") and _is_sql(cause):
            sql = cause
        following = cause.getCause()
        cause = None if following is None or following.equals(cause) else following
        if sql is not None:
            break
    if sql is None:
        return None
    state, code = str(sql.getSQLState() or ""), int(sql.getErrorCode())
    said = " ".join(str(sql.getMessage() or sql.toString()).split())
    if state.startswith(_REFUSED[0]) or code in (1045, 1044):
        return SinkError(f"the database {server} refuses the user: {said}: check user and password_file")
    if state.startswith(_LOST) or (not state and code == 0):
        return DatabaseUnavailableError(f"the database {server} does not answer: {said}")
    passes = _CONTESTED.get(state) or _CONTESTED_CODES.get(code)
    if state == "23505" and _OF_A_CATALOG.search(said):
        passes = "another transaction made it meanwhile"
    return DatabaseError(f"the database {server} says: {said}", state, code, passes)


def _is_sql(error: Any) -> bool:
    kind = error.getClass()
    while kind is not None:
        if kind.getName() == "java.sql.SQLException":
            return True
        kind = kind.getSuperclass()
    return False
