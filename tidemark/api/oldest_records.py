"""When the oldest record from an offset on was written: one record of each partition is read, and nothing is committed."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from producer.kafka.client import client_config, opened
from schemas.applied.kafka_security import client_options

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

PartitionOffset = tuple[str, int, int]
"""Topic, partition, offset."""

_READ_S: Final = 5.0
_AT_ONCE: Final = 500
_FETCHED_BYTES: Final = 16_384
"""Of each partition and answer; a record that is larger comes alone."""


class OldestRecords:
    """A reader of single records that others can read as well. It has a connection only where it was asked for something."""

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        self._kafka = kafka
        self._group = group
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Give the connection up."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def written(self, offsets: Collection[PartitionOffset]) -> Mapping[PartitionOffset, int | None]:
        """Return when the first record from each offset on was written (Unix, ms); 0 where there is none that consumers see.

        None where Kafka did not answer in a few seconds.
        """
        found: dict[PartitionOffset, int | None] = dict.fromkeys(offsets)
        ordered, deadline = list(found), time.monotonic() + _READ_S
        for begin in range(0, len(ordered), _AT_ONCE):
            self._read(ordered[begin : begin + _AT_ONCE], found, deadline)
        return found

    def _read(self, offsets: Collection[PartitionOffset], found: dict[PartitionOffset, int | None], deadline: float) -> None:
        consumer = self._consumer = self._consumer or self._opened()
        waiting = {(topic, partition): (topic, partition, offset) for topic, partition, offset in offsets}
        try:
            consumer.assign([TopicPartition(*one) for one in offsets])
            while waiting and (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                if message is None:
                    continue
                where = message.topic() or "", message.partition() or 0
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    continue  # what it is about has no answer
                if (asked := waiting.pop(where, None)) is not None:
                    found[asked] = 0 if error is not None else _time_of(message)
            consumer.unassign()
        except KafkaException:
            self.close()

    def _opened(self) -> Consumer:
        options: dict[str, Any] = {
            **client_options(self._kafka),
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "fetch.message.max.bytes": _FETCHED_BYTES,
            "queued.min.messages": 1,
        }
        return opened(Consumer, client_config(self._kafka.bootstrap_servers, options))


def _time_of(message: Message) -> int | None:
    """Return when a record was written; None where it does not say."""
    kind, ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else ms
