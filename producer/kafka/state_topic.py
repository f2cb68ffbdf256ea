"""The state topic `<prefix>.state`: what must survive the process, as compacted JSON documents.

Partition 0 holds the log offset alone, partition 1 everything else (requests, tables, windows, topics). Every
document is written inside the log reader's Kafka transactions, so there is one writer and the documents
never disagree with the offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer.kafka.client import TopicAdmin, client_config, opened
from producer.kafka.publisher import TransactionalPublisher
from schemas.errors import PublishError, StateError
from schemas.waiting import TURN_S, WAITS, waiting

OFFSET_KEY: Final = "offset"
INEXACT_KEY: Final = "inexact"  # tables that change without a word in the log
OFFSET_PARTITION: Final = 0
DOCUMENT_PARTITION: Final = 1
_PARTITIONS: Final = 2
_READ_TIMEOUT_S: Final = 60.0
_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
}


class StateTopic:
    """Reads all documents at start, writes changed ones through the log reader's publisher."""

    def __init__(
        self, topic: str, admin: TopicAdmin, bootstrap_servers: str, options: Mapping[str, Any]
    ) -> None:
        self.topic = topic
        self._admin = admin
        self._bootstrap_servers = bootstrap_servers
        self._options = options

    def ensure(self) -> None:
        """Create the topic where it does not exist; a foreign partition count is refused."""
        self._admin.ensure({self.topic: _PARTITIONS}, _TOPIC_CONFIG)
        count = self._admin.partitions(self.topic)
        if count != _PARTITIONS:
            message = (
                f"state topic {self.topic} has {count} partitions, not {_PARTITIONS}: it was made by "
                f"something else; choose another name in the settings or delete the topic"
            )
            raise StateError(message)

    def read(self) -> dict[str, Any]:
        """Read every live document by key.

        To be called after the publisher has fenced its predecessors: then no transaction on this topic is
        open, and a read that does not reach the uncommitted end has missed something: `StateError`. A Kafka that does not
        answer is a `PublishError`: retrying may help.
        """
        ends = self._admin.end_offsets([self.topic])[self.topic]
        documents: dict[str, Any] = {}
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
                    "auto.offset.reset": "earliest",
                },
            ),
        )
        try:
            consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in ends])
            pending = {partition for partition, end in ends.items() if end > 0}
            while pending:
                message = self._next(consumer)
                if message is None:
                    text = f"state topic {self.topic} cannot be read: Kafka sent nothing for {_READ_TIMEOUT_S:g} s"
                    raise PublishError(text)
                error = message.error()
                if error is None:
                    self._apply(documents, message.key(), message.value())
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
        return documents

    def _next(self, consumer: Consumer) -> Message | None:
        """Return the next message, or None when Kafka sends nothing."""
        deadline = time.monotonic() + _READ_TIMEOUT_S
        with waiting("kafka", self._bootstrap_servers, f"records of {self.topic}"):
            while (message := consumer.poll(TURN_S)) is None and time.monotonic() < deadline and not WAITS.is_ending:
                pass
        return message

    def put(self, publisher: TransactionalPublisher, key: str, document: Mapping[str, Any] | None) -> None:
        """Write one document (None deletes it) inside the publisher's open transaction."""
        value = None if document is None else json.dumps(document, separators=(",", ":")).encode()
        partition = OFFSET_PARTITION if key == OFFSET_KEY else DOCUMENT_PARTITION
        publisher.produce(self.topic, value, key.encode(), partition=partition)

    @staticmethod
    def _apply(documents: dict[str, Any], key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        name = key.decode()
        if value is None:
            documents.pop(name, None)
        else:
            documents[name] = json.loads(value)

    def _not_reached(self, partitions: set[int], ends: Mapping[int, int]) -> str:
        wanted = ", ".join(f"[{partition}] up to {ends[partition]}" for partition in sorted(partitions))
        return (
            f"state topic {self.topic} could not be read to its end ({wanted}): an open transaction of "
            f"another writer hides the last offset; stop it or wait for its transaction to time out"
        )
