"""Tables that are set aside: they cannot be published, and must not prevent that others are.

What enters: a table, the error that it raised, and where in the log. What leaves: documents of the state topic
(`aside/<database>.<table>`), written with the Kafka transaction that commits the log after that position, notifications,
and in the end a snapshot::

    published ──(an error of this table alone)──▶ set aside ──(a check finds no error)──▶ published, and read whole
                                                     │    ▲
                                                     └────┘ checked at a start, after DDL, when a snapshot of it is
                                                            requested, and every minute

Rows of a table that is set aside are counted and not published, its snapshots are refused, and it gets no heartbeats: no
sink considers it consistent at a later position. Nothing is lost: the snapshot that follows sweeps the rows deleted meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from producer.stream.ports import CheckpointParticipant, CheckpointWork
from schemas.documents import AsideDocument
from schemas.errors import TidemarkError, is_of_one_table
from schemas.identity import TableId
from schemas.json_codec import encode
from schemas.notifications import table_set_aside, table_taken_up
from schemas.overriding import override
from schemas.position import Position
from schemas.state import parse

if TYPE_CHECKING:
    from producer.snapshot.own_requests import OwnRequests
    from producer.snapshot.shared_ledger import SharedLedger
    from producer.stream.ports import Document, LoggedStatement, State
    from producer.stream.routes import Router

log = structlog.get_logger(__name__)

CHECK_EVERY_S: Final = 60.0


class AsideTables:
    """The tables of one source that are set aside. Owned by the log reader's thread.

    With `stops` none ever is: its error is raised. So is that of a table for which `may_be` is false.
    """

    def __init__(
        self,
        name: str,
        shared: SharedLedger,
        requests: OwnRequests,
        may_be: Callable[[str, str], bool],
        *,
        stops: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._name = name
        self._shared = shared
        self._requests = requests
        self._may_be = may_be
        self._stops = stops
        self._clock = clock
        self._now_ms = now_ms
        self._tables: dict[TableId, AsideDocument] = {}
        self._check_at: dict[TableId, float] = {}
        self._unsaved: dict[str, Document] = {}

    def restore(self, documents: State) -> None:
        """Take over what an earlier process set aside; each table is checked with the first checkpoint."""
        for key, document in documents.items():
            if not key.startswith(AsideDocument.PREFIX):
                continue
            one = parse(AsideDocument, key, document)
            if self._may_be(one.database, one.table):
                if key != one.key:  # as versions wrote it that knew no backticks
                    self._unsaved |= {key: None, one.key: encode(one)}
                self._put(one)
                self._check_at[one.database, one.table] = float("-inf")
            else:  # not captured any more
                self._unsaved[key] = None

    @property
    def tables(self) -> set[TableId]:
        """The tables that are set aside."""
        return set(self._tables)

    def has(self, database: str, table: str) -> bool:
        """Return whether the table is set aside."""
        return (database, table) in self._tables

    def pop_unsaved(self) -> dict[str, Document]:
        """Return the state documents that changed since the last call, and forget that they did."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def pop_new(self) -> dict[str, Document]:
        """Return the documents of tables that were set aside since the last call; those of others stay unsaved."""
        new: dict[str, Document] = {key: document for key, document in self._unsaved.items() if document is not None}
        self._unsaved = {key: None for key, document in self._unsaved.items() if document is None}
        return new

    # ---- in and out

    def put(self, database: str, table: str, error: TidemarkError, position: Position) -> None:
        """Set a table aside because of an error; raise an error that is not of this table alone."""
        if self._stops or not is_of_one_table(error) or not self._may_be(database, table):
            raise error
        self._put_for(database, table, str(error), position)

    @contextmanager
    def errors_of(self, database: str, table: str, position: Position) -> Iterator[None]:
        """Set the table aside if its error is raised inside."""
        try:
            yield
        except TidemarkError as error:
            self.put(database, table, error, position)

    def _put_for(self, database: str, table: str, reason: str, position: Position) -> None:
        known = self._tables.get((database, table))
        self._check_at[database, table] = self._clock() + CHECK_EVERY_S
        if known is not None and known.reason == reason:
            return
        since, since_ms = (position, self._now_ms()) if known is None else (known.position, known.since_ms)
        one = AsideDocument(database, table, reason, since, since_ms)
        self._unsaved[one.key] = encode(one)
        log.error("table.set_aside", table=self._name_of(one), reason=reason, position=since.text, others="continue")
        self._put(one)

    def _put(self, one: AsideDocument) -> None:
        self._tables[one.database, one.table] = one
        name = self._name_of(one)
        notification = table_set_aside(self._name, name, one.reason, one.position.text, self._now_ms())
        with self._shared.changing() as ledger:
            ledger.outbox.notify(notification)
            ledger.set_aside(name, one.reason)

    def _name_of(self, one: AsideDocument) -> str:
        return self._shared.table_name((one.database, one.table))

    def resume_table(self, database: str, table: str) -> None:
        """Publish the table again, and have it read whole; do nothing for one that is not set aside."""
        one = self._forget(database, table)
        if one is None:
            return
        name = self._name_of(one)
        log.info("table.taken_up", table=name, since=one.position.text)
        with self._shared.changing() as ledger:
            ledger.requests.aside.pop(name, None)
            ledger.outbox.notify(table_taken_up(self._name, name, self._now_ms()))
        self._requests.request_table(name, f"its changes were not published for some time: {one.reason}")

    def release(self, holds_data: Callable[[str, str], bool]) -> None:
        """Forget the tables that are not captured any more."""
        for database, table in [key for key in self._tables if not holds_data(*key)]:
            self._drop(database, table)

    def _drop(self, database: str, table: str) -> None:
        """Forget a table that was dropped or left: there is nothing to read."""
        one = self._forget(database, table)
        if one is not None:
            log.info("table.gone", table=self._name_of(one), since=one.position.text)
            with self._shared.changing() as ledger:
                ledger.requests.aside.pop(self._name_of(one), None)

    def _forget(self, database: str, table: str) -> AsideDocument | None:
        one = self._tables.pop((database, table), None)
        if one is not None:
            del self._check_at[database, table]
            self._unsaved[one.key] = None
        return one

    def statement(self, statement: LoggedStatement) -> None:
        """Note DDL of the log: it may have repaired a table, or dropped it.

        That another table is dropped repairs nothing: the topic that the two would share has its records. A dropped table
        whose name a copy gets in the same statement is still read: nothing else says that its rows were not published.
        """
        changes = statement.changes
        if not self._tables:
            return
        arrived = {change.new_name for change in changes if change.kind == "rename"}
        for change in changes:
            if change.kind == "drop_database":
                for database, table in [key for key in self._tables if key[0] == change.database]:
                    self._drop(database, table)
            elif change.kind in ("drop", "rename") and change.name not in arrived:
                self._drop(*change.name)
            for key in {*change.names} & self._tables.keys():
                self._check_at[key] = float("-inf")

    # ---- checks

    def is_check_due(self) -> bool:
        """Return whether a table is to be checked now."""
        return bool(self._check_at) and min(self._check_at.values()) <= self._clock()

    def check(self, is_publishable: Callable[[str, str], bool], position: Position) -> None:
        """Publish again the tables that can be, and set aside those that a snapshot found to be unfit.

        `is_publishable` raises why a table is not, and is false for one that is gone.
        """
        with self._shared.changed:
            unpublishable = self._shared.ledger.drain_unpublishable()
        for name, reason in unpublishable.items():
            table = self._shared.table_id(name)
            if self._may_be(*table):
                self._put_for(*table, reason, position)
        with self._shared.changed:
            requested = self._shared.ledger.asked_for_aside()
        for key, one in list(self._tables.items()):
            if self._check_at[key] > self._clock() and self._name_of(one) not in requested:
                continue
            try:
                if is_publishable(*key):
                    self.resume_table(*key)
                    continue
            except TidemarkError as error:
                self.put(*key, error, position)
            self._check_at[key] = self._clock() + CHECK_EVERY_S
            with self._shared.changed:
                self._shared.ledger.refuse_aside(self._name_of(one))


class AsideCheckpoint(CheckpointParticipant):
    """The tables set aside as a participant: they are checked at checkpoints, by the router's means."""

    def __init__(self, aside: AsideTables, router: Router) -> None:
        self._aside = aside
        self._router = router

    @override
    def restore(self, state: State) -> None:
        self._aside.restore(state)

    def is_due(self, _boundary: Callable[[], Position] | None, _now_s: float) -> bool:
        """Return whether a table is to be checked now."""
        return self._aside.is_check_due()

    @override
    def prepare(self, boundary: Position, _now_s: float) -> CheckpointWork:
        self._aside.check(self._router.is_publishable, boundary)
        return CheckpointWork(documents=self._aside.pop_unsaved())

    def prepare_part(self, _now_s: float) -> Mapping[str, Document]:
        """Return the documents of new tables set aside. That one is published again needs the request to read it."""
        return self._aside.pop_new()
