"""What `TopicAdmin` promises of topics that it has just made, on a real broker."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kafkaio.topic_admin import TopicAdmin
from tests.support.servers import cluster, unique_name

PARTITIONS = 100
ROUNDS = 10


def test_each_partition_of_a_new_topic_has_a_leader_that_serves_it(kafka: Any) -> None:
    """A record that is sent earlier may be acknowledged and lost: the broker takes a later request first."""
    admin = TopicAdmin(cluster(kafka.bootstrap_servers))
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(ROUNDS):
        topic = unique_name("new")
        admin.ensure({topic: PARTITIONS})
        client.list_topics(topic)  # or the client itself waits until it knows the leaders
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        assert [answer.result().offset for answer in client.list_offsets(asked).values()] == [0] * PARTITIONS


def test_the_partitions_of_one_topic_are_asked_of_that_topic_and_no_question_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Client:
        def __init__(self, config: dict[str, Any]) -> None:
            asked.append(config["allow.auto.create.topics"])

        def list_topics(self, topic: str | None, **_: object) -> Any:
            asked.append(topic)
            return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None, 1: None}, error=None)})

    monkeypatch.setattr("kafkaio.topic_admin.AdminClient", Client)
    assert TopicAdmin(cluster("127.0.0.1:1")).partitions("t") == 2
    assert asked == [False, "t"]


def test_a_client_goes_with_its_last_user() -> None:
    """Not with a later collection of garbage: each one has threads and connections."""
    gc.disable()
    try:
        admin = TopicAdmin(cluster("127.0.0.1:1"))
        gone = weakref.ref(admin)
        del admin
        assert gone() is None
    finally:
        gc.enable()
