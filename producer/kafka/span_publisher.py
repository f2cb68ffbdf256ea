"""The publisher that knows which offsets of a topic the records of each Kafka transaction have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from producer.kafka.alternating_publisher import AlternatingPublisher
from schemas.errors import StateError
from schemas.overriding import override

if TYPE_CHECKING:
    from kafkaio.topic_admin import TopicAdmin
    from producer.kafka.key_headers import KeyText
    from rowcodec import Records
    from schemas.commit_records import Spans
    from schemas.settings import KafkaSettings


class WrittenSpans(NamedTuple):
    """How many records were written, by topic, and the offsets between which they are."""

    rows: Mapping[str, int]
    spans: Spans


class SpanPublisher(AlternatingPublisher):
    """A publisher that can be asked for the offsets of the open transaction, in the topics for which `is_spanned` returns True.

    Spans of a topic follow each other: one begins at the end of the one before it. The first begins at the end that the topic had
    before this object wrote to it. Behind `fence`, which must come first, nothing else writes to these topics.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        transactional_id: str,
        admin: TopicAdmin,
        is_spanned: Callable[[str], bool],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(kafka, transactional_id, options)
        self._admin = admin
        self._is_spanned = is_spanned
        self._ends: dict[str, dict[int, int]] = {}
        self._others: set[str] = set()
        self._written: dict[str, int] = {}

    @override
    def fence(self) -> None:
        super().fence()
        self._ends, self._others, self._written = {}, set(), {}

    def note_ends(self, topics: Iterable[str]) -> None:
        """Note the ends of these topics, before anything is written to them: for many at once that is one request."""
        new = [topic for topic in topics if topic not in self._ends]
        if new:
            self._ends |= self._admin.end_offsets(new)

    @override
    def write(self, topic: str, records: Records, key_text: KeyText | None = None) -> None:
        self._note(topic, records.count)
        super().write(topic, records, key_text)

    @override
    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        self._note(topic, 1)
        super().produce(topic, value, key, partition, headers)

    def pop_spans(self) -> WrittenSpans:
        """Return the offsets of the records since the last call; all of them must be acknowledged.

        Raises `StateError` if a topic is not the one that it was.
        """
        rows = {topic: count for topic, count in self._written.items() if count}
        self._written = {}
        ends = self._admin.end_offsets(rows) if rows else {}
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        for topic in rows:
            begins, self._ends[topic] = self._ends[topic], ends[topic]
            if any(ends[topic].get(partition, -1) < begin for partition, begin in begins.items()):
                message = f"topic {topic} ends before its last known end: it was deleted and created again"
                raise StateError(message)
            spans[topic] = {
                partition: (begins.get(partition, 0), end)
                for partition, end in sorted(ends[topic].items())
                if begins.get(partition, 0) < end
            }
        return WrittenSpans(rows, spans)

    def _note(self, topic: str, count: int) -> None:
        if topic in self._others:
            return
        if topic not in self._ends:
            if not self._is_spanned(topic):
                self._others.add(topic)
                return
            self.note_ends([topic])
        self._written[topic] = self._written.get(topic, 0) + count
