"""Reads the schema-change topic `<name>` to its end: what `tidemark.api.schema_history` makes versions of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkaio.client import client_config, opened, watermarks
from schemas import topics
from schemas.applied.kafka_security import client_options
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import DecodeError, PublishError, StateError
from schemas.waiting import waiting
from tidemark.api.record_decoding import Decoder

if TYPE_CHECKING:
    from confluent_kafka import Message

    from schemas.settings import Settings

_BROKER_S: Final = 20.0
_READ_S: Final = 60.0
_WHY_NONE: Final = "records.include_schema_changes is off, or `tidemark run` was never started"


@dataclass(frozen=True, slots=True)
class SchemaTopic:
    """The values of all records that the topic has, in their order. `is_complete`: none were removed from its beginning.

    `missing` says why there is nothing to read, "" where the topic is there.
    """

    records: tuple[Mapping[str, Any], ...]
    is_complete: bool
    missing: str = ""


def read_schema_topic(settings: Settings) -> SchemaTopic:
    """Return what the topic has now, committed records only; errors as `SchemaReader.read`."""
    with SchemaReader(settings) as reader:
        return reader.read()


class SchemaReader:
    """Reads the topic once, and what has come since from then on. Use it in a `with` block, in one thread."""

    def __init__(self, settings: Settings) -> None:
        self._topic = topics.schema_change_topic(settings.name)
        self._servers = settings.kafka.bootstrap_servers
        self._decoder = Decoder(settings.format.registry, RegistryAccess.of(settings.format))
        options = {
            **client_options(settings.kafka),
            "group.id": f"{settings.name}-schemas",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
        self._consumer = opened(Consumer, client_config(self._servers, options))
        self._reached: dict[int, int] = {}
        self._found: list[tuple[int, int, Mapping[str, Any]]] = []
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._consumer.close()

    def read(self) -> SchemaTopic:
        """Return what the topic has now, committed records only.

        Raises `PublishError` where Kafka cannot be read, `StateError` where the topic cannot be read to its end in a minute,
        `DecodeError` and `RegistryError` where a record cannot be decoded.
        """
        try:
            with waiting("kafka", self._servers, f"records of {self._topic}"):
                if not self._reached and not self._assign():
                    return SchemaTopic((), is_complete=True, missing=f"there is no topic {self._topic}: {_WHY_NONE}")
                self._follow()
        except KafkaException as error:
            raise PublishError(f"topic {self._topic} cannot be read: {error.args[0].str()}") from error
        records = sorted(self._found, key=lambda one: one[:2])
        return SchemaTopic(tuple(value for _, _, value in records), self._is_complete)

    def _assign(self) -> bool:
        """Begin with the oldest records; False while there is no such topic."""
        listed = self._consumer.list_topics(self._topic, timeout=_BROKER_S).topics.get(self._topic)
        if listed is None or (listed.error is not None and listed.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
            return False
        if listed.error is not None:
            raise KafkaException(listed.error)
        partitions = [TopicPartition(self._topic, one) for one in sorted(listed.partitions)]
        first = {one.partition: watermarks(self._consumer, one, _BROKER_S)[0] for one in partitions}
        self._consumer.assign([TopicPartition(self._topic, one, begin) for one, begin in first.items()])
        self._reached = first
        self._is_complete = not any(first.values())
        return True

    def _follow(self) -> None:
        ends = {one: watermarks(self._consumer, TopicPartition(self._topic, one), _BROKER_S)[1] for one in self._reached}
        deadline = time.monotonic() + _READ_S
        while any(self._reached[one] < end for one, end in ends.items()):
            if (left := deadline - time.monotonic()) <= 0:
                raise StateError(f"topic {self._topic} could not be read to its end in {_READ_S:g} s")
            message = self._consumer.poll(left)
            if message is None:
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            value = _value(message, self._topic, self._decoder)
            if value is not None:
                self._found.append((partition, offset, value))
            is_record = message.error() is None
            self._reached[partition] = max(self._reached[partition], offset + is_record)


def _value(message: Message, topic: str, decoder: Decoder) -> Mapping[str, Any] | None:
    """Return the payload of a record; None for a record without one, and at the end of a partition."""
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return None
        raise KafkaException(error)
    try:
        record = decoder.decode(message.value())
    except DecodeError as broken:
        raise DecodeError(f"{topic} offset {message.offset()} cannot be decoded: {broken}") from broken
    payload = record["payload"] if isinstance(record, Mapping) else record
    return payload if isinstance(payload, Mapping) else None
