"""The state topic `<name>.state`: what must survive the process, as compacted JSON documents (`schemas.documents`).

Partition 0 has the log offset alone, partition 1 everything else (requests, tables, windows, topics). Every document is written
inside the log reader's Kafka transactions, so there is one writer and the documents never disagree with the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.slices import EARLIEST
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import StateError
from schemas.identity import SourceId
from schemas.state import PARTITIONS, State, StateRecords, partition_of, value_of

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
}


class DocumentWriter(Protocol):
    """What writes single records into an open Kafka transaction."""

    def produce(self, topic: str, value: bytes | None, key: bytes | None = None, partition: int = -1) -> None:
        """Write one record to a given partition."""


class StateTopic:
    """The state topic of one source: all documents are read at a start, changed ones written by the log reader's publisher."""

    def __init__(self, source: SourceId, topic: str, admin: TopicAdmin, kafka: KafkaSettings) -> None:
        self.topic = topic
        self._source = source
        self._admin = admin
        self._kafka = kafka

    def ensure(self) -> None:
        """Create the topic if it does not exist; `StateError` if it has another number of partitions."""
        self._admin.ensure({self.topic: PARTITIONS}, _TOPIC_CONFIG)
        count = self._admin.partitions(self.topic)
        if count != PARTITIONS:
            message = (
                f"state topic {self.topic} has {count} partitions, not {PARTITIONS}: it was made by "
                f"something else; choose another name in the settings or delete the topic"
            )
            raise StateError(message)

    def read(self) -> State:
        """Return the live documents.

        It is called after the publisher has fenced its predecessors: then no transaction on this topic is open, and a read that
        does not reach the uncommitted end has missed something: `StateError`. A Kafka that does not answer is a `PublishError`: a
        retry may help.
        """
        ends = self._admin.end_offsets([self.topic])[self.topic]
        records = StateRecords(self.topic, self._source)
        with CommittedReader(self._kafka, f"{self.topic}-reader", SOON) as reader:
            written = {(self.topic, partition): end for partition, end in ends.items() if end > 0}
            reader.begin(dict.fromkeys(written, EARLIEST))
            for record in reader.read_to(written, hidden_s=0.0):
                records.apply(record.key, record.value)
        return records.state

    def put(self, publisher: DocumentWriter, key: str, document: object | None) -> None:
        """Write one document (None deletes it) inside the publisher's open transaction."""
        value = None if document is None else value_of(document)
        publisher.produce(self.topic, value, key.encode(), partition=partition_of(key))
