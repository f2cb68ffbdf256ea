"""The captured tables of a running producer, changed between two transactions: new patterns enter, tables come in and leave.

A change goes through two threads::

    1. the one that asks     looks at the source: refuses what a start would refuse, makes the topics of the tables that come in
    2. the log reader's      at the next transaction boundary, with everything before it committed: lists the tables once more, so
                             that one made meanwhile is not missed; replaces the patterns; releases the tables that leave, and
                             requests the snapshots of those that come in; commits all of that before reading continues

So the rows of a table that comes in are published from that boundary on, and its snapshot is requested in the Kafka transaction
that commits it. A crash in between leaves the tables as they were, and the next start finds the difference by itself. Nothing of
another table is touched: its routes, windows, heartbeats and snapshots stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from mysqlio.connection import connect
from mysqlio.information_schema import check_supported, list_tables, unsupported_tables
from mysqlio.server_access import ServerAccess
from producer.preparation import create_topics, reported_coverage, tables_without_topics
from producer.source.log_facts import require_logged
from producer.stream.routes import CapturedTables
from schemas.delay_histogram import RecentDelays
from schemas.documents import CoverageDocument
from schemas.errors import ConfigError, RetriableSourceError, TidemarkError
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.catalog.statement_reach import StatementReach
    from producer.clients import Clients
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.stream.handlers.cascades import Cascades
    from producer.stream.handlers.ddl_effects import FloorsAndSnapshots
    from producer.stream.handlers.set_aside import AsideTables
    from producer.stream.handlers.state_keepers import StartDocuments
    from producer.stream.reader_progress import LogProgress
    from producer.stream.routes import Router
    from schemas.position import Position
    from schemas.settings import Settings, SourceSettings

log = structlog.get_logger(__name__)

NEW: Final = "the table was not captured before"
RETURNED: Final = "the table was not captured for some time"


class StartEndedError(RetriableSourceError):
    """The start of the producer has ended before it came to the change: the next one takes the new settings."""


@dataclass(frozen=True, slots=True)
class Recaptured:
    """The tables that came in and that left, as `database.table`."""

    entered: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class RecaptureParts:
    """What of a start depends on which tables are captured. `cascades`: None where foreign keys are not followed.

    `inexact` returns the document of tables whose foreign keys are not followed.
    """

    coordinator: SnapshotCoordinator
    aside: AsideTables
    router: Router
    reach: StatementReach
    cascades: Cascades | None
    effects: FloorsAndSnapshots
    documents: StartDocuments
    progress: LogProgress
    inexact: Callable[[], Mapping[str, Mapping[str, Any]]]


@dataclass(slots=True)
class _Change:
    """A change on its way: `refused` are tables that come in and cannot be published; `prepared` were looked at."""

    source: SourceSettings
    adopted: Callable[[SourceSettings], None]
    coverage: Mapping[str, Any] = field(default_factory=dict)
    prepared: set[TableId] = field(default_factory=set)
    refused: dict[TableId, TidemarkError] = field(default_factory=dict)
    outcome: Recaptured | TidemarkError | None = None
    is_done: threading.Event = field(default_factory=threading.Event)

    def end(self, outcome: Recaptured | TidemarkError) -> None:
        self.outcome = outcome
        self.is_done.set()


class Recapture:
    """The changes of one start's captured tables, one at a time. `change` is for other threads, the rest is the log reader's."""

    def __init__(self, settings: Settings, clients: Clients, server: ServerFacts, parts: RecaptureParts) -> None:
        self._settings = settings
        self._clients = clients
        self._server = server
        self._parts = parts
        self._lock = threading.Lock()
        self._asked = threading.Lock()
        self._has_ended = False
        self._waiting: _Change | None = None

    def change(self, source: SourceSettings, adopted: Callable[[SourceSettings], None]) -> Recaptured:
        """Capture what `source` names; return what came in and what left, once that is durable or about to be.

        `adopted` is called by the log reader's thread at the boundary where it holds. Raises `TidemarkError` where a start would
        be refused, and changes nothing then; `StartEndedError` where the start ends before.
        """
        if not self._settings.snapshot.at_start.follows_log:
            message = f"snapshot.mode: {self._settings.snapshot.mode} reads the tables of its start and ends: no other can come in"
            raise ConfigError(message)
        change = _Change(source, adopted)
        with self._asked:
            with closing(connect(ServerAccess.of(self._settings.source))) as connection:
                change.coverage = reported_coverage(replace(self._settings, source=source), connection)
                self._prepare(change, list_tables(connection), connection)
            with self._lock:
                if self._has_ended:
                    raise _ended()
                self._waiting = change
            change.is_done.wait()
        if isinstance(change.outcome, Recaptured):
            return change.outcome
        assert change.outcome is not None
        raise change.outcome

    def close(self) -> None:
        """End a change that waits, and accept no more: the start ends."""
        with self._lock:
            self._has_ended = True
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.end(_ended())

    # ---- between two transactions

    @property
    def is_waiting(self) -> bool:
        """Whether a change waits to be carried out."""
        return self._waiting is not None

    def carry_out(self, boundary: Position) -> None:
        """Replace the captured tables at this boundary, or leave them as they are where the source does not answer."""
        with self._lock:
            change, self._waiting = self._waiting, None
        if change is None:
            return
        try:
            with self._clients.questions.session() as connection:
                tables = list_tables(connection)
                self._prepare(change, tables, connection)
        except TidemarkError as error:
            change.end(error)
            return
        except BaseException:
            change.end(_ended())
            raise
        try:
            entered = self._entering(change, tables)
            self._clients.captured.replace(change.source)
            left = self._release()
            self._enter(entered, change, boundary)
            for table in gone_while_released(self._clients, tables):
                self._parts.effects.note_gone(table, boundary)
            self._parts.documents.add({CoverageDocument.KEY: dict(change.coverage), **self._parts.inexact()})
            change.adopted(change.source)
        except BaseException:
            change.end(_ended())
            raise
        done = Recaptured(_names(entered), _names(left))
        log.info("tables.recaptured", entered=done.entered, left=done.left, position=boundary.text)
        change.end(done)

    # ---- inside

    def _entering(self, change: _Change, tables: Collection[TableId]) -> list[TableId]:
        wanted, captured = CapturedTables(change.source), self._clients.captured
        return [table for table in tables if wanted.holds_data(*table) and not captured.holds_data(*table)]

    def _prepare(self, change: _Change, tables: Collection[TableId], connection: Connection) -> None:
        """Check the tables that come in as a start does, and make their topics; those that were looked at are passed over."""
        new = [table for table in self._entering(change, tables) if table not in change.prepared]
        if not new:
            return
        require_logged(connection, self._server, {database for database, _ in new})
        if not self._settings.sets_tables_aside:
            check_supported(connection, new)
        else:
            change.refused |= unsupported_tables(connection, new)
        change.refused |= tables_without_topics(self._settings, self._clients, new, change.refused.keys())
        change.refused |= create_topics(
            self._settings, self._clients.tables.create, [table for table in new if table not in change.refused]
        )
        change.prepared |= set(new)

    def _release(self) -> list[TableId]:
        """Release the tables that are not captured any more; return those that had topics."""
        clients, parts = self._clients, self._parts
        holds_data = clients.captured.holds_data
        left = [table for table in clients.tables.known() if not holds_data(*table)]
        clients.tables.release(left)
        parts.coordinator.requests.cancel_others(holds_data)
        parts.aside.release(holds_data)
        parts.router.forget_recaptured()
        parts.reach.forget()
        if parts.cascades is not None:
            parts.cascades.forget_captured()
        for table in left:
            parts.progress.delays.forget(table)
        parts.documents.add(delays_of(left))
        return left

    def _enter(self, entered: Collection[TableId], change: _Change, boundary: Position) -> None:
        """Publish the tables from now on, and have them read as the snapshot mode says; those that come back in any case."""
        clients, parts, behaviour = self._clients, self._parts, self._settings.snapshot.at_start
        reads_new = behaviour.at_first_start or behaviour.at_every_start
        for table in entered:
            if table in change.refused:
                parts.aside.put(*table, change.refused[table], boundary)
                continue
            returns = clients.tables.is_released(*table)
            with parts.aside.errors_of(*table, boundary):
                clients.tables.ensure(*table)
                if returns or reads_new:
                    parts.coordinator.requests.request_table(".".join(table), RETURNED if returns else NEW)


def gone_while_released(clients: Clients, tables: Collection[TableId]) -> list[TableId]:
    """Return the tables that are captured again and no longer among those of the source; they are released no more.

    Nothing of them can be read, and the log does not say that they were dropped: that was while they were not captured.
    """
    exist = set(tables)
    gone = [table for table in clients.tables.released() if clients.captured.holds_data(*table) and table not in exist]
    clients.tables.ensure_all(gone)
    return gone


def delays_of(left: Collection[TableId]) -> dict[str, None]:
    """Return the deletions of what the state topic has of the delays of tables that left."""
    return {f"{RecentDelays.PREFIX}{'.'.join(table)}": None for table in left}


def _names(tables: Collection[TableId]) -> tuple[str, ...]:
    return tuple(sorted(".".join(table) for table in tables))


def _ended() -> StartEndedError:
    message = "the producer restarts; the next start takes the new tables"
    return StartEndedError(message)
