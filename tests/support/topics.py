"""Reading topics in tests, as an ordinary `read_committed` consumer does."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidemark.api.record_decoding import Wire

SETTLED_S = 5.0
_KNOWN_S = 5.0
_PATIENCE_S = 120.0
_TURN_S = 0.1


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `key` and `value` parsed where they are JSON, None where they are null; `wire` are their bytes."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: dict[str, str]
    wire: Wire | None = None


def read_topic(bootstrap_servers: str, topic: str, *, raw: bool = False) -> list[Record]:
    """Every committed record of a topic, partition by partition, in offset order."""
    return read_topics(bootstrap_servers, [topic], raw=raw)[topic]


def read_topics(bootstrap_servers: str, topics: list[str], *, raw: bool = False) -> dict[str, list[Record]]:
    """Every committed record of some topics through one consumer, each partition by partition.

    Kafka answers a commit before it has written the markers that show the transaction: where an end is not the end of
    what was written when it was seen first, that is waited for, up to `SETTLED_S` in which the broker answers; what a
    transaction hides that stays open longer is not read.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,  # at the end of a topic there is nothing to wait for
        }
    )
    pending = {partition for topic in topics for partition in _partitions(consumer, topic)}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in pending])
    records: dict[str, list[Record]] = {topic: [] for topic in topics}
    hidden: set[tuple[str, int]] = set()
    ends: dict[tuple[str, int], int] = {}
    quiet, begun = 0, time.monotonic()
    while pending:
        message = consumer.poll(_TURN_S if pending == hidden else _PATIENCE_S)
        if message is None and pending == hidden:
            quiet += 1
            if quiet * _TURN_S > SETTLED_S:
                break
            with contextlib.suppress(KafkaException):  # one that stands still shows nothing: that time does not count
                consumer.get_watermark_offsets(TopicPartition(*min(hidden)), timeout=_PATIENCE_S)
            assert time.monotonic() - begun < 5 * _PATIENCE_S, f"{hidden}: the broker does not answer"
            continue
        assert message is not None, f"{pending}: the broker did not answer"
        partition = message.topic(), message.partition()
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            _, written = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            if message.offset() < ends.setdefault(partition, written):
                hidden.add(partition)
                quiet = 0
            else:
                pending.discard(partition)
                hidden.discard(partition)
            continue
        hidden.discard(partition)
        headers = {name: value.decode() for name, value in message.headers() or ()}
        records[message.topic()].append(
            Record(
                message.topic(),
                message.partition(),
                message.offset(),
                message.key() if raw else parsed(message.key()),
                message.value() if raw else parsed(message.value()),
                headers,
                Wire(message.key(), message.value(), tuple(message.headers() or ())),
            )
        )
    consumer.close()
    for read in records.values():
        read.sort(key=lambda record: (record.partition, record.offset))
    return records


def _partitions(consumer: Consumer, topic: str) -> list[tuple[str, int]]:
    deadline = time.monotonic() + _KNOWN_S
    while True:  # the broker may not know yet of a topic that its controller has just made
        metadata = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic]
        if metadata.error is None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert metadata.error is None, f"topic {topic}: {metadata.error}"
    return [(topic, partition) for partition in metadata.partitions]


def parsed(data: bytes | None) -> Any:
    """JSON where it is JSON, else the bytes."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data
