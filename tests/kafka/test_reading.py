"""What tests read is all that was committed when they began, however late Kafka shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafkaio.topic_admin import TopicAdmin
from tests.support import topics
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name


@pytest.fixture
def topic(kafka) -> str:
    name = unique_name("shown")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({name: 2})
    return name


@pytest.fixture
def writing(kafka, topic) -> Iterator[RecordProducer]:
    """Within a transaction that has written to one of two partitions."""
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(120)
    for partition, value in ((0, b"1"), (1, b"2")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=partition)
        producer.flush(120)
        if partition == 0:
            producer.commit_transaction(120)
    yield producer
    producer.abort_transaction(120)


def read(kafka, topic: str) -> list[object]:
    return [record.value for record in topics.read_topic(kafka.bootstrap_servers, topic)]


def test_a_commit_that_kafka_has_not_shown_yet_is_waited_for(kafka, topic, writing, monkeypatch):
    monkeypatch.setattr(topics, "SETTLED_S", 120.0)
    committing = threading.Timer(1, writing.commit_transaction)
    committing.start()
    found = read(kafka, topic)
    committing.join()
    writing.begin_transaction()
    assert found == [1, 2]


def test_what_stays_open_is_not_read(kafka, topic, writing, monkeypatch):
    monkeypatch.setattr(topics, "SETTLED_S", 0.5)
    assert read(kafka, topic) == [1]
