"""When something was last written to each topic: Kafka keeps the largest time of each partition, so no record is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kafkaio.client import client_config, opened
from kafkaio.topic_admin import TopicAdmin
from schemas.applied.kafka_security import client_options
from schemas.waiting import waiting

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

_BROKER_S: Final = 20.0
_AT_ONCE: Final = 1_000


def newest_records(kafka: KafkaSettings, topics: Collection[str]) -> Mapping[str, int]:
    """Return by topic when the last transaction with records of it ended (Unix, ms), where Kafka says it; brokers from 3.0 on do.

    That is the broker's time, or the producer's for records that were written without a transaction; the end of an aborted
    transaction counts, too. Topics without a record are left out, and those of which one partition does not answer. Raises
    `PublishError` where Kafka cannot be reached.
    """
    options = client_options(kafka)
    counts = TopicAdmin(kafka.bootstrap_servers, options).partitions_now(topics)
    wanted = [TopicPartition(topic, partition) for topic, count in counts.items() for partition in range(count)]
    admin = opened(AdminClient, client_config(kafka.bootstrap_servers, options))
    newest: dict[str, int] = {}
    unknown = set[str]()
    with waiting("kafka", kafka.bootstrap_servers, "the times of the newest records"):
        for begin in range(0, len(wanted), _AT_ONCE):
            request: dict[TopicPartition, Any] = dict.fromkeys(wanted[begin : begin + _AT_ONCE], OffsetSpec.max_timestamp())  # type: ignore[no-untyped-call]
            for where, future in admin.list_offsets(request, request_timeout=_BROKER_S).items():
                try:
                    found = future.result()
                except KafkaException:
                    unknown.add(where.topic)
                    continue
                if found.timestamp > newest.get(where.topic, 0):
                    newest[where.topic] = found.timestamp
    return {topic: at for topic, at in newest.items() if topic not in unknown}
