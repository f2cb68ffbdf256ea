"""Reads the schema-change topic `<name>` to its end: what `tidemark.api.schema_history` makes versions of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer.kafka.client import client_config, opened, watermarks
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


@dataclass(frozen=True, slots=True)
class SchemaTopic:
    """The values of all records that the topic has, in their order. `is_complete`: none were removed from its beginning.

    `missing` says why there is nothing to read, "" where the topic is there.
    """

    records: tuple[Mapping[str, Any], ...]
    is_complete: bool
    missing: str = ""


def read_schema_topic(settings: Settings) -> SchemaTopic:
    """Return what the topic has now, committed records only.

    Raises `PublishError` where Kafka cannot be read, `StateError` where the topic cannot be read to its end in a minute,
    `DecodeError` and `RegistryError` where a record cannot be decoded.
    """
    topic = topics.schema_change_topic(settings.name)
    options = {
        **client_options(settings.kafka),
        "group.id": f"{settings.name}-schemas",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
    }
    consumer = opened(Consumer, client_config(settings.kafka.bootstrap_servers, options))
    try:
        with waiting("kafka", settings.kafka.bootstrap_servers, f"records of {topic}"):
            return _read(consumer, topic, Decoder(settings.format.registry, RegistryAccess.of(settings.format)))
    except KafkaException as error:
        raise PublishError(f"topic {topic} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, decoder: Decoder) -> SchemaTopic:
    listed = consumer.list_topics(topic, timeout=_BROKER_S).topics.get(topic)
    if listed is None or (listed.error is not None and listed.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
        why = f"there is no topic {topic}: records.include_schema_changes is off, or `tidemark run` was never started"
        return SchemaTopic((), is_complete=True, missing=why)
    if listed.error is not None:
        raise KafkaException(listed.error)
    bounds = {one: watermarks(consumer, TopicPartition(topic, one), _BROKER_S) for one in sorted(listed.partitions)}
    open_until = {one: end for one, (begin, end) in bounds.items() if end > begin}
    consumer.assign([TopicPartition(topic, one, bounds[one][0]) for one in open_until])
    found: list[tuple[int, int, Mapping[str, Any]]] = []
    deadline = time.monotonic() + _READ_S
    while open_until:
        if (left := deadline - time.monotonic()) <= 0:
            raise StateError(f"topic {topic} could not be read to its end in {_READ_S:g} s")
        message = consumer.poll(left)
        if message is None:
            continue
        partition, offset = message.partition() or 0, message.offset() or 0
        value = _value(message, topic, decoder)
        if value is not None:
            found.append((partition, offset, value))
            offset += 1
        if offset >= open_until.get(partition, 0):
            open_until.pop(partition, None)
    found.sort(key=lambda one: one[:2])
    is_complete = all(begin == 0 for begin, _ in bounds.values())
    return SchemaTopic(tuple(value for _, _, value in found), is_complete)


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
