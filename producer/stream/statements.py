"""DDL statements of the log: parsed once, applied to the catalog, and given to the handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from producer.catalog.effects import changes_of, doubt_of_error, doubted, ignored
from producer.catalog.statements import parse_statement
from producer.stream.ports import LoggedStatement
from schemas.errors import SourceError, UnsupportedTypeError, is_of_one_table
from schemas.schema_changes import ChangeOrigin, StatementSession

if TYPE_CHECKING:
    from producer.binlog.events import QueryEvent
    from producer.catalog import Catalog
    from producer.catalog.effects import DdlChange
    from producer.catalog.statements import Statement
    from producer.stream.ports import StatementHandler
    from producer.stream.routes import CapturedTables
    from producer.stream.steps import Definition
    from producer.stream.temporary_tables import TemporaryTables

log = structlog.get_logger(__name__)


class Statements:
    """A dispatcher of the DDL statements of one log. Owned by the log reader's thread."""

    def __init__(
        self,
        flavour: str,
        catalog: Catalog,
        handlers: Sequence[StatementHandler],
        captured: CapturedTables,
        temporary: TemporaryTables,
        *,
        lower_case_names: bool,
    ) -> None:
        self._captured = captured
        self._temporary = temporary
        self._flavour = flavour
        self._catalog = catalog
        self._handlers = handlers
        self._lower_case_names = lower_case_names

    def apply(self, step: Definition) -> None:
        """Apply a statement inside its transaction: first to the catalog, then to each handler in turn."""
        transaction, query, batch, index, file, offset = step
        origin = ChangeOrigin(
            position=transaction.position,
            ts_us=transaction.source_ts_us(batch, index),
            file=file,
            pos=offset,
            gtid=transaction.gtid,
            server_id=int(batch.server_ids[index]),
        )
        parsed = parse_statement(
            query.sql, query.database, self._flavour, lower_case_names=self._lower_case_names, sql_mode=query.sql_mode
        )
        statement = LoggedStatement(
            parsed=parsed,
            changes=self._catalog.apply(self._changes(query, parsed)),
            origin=origin,
            written_s=int(batch.timestamps[index]),
            is_unpublished=transaction.in_kafka > 0  # of CREATE ... SELECT, which is one transaction
            or self._captured.is_marked(query.sql),
            session=StatementSession(query.database, query.sql_mode),
        )
        for handler in self._handlers:
            handler.statement(statement)

    def _changes(self, query: QueryEvent, parsed: Statement) -> tuple[DdlChange, ...]:
        """Return what the statement does: to stored tables only, and safe changes where its text is not certain."""
        self._temporary.note(query, parsed)
        changes = changes_of(parsed, self._flavour)
        changes = tuple(ignored(one) if self._temporary.holds(query, one) else one for one in changes)
        doubt = query.unclear or doubt_of_error(query.error_code) or self._temporary.doubt(query, changes)
        if not doubt:
            return changes
        safe = tuple(doubted(changes, doubt, self._captured.follows, self._exists))
        tables = sorted({f"{one.database}.{one.table}" for one in safe if self._captured.follows(one.database, one.table)})
        if tables:
            log.warning("log.statement_unclear", tables=tables, reason=doubt, advice="the tables are read again")
        return safe

    def _exists(self, database: str, table: str) -> bool:
        """Return whether the table exists now, also if it cannot be captured."""
        try:
            return self._catalog.as_it_is_now(database, table) is not None
        except (SourceError, UnsupportedTypeError) as error:
            if is_of_one_table(error):
                return True
            raise
