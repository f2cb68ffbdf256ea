"""The Kafka transactions of the log reader: the only place where anything becomes durable.

A commit is at a border of the log (the one inside a transaction, of a part, has nothing but rows and the offset)::

    1. every record of whole source transactions is produced
    2. flush: all acknowledged, so the change topics' end offsets are final
    3. the coordinator is asked what to write: window registrations (their bound is this border), window
       markers, state documents, notifications, the horizon
    4. markers (one per partition of the snapshot topic, with change_offsets), documents and the offset record
       are produced, last in the same Kafka transaction
    5. commit; then the coordinator is told, and whoever waited for durability goes on

Guarantee: after a crash anywhere, reading resumes at the committed offset and what was produced after it was
never visible to `read_committed` readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from producer.codec import EventContext
from producer.stream.beats import TableBeats
from producer.stream.progress import LogProgress
from schemas import markers, topics
from schemas.errors import TidemarkError
from schemas.identity import SourceId
from schemas.position import Position

if TYPE_CHECKING:
    from threading import Event

    from producer.catalog import Catalog
    from producer.kafka.client import TopicAdmin
    from producer.kafka.publisher import TransactionalPublisher
    from producer.kafka.schema_ids import SchemaIds
    from producer.kafka.state_topic import StateTopic
    from producer.kafka.tables import TableTopics
    from producer.snapshot.coordinator import CutWork, SnapshotCoordinator
    from producer.snapshot.held import ClosedChunk
    from producer.stream.aside import AsideTables
    from producer.stream.cascades import Cascades
    from producer.stream.heartbeat import Heartbeat
    from producer.stream.offset import LogOffset
    from producer.stream.schema_changes import SchemaChanges

INTERVAL_S: Final = 0.25
URGENT_INTERVAL_S: Final = 0.01
VIEW_INTERVAL_S: Final = 1.0
RECORDS_AT_MOST: Final = 200_000
IDLE_READ_S: Final = 0.1
_URGENT_READ_S: Final = 0.02
_POSITION_FIELDS: Final = frozenset({"position", "first_bound"})
_FLOOR_REASON: Final = "the table was made, emptied, dropped, renamed or replaced"
_MARKERS: Final = {
    "heartbeat": markers.HeartbeatMarker,
    "open": markers.OpenMarker,
    "close": markers.CloseMarker,
    "complete": markers.CompleteMarker,
    "floor": markers.FloorMarker,
}


class Commits:
    """Commits what was read up to a border, with all that has to be durable together with it.

    `documents` are written to the state topic with the first commit; `has_committed` tells whether that was. Owned by the log
    reader's thread.
    """

    def __init__(
        self,
        *,
        prefix: str,
        offset: LogOffset,
        publisher: TransactionalPublisher,
        state: StateTopic,
        admin: TopicAdmin,
        coordinator: SnapshotCoordinator,
        table_topics: TableTopics,
        catalog: Catalog,
        heartbeat: Heartbeat | None = None,
        schema_changes: SchemaChanges | None = None,
        cascades: Cascades | None = None,
        documents: Mapping[str, Mapping[str, Any] | None] | None = None,
        schema_ids: SchemaIds | None = None,
        aside: AsideTables | None = None,
        is_publishable: Callable[[str, str], bool] | None = None,
        delimiter: str = topics.DELIMITER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = prefix
        self._publisher = publisher
        self._state = state
        self._admin = admin
        self._coordinator = coordinator
        self._table_topics = table_topics
        self._catalog = catalog
        self._heartbeat = heartbeat
        self._schema_changes = schema_changes
        self._cascades = cascades
        self._documents = dict(documents or {})
        self._schema_ids = schema_ids
        self._aside = aside
        self._is_publishable = is_publishable
        self._delimiter = delimiter
        self._clock = clock
        self._floors: list[tuple[str, str, Position, bool]] = []
        self._beats = TableBeats(clock)
        self._dirty = False
        self._at = clock()
        self.committed = offset
        self.has_committed = False
        self.progress = LogProgress(offset.position, alive_s=clock())

    # ---- what the next commit has to tell

    def note_transaction(self) -> None:
        """A transaction was begun: the border will move."""
        self._dirty = True

    def note_rows(self, database: str, table: str) -> None:
        """Rows of that table were published."""
        self._beats.note((database, table))

    def note_floor(self, database: str, table: str, position: Position, *, empty: bool = True) -> None:
        """No row of that table is older than the position; where it was `empty` there, all it holds later is in the log."""
        self._floors.append((database, table, position, empty))

    def write_chunk(self, closed: ClosedChunk, context: EventContext) -> None:
        """Produce the rows of a chunk among the changes, as if read at `context`."""
        for records in closed.chunk.records(closed.touched, context, time.time_ns()):
            self._publisher.write(closed.chunk.topic, records)
            self.progress.records += records.count

    # ---- when

    def read_timeout(self) -> float:
        """How long the log may be waited for, in seconds."""
        if self._dirty or self._publisher.in_transaction:
            return max(0.0, min(IDLE_READ_S, self._at + INTERVAL_S - self._clock()))
        return _URGENT_READ_S if self._coordinator.wants_commit() else IDLE_READ_S

    def is_due(self, border: Callable[[], Position]) -> bool:
        """Whether it is time to commit at that border."""
        now = self._clock()
        if self._publisher.uncommitted >= RECORDS_AT_MOST:
            return True
        since = now - self._at
        if self._aside is not None and self._aside.is_due():
            return True
        if since >= URGENT_INTERVAL_S and self._coordinator.wants_commit(border):
            return True
        if since >= INTERVAL_S and (self._dirty or self._publisher.in_transaction):
            return True
        if self._heartbeat is not None and self._heartbeat.is_due(now):
            return True
        return self._beats.is_due(border())

    # ---- commit

    def commit(self, border: LogOffset) -> None:
        """Make durable what is before `border`, and that reading goes on there."""
        position = border.position
        if self._aside is not None and self._is_publishable is not None:
            self._aside.check(self._is_publishable, position)
        if self._cascades is not None:
            self._cascades.hand_over(self._coordinator, partial(self._ensure_topics, position))
        for closed in self._coordinator.closed_chunks(position):
            self.write_chunk(closed, _context_at(border))
        if self._publisher.in_transaction:
            self._publisher.flush()
        self._table_topics.require_unchanged(self._clock())
        work = self._coordinator.before_commit(position)
        began = self._clock()
        has_beats = self._write_markers(work, position)
        self._write_documents(work)
        has_heartbeat = self._heartbeat is not None and self._heartbeat.is_due(self._clock())
        now_ms = time.time_ns() // 1_000_000
        if self._heartbeat is not None and has_heartbeat:  # told when it was due, and due again an interval after it was told
            self._heartbeat.write(self._clock(), now_ms)
        self._write_schema_ids()
        if border != self.committed or self._publisher.in_transaction:
            self._state.put(self._publisher, "offset", border.document(now_ms))
        self._publisher.commit()
        if has_beats:
            self._beats.took(self._clock() - began)
        self.committed = border
        self.has_committed = True
        self._documents.clear()
        self._floors.clear()
        self._dirty = False
        self._at = self._clock()
        self.progress.position = position
        self.progress.committed_ms = now_ms
        self.progress.cuts += 1
        self._coordinator.after_commit(position)

    def commit_part(self, offset: LogOffset) -> None:
        """Make durable what is published of the transaction behind the committed border, which stays where it is."""
        now_ms = time.time_ns() // 1_000_000
        self._publisher.flush()
        self._table_topics.require_unchanged(self._clock())
        if self._aside is not None:  # what is taken up is only so with the request to read it
            for name, document in self._aside.take_unsaved(only_new=True).items():
                self._state.put(self._publisher, name, document)
        self._write_schema_ids()
        self._state.put(self._publisher, "offset", offset.document(now_ms))
        self._publisher.commit()
        self.committed = offset
        self.progress.committed_ms = now_ms
        self.progress.cuts += 1

    def commit_view(self, border: LogOffset, stop: Event | None) -> None:
        """Publish the rows of a view that stands at `border`: behind all that is before it, before all behind it."""
        self.commit(border)
        with closing(self._coordinator.rows_of_view(border.position)) as rows:
            for topic, records in rows:
                self._publisher.write(topic, records)
                self.progress.records += records.count
                self.progress.alive_s = now = self._clock()
                if self._publisher.uncommitted >= RECORDS_AT_MOST or now - self._at >= VIEW_INTERVAL_S:
                    self.commit(border)
                if stop is not None and stop.is_set():
                    return
        self.commit(border)

    def _ensure_topics(self, position: Position, database: str, table: str) -> None:
        """Make the topics of a table, or set it aside."""
        try:
            self._table_topics.ensure(database, table)
        except TidemarkError as error:
            if self._aside is None:
                raise
            self._aside.put(database, table, error, position)

    def _write_schema_ids(self) -> None:
        """What the ids in records stand for: durable with the first record that has it."""
        if self._schema_ids is not None:
            for name, document in self._schema_ids.take_unsaved().items():
                self._state.put(self._publisher, name, document)

    def _write_documents(self, work: CutWork) -> None:
        for notification in work.notifications:
            key, value = self._coordinator.encode_notification(notification)
            self._publisher.produce(topics.notifications_topic(self._prefix, self._delimiter), value, key)
        aside = {} if self._aside is None else self._aside.take_unsaved()
        models = {} if self._schema_changes is None else self._schema_changes.take_unsaved()
        for name, document in {
            **aside,
            **models,
            **self._table_topics.take_unsaved(),
            **self._catalog.pop_unsaved(),
            **self._documents,
            **work.state,
        }.items():
            self._state.put(self._publisher, name, document)

    def _write_markers(self, work: CutWork, position: Position) -> bool:
        """Whether heartbeats of tables were among them."""
        tables = set(self._table_topics.known())
        drafts: list[tuple[str, str, dict[str, Any]]] = [
            (draft.table, draft.type, _with_positions(draft.fields)) for draft in work.markers
        ]
        drafts += [
            (f"{database}.{table}", "floor", {"position": floor, "reason": _FLOOR_REASON, "empty": empty})
            for database, table, floor, empty in self._floors
            if (database, table) in tables
        ]
        beating = tables if self._aside is None else tables - self._aside.tables
        beats = self._beats.take(beating, position, work.horizon)
        drafts += [(f"{database}.{table}", "heartbeat", {}) for database, table in beats]
        if not drafts:
            return False
        places = {".".join(place): place for place in tables}  # a database's name may hold a dot
        change = {
            name: topics.change_topic(self._prefix, *places[name], self._delimiter)
            for name in {name for name, _, _ in drafts}
        }
        ends = self._admin.end_offsets(change.values())
        for name, kind, fields in drafts:
            snapshot = topics.snapshot_topic(self._prefix, *places[name], self._delimiter)
            self._write_marker(name, snapshot, kind, fields, position, work.horizon, ends[change[name]])
        return bool(beats)

    def _write_marker(
        self,
        name: str,
        topic: str,
        kind: str,
        fields: dict[str, Any],
        position: Position,
        horizon: Position,
        change_offsets: dict[int, int],
    ) -> None:
        marker = _MARKERS[kind](
            table=name,
            source=SourceId(self._prefix),
            horizon=horizon,
            partitions=self._admin.partitions(topic),
            change_offsets=change_offsets,
            **{"position": position, **fields},
        )
        for copy in marker.for_partitions():
            self._publisher.produce(topic, copy.to_bytes(), markers.MARKER_KEY, partition=copy.partition)


def _context_at(border: LogOffset) -> EventContext:
    """The last transaction before a border, as far as rows of a snapshot tell about theirs."""
    return EventContext(
        op="c",
        position_prefix=border.position.prefix,
        first_ordinal=0,
        ts_us=0,
        server_id=0,
        gtid=None if border.last is None else border.last.gtid,
        file=border.file,
        pos=border.pos,
        thread=None,
        query=None,
        now_ns=time.time_ns(),
    )


def _with_positions(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A draft's fields, its positions (texts) parsed."""
    return {
        name: Position.parse(value) if name in _POSITION_FIELDS else value for name, value in fields.items()
    }
