"""DDL statements of the log: parsed once, applied to the catalog, and given to the handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from producer.catalog.effects import parse_ddl
from producer.stream.ports import Statement
from schemas.schema_changes import ChangeOrigin

if TYPE_CHECKING:
    from producer.catalog import Catalog
    from producer.stream.ports import StatementHandler
    from producer.stream.steps import Definition


class Statements:
    """A dispatcher of the DDL statements of one log. Owned by the log reader's thread."""

    def __init__(
        self, flavour: str, catalog: Catalog, handlers: Sequence[StatementHandler], *, lower_case_names: bool
    ) -> None:
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
        changes = parse_ddl(
            query.sql,
            query.database,
            self._flavour,
            lower_case_names=self._lower_case_names,
            sql_mode=query.sql_mode,
        )
        statement = Statement(
            sql=query.sql,
            database=query.database,
            changes=self._catalog.apply(changes),
            origin=origin,
            written_s=int(batch.timestamps[index]),
            is_in_kafka=transaction.in_kafka > 0,  # of CREATE ... SELECT, which is one transaction
        )
        for handler in self._handlers:
            handler.statement(statement)
