"""The effects of DDL that logs no rows: floors, snapshots, truncates and forgotten routes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.outbox import MarkerDraft
from producer.stream.ports import CheckpointParticipant, CheckpointWork
from rowcodec import EventContext
from schemas.errors import TidemarkError, is_of_one_table
from schemas.identity import TableId
from schemas.markers import MarkerType
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.catalog.effects import DdlChange
    from producer.kafka.tables import TableTopics
    from producer.snapshot.own_requests import OwnRequests
    from producer.stream.handlers.cascades import Cascades
    from producer.stream.handlers.set_aside import AsideTables
    from producer.stream.ports import LoggedStatement, RecordPublisher
    from producer.stream.reader_progress import LogProgress
    from producer.stream.routes import CapturedTables, RouteBuilder, Router
    from schemas.position import Position
    from schemas.schema_changes import ChangeOrigin

log = structlog.get_logger(__name__)

_FLOOR_REASON: Final = "the table was made, emptied, dropped, renamed or replaced"


class ForgottenRoutes:
    """A handler that makes the router look again at tables whose columns or foreign keys a statement changes."""

    def __init__(self, router: Router, cascades: Cascades | None) -> None:
        self._router = router
        self._cascades = cascades

    def statement(self, statement: LoggedStatement) -> None:
        """Forget the routes of all tables of the statement, also of parents that are not captured."""
        if self._cascades is not None:
            for parent in self._cascades.new_parents(statement):
                self._router.forget(*parent)
        for change in statement.changes:
            for table in change.names:
                self._router.forget(*table)


class FloorsAndSnapshots(CheckpointParticipant):
    """A handler of statements that change stored rows without logging them.

    A floor says that no row of the table is older; it is a marker of the next checkpoint. A table whose stored values may
    have changed is read again.
    """

    def __init__(
        self, captured: CapturedTables, requests: OwnRequests, table_topics: TableTopics, aside: AsideTables
    ) -> None:
        self._captured = captured
        self._requests = requests
        self._table_topics = table_topics
        self._aside = aside
        self._floors: list[tuple[TableId, dict[str, object]]] = []

    def statement(self, statement: LoggedStatement) -> None:
        """Note the floors of a statement, and request its snapshots."""
        arrived = {change.new_name for change in statement.changes if change.kind == "rename"}
        for change in statement.changes:
            self._apply(change, statement.origin.position, arrived)

    @override
    def prepare(self, _boundary: Position, _now_s: float) -> CheckpointWork:
        if not self._floors:
            return CheckpointWork()
        known, floors, self._floors = set(self._table_topics.known()), self._floors, []
        return CheckpointWork(
            markers=[MarkerDraft(".".join(table), MarkerType.FLOOR, facts) for table, facts in floors if table in known]
        )

    def note_gone(self, table: TableId, position: Position) -> None:
        """Note that a table which is captured again was dropped meanwhile: its rows are gone, by a statement that was not read."""
        self._note_floor(table, position, "drop", empty=False)

    def _note_floor(self, table: TableId, position: Position, cause: str, *, empty: bool = True) -> None:
        """Note that no row of the table is older than the position; an `empty` table has all later rows in the log.

        `cause` is the kind of statement: truncate, drop, create or rename.
        """
        facts = {"position": position.text, "reason": _FLOOR_REASON, "empty": empty, "cause": cause}
        self._floors.append((table, facts))

    def _apply(self, change: DdlChange, position: Position, arrived: set[TableId]) -> None:
        if change.kind == "drop_database":
            for table in self._table_topics.known():
                if table[0] == change.database:
                    self._note_floor(table, position, "drop")
            return
        here = change.name
        if change.kind == "create" and change.conditional and change.effect == "none":
            self._conditional_create(change, position)
        if change.effect == "none" or not (change.table or change.is_suspected):
            return
        if change.kind == "rename":
            self._rename(change, position, arrived)
            return
        if change.is_suspected:
            self._read_suspected(change, position)
            return
        if not self._captured.holds_data(*here):
            return
        if change.effect == "floor":
            empty = not change.may_hold_rows and (change.kind != "create" or self._has_topics(*here))
            empty = empty and not self._aside.has(*here)  # its later rows are not in the log's topics
            self._note_floor(here, position, change.kind, empty=empty)
        elif change.effect == "snapshot":
            self._request_snapshot(*here, "a DDL changed stored values or the key without logging rows", position)

    def _read_suspected(self, change: DdlChange, position: Position) -> None:
        """Have the tables read again that a text may name: of all names in it those of captured tables."""
        for database, table in self._table_topics.known():
            if database == change.database and change.table in ("", table) and self._captured.holds_data(database, table):
                self._request_snapshot(database, table, "a DDL that is not understood may have changed it", position)

    def _rename(self, change: DdlChange, position: Position, arrived: set[TableId]) -> None:
        here, target = change.name, change.new_name
        if self._captured.holds_data(*here) and here not in arrived:
            self._note_floor(here, position, "rename")
        if change.effect == "snapshot" and self._captured.holds_data(*target):
            self._request_snapshot(*target, "the table was renamed into a captured name", position)

    def _conditional_create(self, change: DdlChange, position: Position) -> None:
        """Note the floor of CREATE TABLE IF NOT EXISTS, which is a CREATE for a table that never had a topic.

        Tables that existed at the start have topics, and so have those that had a row since.
        """
        here = change.name
        is_new = here not in self._table_topics.known() and not self._aside.has(*here)  # that may be older than the log
        if is_new and self._captured.holds_data(*here) and not change.may_hold_rows and self._has_topics(*here):
            self._note_floor(here, position, "create")

    def _has_topics(self, database: str, table: str) -> bool:
        """Make the topics of a new table, for its marker; its first row reports what prevents that."""
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
        with self._aside.errors_of(database, table, position):
            self._table_topics.ensure(database, table)
            self._requests.request_table(f"{database}.{table}", reason)


class TruncateRecords:
    """A handler that publishes that a captured table was emptied."""

    def __init__(
        self,
        captured: CapturedTables,
        routes: RouteBuilder,
        aside: AsideTables,
        publisher: RecordPublisher,
        progress: LogProgress,
    ) -> None:
        self._captured = captured
        self._routes = routes
        self._aside = aside
        self._publisher = publisher
        self._progress = progress

    def statement(self, statement: LoggedStatement) -> None:
        """Write the record of each TRUNCATE, unless it is not published."""
        if statement.is_unpublished:
            return
        for change in statement.changes:
            if change.kind == "truncate":
                self._truncate(change.database, change.table, statement.origin)

    def _truncate(self, database: str, table: str, origin: ChangeOrigin) -> None:
        """Write the record. Its position is the transaction boundary: no row has ordinal 0."""
        if not self._captured.holds_data(database, table) or self._aside.has(database, table):
            return
        with self._aside.errors_of(database, table, origin.position):
            route = self._routes.for_truncate(database, table)
            if route is None:
                log.warning("log.truncate_not_published", table=f"{database}.{table}", reason="it was dropped")
                return
            topic, codec = route
            self._publisher.write(topic, codec.encode_truncate(_context(origin)))
            self._progress.records += 1


def _context(origin: ChangeOrigin) -> EventContext:
    return EventContext(
        op="t",
        position_prefix=origin.position.prefix,
        first_ordinal=0,
        ts_us=origin.ts_us,
        server_id=origin.server_id,
        gtid=origin.gtid,
        file=origin.file,
        pos=origin.pos,
        thread=None,
        query=None,
        now_ns=time.time_ns(),
    )
