"""The state topic `<name>.state`: what must survive the process, as compacted JSON documents (`schemas.documents`).

Partition 0 has the log offset alone, partition 1 everything else (requests, tables, windows, topics). Every document is written
inside the log reader's Kafka transactions, so there is one writer and the documents never disagree with the offset.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkaio.client import client_config, opened
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import PublishError, StateError
from schemas.identity import SourceId
from schemas.state import PARTITIONS, State, StateRecords, partition_of, value_of
from schemas.waiting import TURN_S, WAITS, waiting

_READ_TIMEOUT_S: Final = 60.0
_FETCH_WAIT_MS: Final = 10
_CONNECT_S: Final = 1.0
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

    def __init__(
        self, source: SourceId, topic: str, admin: TopicAdmin, bootstrap_servers: str, options: Mapping[str, Any]
    ) -> None:
        self.topic = topic
        self._source = source
        self._admin = admin
        self._bootstrap_servers = bootstrap_servers
        self._options = options

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
        consumer = opened(
            Consumer,
            client_config(
                self._bootstrap_servers,
                {
                    **self._options,
                    "group.id": f"{self.topic}-reader",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": _FETCH_WAIT_MS,  # an end is reported by a fetch that found nothing
                    "auto.offset.reset": "earliest",
                },
            ),
        )
        try:
            with suppress(KafkaException):  # without metadata librdkafka looks for the leaders half a second later
                consumer.list_topics(self.topic, timeout=_CONNECT_S)
            consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in ends])
            pending = {partition for partition, end in ends.items() if end > 0}
            while pending:
                message = self._next(consumer)
                if message is None:
                    text = f"state topic {self.topic} cannot be read: Kafka sent nothing for {_READ_TIMEOUT_S:g} s"
                    raise PublishError(text)
                error = message.error()
                if error is None:
                    records.apply(message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if offset >= ends.get(partition, 0):
                        pending.discard(partition)
                    elif partition in pending:
                        raise StateError(self._not_reached({partition}, ends))
                else:
                    raise KafkaException(error)
        except KafkaException as failure:
            text = f"state topic {self.topic} cannot be read: {failure.args[0].str()}"
            raise PublishError(text) from failure
        finally:
            consumer.close()
        return records.state

    def _next(self, consumer: Consumer) -> Message | None:
        """Return the next message, or None when Kafka sends nothing."""
        deadline = time.monotonic() + _READ_TIMEOUT_S
        with waiting("kafka", self._bootstrap_servers, f"records of {self.topic}"):
            while (message := consumer.poll(TURN_S)) is None and time.monotonic() < deadline and not WAITS.is_ending:
                pass
        return message

    def put(self, publisher: DocumentWriter, key: str, document: object | None) -> None:
        """Write one document (None deletes it) inside the publisher's open transaction."""
        value = None if document is None else value_of(document)
        publisher.produce(self.topic, value, key.encode(), partition=partition_of(key))

    def _not_reached(self, partitions: set[int], ends: Mapping[int, int]) -> str:
        wanted = ", ".join(f"[{partition}] up to {ends[partition]}" for partition in sorted(partitions))
        return (
            f"state topic {self.topic} could not be read to its end ({wanted}): an open transaction of "
            f"another writer hides the last offset; stop it or wait for its transaction to time out"
        )
