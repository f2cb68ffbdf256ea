"""What a DDL statement of the log sets off: definitions, schema changes, floors, snapshots, truncates.

Statements enter in the order of the log, each inside its transaction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from producer.catalog.effects import DdlChange, parse_ddl
from producer.codec import EventContext
from producer.stream.cascades import followed_at
from schemas.errors import TidemarkError, is_of_one_table
from schemas.schema_changes import ChangePlace

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.binlog.events import QueryEvent
    from producer.catalog import Catalog
    from producer.kafka.publisher import TransactionalPublisher
    from producer.kafka.tables import TableTopics
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.stream.aside import AsideTables
    from producer.stream.cascades import Cascades
    from producer.stream.commits import Commits
    from producer.stream.routes import CapturedTables, Router
    from producer.stream.schema_changes import SchemaChanges
    from producer.stream.transaction import OpenTransaction
    from schemas.position import Position

log = structlog.get_logger(__name__)

Table = tuple[str, str]  # database, name


class Definitions:
    """Carries out the DDL statements of one log. Owned by the log reader's thread."""

    def __init__(
        self,
        *,
        flavour: str,
        lower_case_names: bool,
        catalog: Catalog,
        captured: CapturedTables,
        router: Router,
        coordinator: SnapshotCoordinator,
        table_topics: TableTopics,
        publisher: TransactionalPublisher,
        commits: Commits,
        schema_changes: SchemaChanges | None = None,
        cascades: Cascades | None = None,
        publishes_truncates: bool = True,
        aside: AsideTables | None = None,
    ) -> None:
        self._aside = aside
        self._flavour = flavour
        self._lower_case_names = lower_case_names
        self._catalog = catalog
        self._captured = captured
        self._router = router
        self._coordinator = coordinator
        self._table_topics = table_topics
        self._publisher = publisher
        self._commits = commits
        self._schema_changes = schema_changes
        self._cascades = cascades
        self._publishes_truncates = publishes_truncates

    def take(
        self, query: QueryEvent, transaction: OpenTransaction, file: str, offset: int, batch: EventBatch, index: int
    ) -> None:
        """Take a statement whose event is `index` of `batch` and stands at `offset` of `file`."""
        place = ChangePlace(
            position=transaction.position,
            ts_us=transaction.source_ts_us(batch, index),
            file=file,
            pos=offset,
            gtid=transaction.gtid,
            server_id=int(batch.server_ids[index]),
        )
        if self._schema_changes is not None:
            is_in_kafka = transaction.in_kafka > 0  # of CREATE ... SELECT, which is one transaction
            self._schema_changes.take(query.sql, query.database, place, is_in_kafka=is_in_kafka)
        changes = parse_ddl(
            query.sql,
            query.database,
            self._flavour,
            lower_case_names=self._lower_case_names,
            sql_mode=query.sql_mode,
        )
        changes = self._catalog.apply(changes)
        if self._aside is not None:
            self._aside.note_ddl(changes)
        cascades = followed_at(self._cascades, int(batch.timestamps[index]))
        if cascades is not None:
            for parent in cascades.note_ddl(query.sql, changes):
                self._router.forget(*parent)
        arrived = {(c.new_database, c.new_table) for c in changes if c.kind == "rename" and c.new_table}
        for change in changes:
            for database, table in ((change.database, change.table), (change.new_database, change.new_table)):
                if table:
                    self._router.forget(database, table)  # also that of a parent which is not captured
                if table and self._captured.holds(database, table):
                    self._coordinator.on_schema_change(f"{database}.{table}", place.position)
            self._apply_effect(change, place.position, arrived)
            if self._publishes_truncates and change.kind == "truncate":
                self._truncate(change.database, change.table, place)

    def _truncate(self, database: str, table: str, place: ChangePlace) -> None:
        """Publish that a captured table was emptied. Its place is the border: no row has ordinal 0."""
        if not self._captured.holds_data(database, table):
            return
        if self._is_aside(database, table):
            return
        try:
            found = self._router.for_truncate(database, table)
        except TidemarkError as error:
            if self._aside is None:
                raise
            self._aside.put(database, table, error, place.position)
            return
        if found is None:
            log.warning("log.truncate_not_published", table=f"{database}.{table}", reason="it was dropped")
            return
        topic, codec = found
        context = EventContext(
            op="t",
            position_prefix=place.position.prefix,
            first_ordinal=0,
            ts_us=place.ts_us,
            server_id=place.server_id,
            gtid=place.gtid,
            file=place.file,
            pos=place.pos,
            thread=None,
            query=None,
            now_ns=time.time_ns(),
        )
        self._publisher.write(topic, codec.encode_truncate(context))
        self._commits.progress.records += 1

    def _apply_effect(self, change: DdlChange, position: Position, arrived: set[Table]) -> None:
        if change.kind == "drop_database":
            for database, table in self._table_topics.known():
                if database == change.database:
                    self._commits.note_floor(database, table, position)
            return
        here = (change.database, change.table)
        if change.kind == "create" and change.conditional and change.effect == "none":
            self._conditional_create(change, position)
        if change.effect == "none" or not change.table:
            return
        if change.kind == "rename":
            if self._captured.holds_data(*here) and here not in arrived:
                self._commits.note_floor(*here, position)
            target = (change.new_database, change.new_table)
            if change.effect == "snapshot" and self._captured.holds_data(*target):
                self._request_snapshot(*target, "the table was renamed into a captured name", position)
            return
        if not self._captured.holds_data(*here):
            return
        if change.effect == "floor":
            empty = not change.may_hold_rows and (change.kind != "create" or self._has_topics(*here))
            empty = empty and not self._is_aside(*here)  # what it holds later is not in the log's topics
            self._commits.note_floor(*here, position, empty=empty)
        elif change.effect == "snapshot":
            self._request_snapshot(*here, "a DDL changed stored values or the key without logging rows", position)

    def _conditional_create(self, change: DdlChange, position: Position) -> None:
        """CREATE TABLE IF NOT EXISTS: of a table that never had a topic it is a CREATE.

        Those that were there at the start have topics, and so have those of which a row came since.
        """
        here = (change.database, change.table)
        is_new = here not in self._table_topics.known() and not self._is_aside(*here)  # that may be older than the log
        if is_new and self._captured.holds_data(*here) and not change.may_hold_rows and self._has_topics(*here):
            self._commits.note_floor(*here, position)

    def _is_aside(self, database: str, table: str) -> bool:
        return self._aside is not None and (database, table) in self._aside.tables

    def _has_topics(self, database: str, table: str) -> bool:
        """Make the topics of a table that is new, for the marker that says so; its first row meets what stands in the way."""
        try:
            self._table_topics.ensure(database, table)
        except TidemarkError as error:
            if not is_of_one_table(error):
                raise
            log.warning("log.new_table_without_topics", table=f"{database}.{table}", reason=str(error))
            return False
        return True

    def _request_snapshot(self, database: str, table: str, reason: str, position: Position) -> None:
        """Have a table read again; it may have had no row in the log yet, and so no topics."""
        try:
            self._table_topics.ensure(database, table)
        except TidemarkError as error:
            if self._aside is None:
                raise
            self._aside.put(database, table, error, position)
            return
        self._coordinator.request_table(f"{database}.{table}", reason)
