"""The sink of a database: targets, owner and checkpoints are in it; state, quarantine and lock are beside, in `work`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from mysqlio.server_access import ServerAccess
from schemas.errors import SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.overriding import override
from schemas.secrets import secret_of
from schemas.settings.database_url import parse_url
from spark_jobs.sinks.contract import SinkTarget
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.folder_sink import FolderSink
from spark_jobs.sinks.relational import mysql_dialect, postgres_dialect
from spark_jobs.sinks.relational.checkpoint_rows import CheckpointRows
from spark_jobs.sinks.relational.postgres_connection import PostgresConnection
from spark_jobs.sinks.relational.relational_target import Relation, RelationalTarget
from spark_jobs.sinks.relational.sink_connection import (
    DatabaseError,
    DatabaseUnavailableError,
    SinkConnection,
    SinkDatabase,
)
from spark_jobs.sinks.relational.sql_dialect import CHECKPOINT, OWNER, SERVICE, Dialect
from spark_jobs.sinks.relational.staged_rows import StagedRows
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.store.sink_layout import SinkLayout


def database_of(
    kind: str, url: str, user: str, password: str = "", password_file: str | None = None, section: str = "sinks"
) -> SinkDatabase:
    """Return the database of a sink of this type; `ConfigError` for a URL that is none. The password is read at each connection.

    `section` names the settings of the sink in errors, and the database in waits.
    """
    found = parse_url(url, kind, f"{section}.url")
    if kind == "postgresql":
        return SinkDatabase(
            found.server, lambda: PostgresConnection(found, user, secret_of(password, password_file, f"{section}.password_file"))
        )
    access = ServerAccess.of_url(found, user, password, password_file, section)
    return SinkDatabase(found.server, lambda: mysql_dialect.connect_to_service(access))


class RelationalSink(FolderSink):
    """The tables of a database. `name` distinguishes it from other sinks in this database."""

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], database: SinkDatabase, name: str) -> None:
        super().__init__(layout, query_id, DeltaQuarantine(layout.quarantine))
        self._database = database
        self._name = name
        self._opened: Relation | None = None
        self._epoch: int | None = None

    @override
    @contextmanager
    def exclusive(self, spark: SparkSession, wait_s: int) -> Iterator[None]:
        """As `Sink.exclusive` says, in `work` and in the database: two jobs with folders of their own may name one sink.

        The lock in the database lasts as long as its connection. If that breaks, the epoch is what fences.
        """
        with super().exclusive(spark, wait_s):
            relation = self._relation()
            connection = relation.database.open()
            try:
                if not relation.dialect.claim(connection, self._name, wait_s):
                    message = (
                        f"another merge job writes to the sink {self._name!r} in the database {self._database.server}; stop it "
                        "first, or give one of the sinks another name"
                    )
                    raise SinkError(message)
                self._epoch = relation.rows.raise_epoch(connection)
                relation.staged.drop_former(connection)
                yield
            finally:
                connection.close()
                relation.database.close()

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        return RelationalTarget(self._relation(), name, tables, self._query_id(), shape)

    @override
    def remove(self, name: Target) -> None:
        relation = self._relation()
        epoch, table = relation.epoch(), relation.dialect.table(TableName.parse(name.name))
        with relation.database.connection() as connection:
            with connection.transaction():
                relation.rows.require_epoch(connection, epoch)
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            relation.rows.remove(connection, name)

    @override
    def passing(self, error: Exception) -> str | None:
        if isinstance(error, DatabaseUnavailableError):
            return "the database does not answer"
        if isinstance(error, DatabaseError):
            return error.passes
        return super().passing(error)

    def _relation(self) -> Relation:
        """Return the database as it was found at the first call."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Relation:
        database = self._database
        with database.connection() as connection:
            dialect = self._dialect_of(connection)
            try:
                _make_service_tables(connection, dialect)
            except DatabaseError as error:  # another sink makes them at this moment
                if error.passes is None:
                    raise
                _make_service_tables(connection, dialect)
        database.close()  # connections of before have no current database
        rows = CheckpointRows(dialect, self._name)
        return Relation(database, dialect, rows, StagedRows(dialect, self._name, self._layout.staged), self._own_epoch)

    def _dialect_of(self, connection: SinkConnection) -> Dialect:
        if isinstance(connection, PostgresConnection):
            postgres_dialect.require_supported(connection, self._database.server)
            return postgres_dialect.PostgresDialect()
        version = str(connection.value("SELECT VERSION()"))
        return mysql_dialect.MySqlDialect(mysql_dialect.server_of(version, self._database.server))

    def _own_epoch(self) -> int:
        """Return the epoch of this opening; the first write of a sink that is not opened alone raises it."""
        relation = self._relation()
        with self._lock:
            if self._epoch is None:
                with relation.database.connection() as connection:
                    self._epoch = relation.rows.raise_epoch(connection)
            return self._epoch


def _make_service_tables(connection: SinkConnection, dialect: Dialect) -> None:
    """Make what is missing of the sink's own schema and tables."""
    schema = dialect.schema_statement(connection, SERVICE)
    if schema is not None:
        connection.execute(schema)
    if not all(dialect.exists(connection, TableName(SERVICE, table)) for table in (OWNER, CHECKPOINT)):
        for statement in dialect.service_tables:
            connection.execute(statement)
