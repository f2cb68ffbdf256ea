"""What `TopicAdmin` promises of topics that it has just made, on a real broker."""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kafkaio.topic_admin import TopicAdmin
from tests.support.servers import unique_name

PARTITIONS = 100
ROUNDS = 10


def test_each_partition_of_a_new_topic_has_a_leader_that_serves_it(kafka: Any) -> None:
    """A record that is sent earlier may be acknowledged and lost: the broker takes a later request first."""
    admin = TopicAdmin(kafka.bootstrap_servers, {})
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(ROUNDS):
        topic = unique_name("new")
        admin.ensure({topic: PARTITIONS})
        client.list_topics(topic)  # or the client itself waits until it knows the leaders
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        assert [answer.result().offset for answer in client.list_offsets(asked).values()] == [0] * PARTITIONS
