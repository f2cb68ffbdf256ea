"""The newest documents of the state topic, and of them the offset from which the next start of the producer reads the log."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.applied.kafka_security import client_options
from schemas.documents import OffsetDocument
from schemas.errors import TidemarkError
from schemas.json_codec import decode
from schemas.state import partition_of
from tidemark.status.reckoning import log_status

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from schemas.settings import Settings
    from tidemark.status.tree import LogStatus

_LAST_RECORDS: Final = 2_000
"""How much of a partition's end is read. A producer writes a liveness record every two seconds, an offset with each commit."""
_ANSWER_S: Final = 3.0


def committed_log(settings: Settings) -> LogStatus | None:
    """Return what the newest committed offset says; None if there is none, or Kafka does not answer: its own area reports that."""
    from confluent_kafka import Consumer, KafkaException

    from kafkaio.client import client_config, opened

    topic, key = topics.state_topic(settings.name, settings.kafka.topic_delimiter), OffsetDocument.KEY
    try:
        options = {**client_options(settings.kafka), "group.id": f"{topic}-reader", "enable.auto.commit": False}
        options |= {"enable.partition.eof": True, "isolation.level": "read_committed", "allow.auto.create.topics": False}
        consumer = opened(Consumer, client_config(settings.kafka.bootstrap_servers, options))
        try:
            values = last_values(consumer, topic, partition_of(key), key, _ANSWER_S)
        finally:
            consumer.close()
        return log_status(decode(OffsetDocument, json.loads(values[-1]))) if values else None
    except (KafkaException, TidemarkError, ValueError, KeyError, TypeError):
        return None


def last_values(consumer: Consumer, topic: str, partition: int, key: str, answer_s: float) -> list[bytes]:
    """Return the values of a key among the last records of a partition, the newest last."""
    from confluent_kafka import TopicPartition

    where = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(where, timeout=answer_s)
    consumer.assign([TopicPartition(topic, partition, max(low, high - _LAST_RECORDS))])
    found: list[bytes] = []
    deadline = time.monotonic() + answer_s
    while time.monotonic() < deadline:
        message = consumer.poll(max(0.0, deadline - time.monotonic()))
        if message is None or message.error() is not None:  # the end of the partition
            break
        if message.key() == key.encode():
            value = message.value()
            found = [] if value is None else [*found, bytes(value)]
    return found
