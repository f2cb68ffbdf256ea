"""Tables that are set aside: they cannot be published, and must not keep the others from being published.

Enter a table, the error that it raised, and where in the log. Leave documents of the state topic (`aside/<database>.<table>`),
written with the Kafka transaction that commits the log behind that place, notifications, and in the end a snapshot::

    published ──(an error of this table alone)──▶ set aside ──(a check finds no error)──▶ published, and read whole
                                                     │    ▲
                                                     └────┘ checked at a start, after DDL, when somebody asks for a snapshot
                                                            of it, and every minute

Rows of a table that is set aside are counted and not published, its snapshots are refused, and it gets no heartbeats: no
sink takes it for consistent at a later place. Nothing is lost: the snapshot that follows sweeps what went meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from schemas.documents import AsideDocument
from schemas.errors import TidemarkError, is_of_one_table
from schemas.json_codec import encode
from schemas.notifications import table_set_aside, table_taken_up
from schemas.position import Position
from schemas.state import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer.catalog.effects import DdlChange
    from producer.snapshot.coordinator import SnapshotCoordinator

log = structlog.get_logger(__name__)

CHECK_EVERY_S: Final = 60.0

Table = tuple[str, str]  # database, name


class AsideTables:
    """The tables of one source that are set aside. Owned by the log reader's thread.

    With `stops` none ever is: its error is raised, as that of a table which `may_be` set aside does not name.
    """

    def __init__(
        self,
        name: str,
        coordinator: SnapshotCoordinator,
        may_be: Callable[[str, str], bool],
        *,
        stops: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._name = name
        self._coordinator = coordinator
        self._may_be = may_be
        self._stops = stops
        self._clock = clock
        self._now_ms = now_ms
        self._tables: dict[Table, AsideDocument] = {}
        self._check_at: dict[Table, float] = {}
        self._unsaved: dict[str, dict[str, Any] | None] = {}

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Take over what an earlier process set aside; each table is checked with the first commit."""
        for key, document in documents.items():
            if not key.startswith(AsideDocument.PREFIX):
                continue
            one = parse(AsideDocument, key, document)
            if self._may_be(one.database, one.table):
                self._put(one)
                self._check_at[one.database, one.table] = float("-inf")
            else:  # not captured any more
                self._unsaved[key] = None

    @property
    def tables(self) -> set[Table]:
        """Those that are set aside."""
        return set(self._tables)

    def take_unsaved(self, *, only_new: bool = False) -> dict[str, dict[str, Any] | None]:
        """State documents that changed since the last call, None deletes one; with `only_new` those of tables set aside."""
        unsaved, kept = self._unsaved, dict[str, dict[str, Any] | None]()
        if only_new:
            kept = {key: document for key, document in unsaved.items() if document is None}
        self._unsaved = kept
        return {key: document for key, document in unsaved.items() if key not in kept}

    # ---- in and out

    def put(self, database: str, table: str, error: TidemarkError, position: Position) -> None:
        """Set a table aside for an error; raises it where that is not how it is dealt with."""
        if self._stops or not is_of_one_table(error) or not self._may_be(database, table):
            raise error
        self._put_for(database, table, str(error), position)

    def _put_for(self, database: str, table: str, reason: str, position: Position) -> None:
        known = self._tables.get((database, table))
        self._check_at[database, table] = self._clock() + CHECK_EVERY_S
        if known is not None and known.reason == reason:
            return
        since, since_ms = (position, self._now_ms()) if known is None else (known.position, known.since_ms)
        one = AsideDocument(database, table, reason, since, since_ms)
        self._unsaved[one.key] = encode(one)
        log.error("table.set_aside", table=one.name, reason=reason, position=since.text, others="go on")
        self._put(one)

    def _put(self, one: AsideDocument) -> None:
        self._tables[one.database, one.table] = one
        told = table_set_aside(self._name, one.name, one.reason, one.position.text, self._now_ms())
        self._coordinator.set_aside(one.name, one.reason, told)

    def take_up(self, database: str, table: str) -> None:
        """Publish the table again, and have it read whole; nothing for one that is not set aside."""
        one = self._forget(database, table)
        if one is None:
            return
        log.info("table.taken_up", table=one.name, since=one.position.text)
        self._coordinator.take_up(one.name, table_taken_up(self._name, one.name, self._now_ms()))
        self._coordinator.request_table(one.name, f"its changes were not published for some time: {one.reason}")

    def _drop(self, database: str, table: str) -> None:
        """The table is no more: there is nothing to be read."""
        one = self._forget(database, table)
        if one is not None:
            log.info("table.gone", table=one.name, since=one.position.text)
            self._coordinator.take_up(one.name)

    def _forget(self, database: str, table: str) -> AsideDocument | None:
        one = self._tables.pop((database, table), None)
        if one is not None:
            del self._check_at[database, table]
            self._unsaved[_key(database, table)] = None
        return one

    def note_ddl(self, changes: Sequence[DdlChange]) -> None:
        """DDL was met in the log: it may have mended a table, or have dropped it.

        That another table is dropped mends nothing: the topic that the two would share has its records. One whose name a copy
        takes at once is still to be read: nothing else tells that its rows were not published.
        """
        if not self._tables:
            return
        arrived = {(change.new_database, change.new_table) for change in changes if change.kind == "rename"}
        for change in changes:
            if change.kind == "drop_database":
                for database, table in [key for key in self._tables if key[0] == change.database]:
                    self._drop(database, table)
            elif change.kind in ("drop", "rename") and (change.database, change.table) not in arrived:
                self._drop(change.database, change.table)
            touched = {(change.database, change.table), (change.new_database, change.new_table)}
            for key in touched & self._tables.keys():
                self._check_at[key] = float("-inf")

    # ---- checks

    def is_due(self) -> bool:
        """Whether a table is to be checked now."""
        return bool(self._check_at) and min(self._check_at.values()) <= self._clock()

    def check(self, is_publishable: Callable[[str, str], bool], position: Position) -> None:
        """Take up what can be published again, set aside what a snapshot has found that cannot.

        `is_publishable` raises why a table is not, and is false for one that is gone.
        """
        for found, reason in self._coordinator.take_unpublishable().items():
            if self._may_be(*found):
                self._put_for(*found, reason, position)
        asked = self._coordinator.asked_for_aside() if self._tables else set()
        for key, one in list(self._tables.items()):
            if self._check_at[key] > self._clock() and one.name not in asked:
                continue
            try:
                if is_publishable(*key):
                    self.take_up(*key)
                    continue
            except TidemarkError as error:
                self.put(*key, error, position)
            self._check_at[key] = self._clock() + CHECK_EVERY_S
            self._coordinator.refuse_aside(one.name)


def _key(database: str, table: str) -> str:
    return f"{AsideDocument.PREFIX}{database}.{table}"
