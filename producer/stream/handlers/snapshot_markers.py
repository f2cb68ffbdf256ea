"""Window markers of a checkpoint: drafts enter, one marker record per partition of the snapshot topics leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from schemas import markers, topics
from schemas.identity import SourceId
from schemas.position import Position

if TYPE_CHECKING:
    from kafkaio.topic_admin import TopicAdmin
    from producer.kafka.tables import TableTopics
    from producer.snapshot.outbox import MarkerDraft
    from producer.stream.handlers.set_aside import AsideTables
    from producer.stream.handlers.table_heartbeats import HeartbeatSchedule
    from producer.stream.ports import RecordPublisher

_POSITION_FIELDS: Final = frozenset({"position", "first_bound", "low"})
_MARKERS: Final = {
    "heartbeat": markers.HeartbeatMarker,
    "open": markers.OpenMarker,
    "load": markers.LoadMarker,
    "close": markers.CloseMarker,
    "complete": markers.CompleteMarker,
    "floor": markers.FloorMarker,
}


class MarkerTopics:
    """The snapshot topics of all tables: how many partitions they have, and where their change topics end."""

    def __init__(self, prefix: str, admin: TopicAdmin, table_topics: TableTopics, delimiter: str = topics.DELIMITER) -> None:
        self.source = SourceId(prefix)
        self._prefix = prefix
        self._admin = admin
        self._table_topics = table_topics
        self._delimiter = delimiter

    def tables(self) -> dict[str, tuple[str, str]]:
        """Return every table that has topics, by its full name: a database's name may have a dot. Windows end after a release."""
        return {".".join(table): table for table in self._table_topics.known_and_released()}

    def captured(self) -> set[tuple[str, str]]:
        """Return those that are captured."""
        return set(self._table_topics.known())

    def snapshot_topic(self, table: tuple[str, str]) -> str:
        """Return the topic that has the table's markers."""
        return topics.snapshot_topic(self._prefix, *table, self._delimiter)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return self._admin.partitions(topic)

    def change_offsets(self, tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[int, int]]:
        """Return the end of the tables' change topics, per partition. Final once all records are acknowledged."""
        change = {table: topics.change_topic(self._prefix, *table, self._delimiter) for table in tables}
        ends = self._admin.end_offsets(change.values())
        return {table: ends[topic] for table, topic in change.items()}


class SnapshotMarkers:
    """A writer of markers: those of the checkpoint's participants, and heartbeats of the tables whose turn it is."""

    def __init__(
        self,
        publisher: RecordPublisher,
        marker_topics: MarkerTopics,
        schedule: HeartbeatSchedule,
        aside: AsideTables,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publisher = publisher
        self._topics = marker_topics
        self._schedule = schedule
        self._aside = aside
        self._clock = clock
        self._began: float | None = None

    def is_due(self, boundary: Callable[[], Position]) -> bool:
        """Return whether a table waits for a heartbeat."""
        return self._schedule.is_due(boundary)

    def write(self, drafts: Sequence[MarkerDraft], boundary: Position, horizon: Position) -> None:
        """Write the drafts and the heartbeats, which have end offsets: all records before them are acknowledged first."""
        began = self._clock()
        tables = self._topics.tables()
        due = self._schedule.choose(self._topics.captured() - self._aside.tables, boundary, horizon)
        fields: list[tuple[str, str, Mapping[str, Any]]] = [(one.table, one.type, one.fields) for one in drafts]
        fields += [(".".join(table), "heartbeat", {}) for table in due]
        self._began = began if due else None
        if not fields:
            return
        self._publisher.flush()
        offsets = self._topics.change_offsets({tables[name] for name, _, _ in fields})
        for name, kind, found in fields:
            topic = self._topics.snapshot_topic(tables[name])
            marker = _MARKERS[kind](
                table=name,
                source=self._topics.source,
                horizon=horizon,
                partitions=self._topics.partitions(topic),
                change_offsets=offsets[tables[name]],
                **{"position": boundary, **_with_positions(found)},
            )
            for copy in marker.for_partitions():
                self._publisher.produce(topic, copy.to_bytes(), markers.MARKER_KEY, partition=copy.partition)

    def committed(self) -> None:
        """Note how long the heartbeats of this checkpoint took, which sets their next interval."""
        if self._began is not None:
            self._schedule.note_duration(self._clock() - self._began)
            self._began = None


def _with_positions(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a draft's fields, its positions (texts) parsed."""
    return {
        name: Position.parse(value) if name in _POSITION_FIELDS else value for name, value in fields.items()
    }
