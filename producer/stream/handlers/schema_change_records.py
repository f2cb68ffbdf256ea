"""Schema-change records in the topic `<prefix>`: DDL statements enter, records and state documents leave.

A record is in the log reader's Kafka transaction, at the position of its statement. At the first start the tables are
published as they are, as Debezium's snapshot does. The tables' models and the character sets of databases are documents
of the state topic, so that a restart knows both at its position in the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from mysqlio.quoting import qualified, quoted
from mysqlio.server_errors import ServerError, server_code, source_error
from producer.catalog.model_records import TableModels
from producer.stream.ports import CheckpointParticipant, CheckpointWork
from schemas.errors import ACCESS_ERRORS, RetriableSourceError, SourceError
from schemas.json_codec import encode
from schemas.overriding import override
from schemas.schema_changes import (
    ChangeOrigin,
    DefaultCharsets,
    SchemaChange,
    StatementSession,
    TableModel,
    change_key,
    change_value,
)
from schemas.state import parse

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mysqlio.connection import Connection
    from producer.kafka.connect_records import RecordEncoder
    from producer.stream.ports import LoggedStatement, RecordPublisher, State
    from schemas.connect_types import Connector
    from schemas.position import Position

log = structlog.get_logger(__name__)

# No such table or database, or none that the user may see: DDL on what is not captured needs no grants.
_NOT_VISIBLE: Final = frozenset({1044, 1049, 1051, 1142, 1143, 1146, 1227})


class SchemaChanges(CheckpointParticipant):
    """A writer of the records of every statement. Owned by the log reader's thread.

    Queries to the server use `connect`, which is entered for each of them. With `captures`, which returns whether a table is
    captured, a record of a statement of the log has the header `tidemark.session`, for those who run it again. CREATE INDEX and
    DROP INDEX have records then, too.
    """

    def __init__(
        self,
        prefix: str,
        connector: Connector,
        encoder: RecordEncoder,
        publisher: RecordPublisher,
        connect: Callable[[], AbstractContextManager[Connection]],
        *,
        comments: bool = False,
        lower_case_names: bool = False,
        captures: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._captures = captures
        self._prefix = prefix
        self._comments = comments
        self._connector = connector
        self._encoder = encoder
        self._publisher = publisher
        self._server = DescribingServer(connect)
        self._models = TableModels(
            connector,
            self._server.create_statement,
            self._server.charset,
            lower_case_names=lower_case_names,
            has_indexes=captures is not None,
        )

    @override
    def restore(self, documents: State) -> None:
        models = (
            parse(TableModel, key, document)
            for key, document in documents.items()
            if key.startswith(TableModel.PREFIX)
        )
        key = DefaultCharsets.KEY
        charsets = parse(DefaultCharsets, key, documents[key]).charsets if key in documents else {}
        self._models.restore(models, charsets)

    def publish_tables(self, tables: Iterable[tuple[str, str]], origin: ChangeOrigin) -> None:
        """Write the captured tables as they are now: the records of Debezium's snapshot, in its order.

        At the first start, and where the log was lost: nothing of before counts any more.
        """
        self._models.start_over()
        names = sorted(tables)
        self._write([SchemaChange(self._server.character_set(), "")], origin)
        drops = [
            SchemaChange(f"DROP TABLE IF EXISTS `{database}`.`{table}`", database, "DROP", (database, table), None, table)
            for database, table in names
        ]
        self._write(drops, origin)
        for database in sorted({database for database, _ in names}):
            statements = (
                f"DROP DATABASE IF EXISTS `{database}`",
                self._server.create_database(database),
                f"USE `{database}`",
            )
            self._write([SchemaChange(text, database) for text in statements], origin)
            self._models.know(database)
            for name in (name for name in names if name[0] == database):
                sql = self._server.create_statement(*name)
                model = None if sql is None else self._models.define(database, sql)
                if sql is not None:
                    self._write([SchemaChange(sql, database, "CREATE", name, model, name[1])], origin)

    def statement(self, statement: LoggedStatement) -> None:
        """Write the records of a statement of the log, unless it is not published."""
        before = self._captured()
        changes = self._models.apply(statement.parsed)
        if statement.is_unpublished:
            return
        gone = before - self._captured()
        for change in changes:
            headers = None
            if self._captures is not None:
                has_one = any(database == change.database for database, _ in before)
                is_captured = has_one if change.id is None else bool(gone) or self._captures(*change.id)
                session = replace(statement.session, is_captured=is_captured)
                headers = [(StatementSession.HEADER, json.dumps(encode(session)).encode())]
            self._write([change], statement.origin, headers)

    def _captured(self) -> frozenset[tuple[str, str]]:
        """Return the captured tables that are known, if anybody asks for them."""
        captures = self._captures
        return frozenset() if captures is None else frozenset(one for one in self._models.tables if captures(*one))

    @override
    def prepare(self, _boundary: Position, _now_s: float) -> CheckpointWork:
        documents: dict[str, Any] = {
            f"{TableModel.PREFIX}{database}.{table}": None if model is None else encode(model)
            for (database, table), model in self._models.pop_unsaved().items()
        }
        charsets = self._models.pop_unsaved_charsets()
        if charsets is not None:
            documents[DefaultCharsets.KEY] = encode(DefaultCharsets(charsets))
        return CheckpointWork(documents=documents)

    def _write(
        self, changes: Iterable[SchemaChange], origin: ChangeOrigin, headers: list[tuple[str, bytes]] | None = None
    ) -> None:
        for change in changes:
            now_ms = time.time_ns() // 1_000_000
            value = change_value(
                change, origin, self._prefix, self._connector, now_ms, comments=self._comments
            )
            key, body = self._encoder.encode(change_key(change), value)
            self._publisher.produce(self._encoder.topic, body, key, partition=0, headers=headers)


class DescribingServer:
    """The server's present answers about tables and databases."""

    def __init__(self, connect: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._connect = connect

    def create_statement(self, database: str, table: str) -> str | None:
        """Return SHOW CREATE TABLE; None for a table that does not exist, is not visible to the user or cannot be opened.

        A table that cannot be opened is described nowhere: a record without its columns is better than no log.
        """
        try:
            row = self._row(f"SHOW CREATE TABLE {qualified(database, table)}", decodes=False)
        except (RetriableSourceError, *ACCESS_ERRORS):
            raise
        except SourceError as error:
            log.warning("schema_changes.not_described", table=f"{database}.{table}", reason=str(error))
            return None
        # What is no UTF-8 (a binary default on MariaDB) is as in Debezium's records: its driver replaces it.
        return None if row is None else row[1].decode("utf-8", "replace")

    def charset(self, database: str) -> str | None:
        """Return the default character set of a database, None where there is none of that name; of the server for ""."""
        if not database:
            return str((self._row("SELECT @@character_set_server") or [None])[0])
        row = self._row(
            "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = %s", database
        )
        return None if row is None else str(row[0])

    def character_set(self) -> str:
        """Return the statement that sets the server's character set."""
        row = self._row("SELECT @@character_set_server, @@collation_server") or ("", "")
        return f"SET character_set_server={row[0]}, collation_server={row[1]}"

    def create_database(self, database: str) -> str:
        """Return the statement that would make a database."""
        row = self._row(
            "SELECT default_character_set_name, default_collation_name FROM information_schema.schemata "
            "WHERE schema_name = %s",
            database,
        )
        charset, collation = ("", "") if row is None else (row[0], row[1])
        return f"CREATE DATABASE {quoted(database)} CHARSET {charset} COLLATE {collation}"

    def _row(self, sql: str, *arguments: str, decodes: bool = True) -> tuple[Any, ...] | None:
        with self._connect() as connection, connection.cursor() as cursor:
            connection.use_unicode = decodes
            try:
                cursor.execute(sql, arguments or None)
                row: Any = cursor.fetchone()
            except ServerError as error:
                if server_code(error) in _NOT_VISIBLE:
                    return None
                raise source_error(error, sql) from error
            finally:
                connection.use_unicode = True
            return None if row is None else tuple(row)
