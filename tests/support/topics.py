"""Reading topics in tests, as an ordinary `read_committed` consumer does."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

PATIENCE_S = 120.0
SETTLED_S = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `key` and `value` parsed where they are JSON, None where they are null."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: dict[str, str]


def read_topic(bootstrap_servers: str, topic: str, *, raw: bool = False) -> list[Record]:
    """Every committed record of a topic, partition by partition, in offset order."""
    return read_topics(bootstrap_servers, [topic], raw=raw)[topic]


def read_topics(bootstrap_servers: str, topics: list[str], *, raw: bool = False) -> dict[str, list[Record]]:
    """Every committed record of some topics through one consumer, each partition by partition.

    Kafka answers a commit before it has written the markers that show the transaction: where an end is not the end of
    what is written, it is waited for, up to `SETTLED_S`; what a transaction hides that stays open longer is not read.
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
    pending = {place for topic in topics for place in _partitions(consumer, topic)}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in pending])
    records: dict[str, list[Record]] = {topic: [] for topic in topics}
    hidden: set[tuple[str, int]] = set()
    deadline = time.monotonic() + SETTLED_S
    while pending:
        message = consumer.poll(0.1 if pending == hidden else PATIENCE_S)
        if message is None and pending == hidden:
            if time.monotonic() > deadline:
                break
            continue
        assert message is not None, f"{pending}: the broker did not answer"
        deadline = time.monotonic() + SETTLED_S  # from the last that was told on, however late it came
        place = message.topic(), message.partition()
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            _, written = consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if message.offset() < written:
                hidden.add(place)
            else:
                pending.discard(place)
                hidden.discard(place)
            continue
        hidden.discard(place)
        headers = {name: value.decode() for name, value in message.headers() or ()}
        records[message.topic()].append(
            Record(
                message.topic(),
                message.partition(),
                message.offset(),
                message.key() if raw else parsed(message.key()),
                message.value() if raw else parsed(message.value()),
                headers,
            )
        )
    consumer.close()
    for read in records.values():
        read.sort(key=lambda record: (record.partition, record.offset))
    return records


def _partitions(consumer: Consumer, topic: str) -> list[tuple[str, int]]:
    metadata = consumer.list_topics(topic, timeout=30).topics[topic]
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
