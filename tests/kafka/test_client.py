"""Clients of Kafka that cannot be made are reported with a clear error, as what they are: files and credentials that do not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from devservers import Kafka
from kafkaio.client import client_config, offsets_for_times, opened, watermarks
from kafkaio.record_writer import RecordWriter
from kafkaio.topic_admin import TopicAdmin
from producer.kafka.publisher import TransactionalPublisher
from schemas.errors import KafkaAccessError, PublishError, SecretError
from schemas.secrets import secret_of
from schemas.settings import KafkaSettings
from tests.support.lost_clients import LostClient
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name


def test_a_client_that_cannot_read_its_certificates_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("half of a cert")
    options = {"security.protocol": "SSL", "ssl.ca.location": str(ca)}
    kafka = KafkaSettings(bootstrap_servers="localhost:1", options=options)
    with pytest.raises(KafkaAccessError, match=r"ssl\.ca\.location"):
        TopicAdmin(kafka)
    with pytest.raises(KafkaAccessError, match=r"ssl\.ca\.location"):
        TransactionalPublisher(kafka, "t").fence()
    for kind in (Consumer, Producer):
        with pytest.raises(KafkaAccessError, match=r"kafka\.tls"):
            opened(kind, client_config("localhost:1", {**options, "group.id": "g"}))


def test_a_secret_s_file_that_begins_with_an_empty_line_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "password"
    for text in ("", "\nsecret\n", "\r\n"):
        file.write_text(text)
        with pytest.raises(SecretError, match=r"kafka\.sasl\.password_file: the first line of .* is empty"):
            secret_of("", str(file), "kafka.sasl.password_file")


class LaggingAdmin(TopicAdmin):
    """Asks a broker that has not heard yet of a topic that its controller made."""

    def __init__(self, bootstrap_servers: str, unheard: str, turns: int) -> None:
        super().__init__(cluster(bootstrap_servers))
        self.unheard, self.turns = unheard, turns

    def _metadata(self, topic: str | None = None) -> Any:
        metadata = super()._metadata(topic)
        self.turns -= 1
        if self.turns >= 0:
            metadata.topics.pop(self.unheard, None)
        return metadata


def test_a_topic_that_was_just_made_is_waited_for(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, other = unique_name("made"), unique_name("made")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 3})
    admin = LaggingAdmin(kafka.bootstrap_servers, topic, turns=3)
    admin.ensure({topic: 1, other: 2})
    assert (admin.partitions(topic), admin.partitions(other)) == (3, 2)
    assert admin.turns < 0
    lasting = LaggingAdmin(kafka.bootstrap_servers, topic, turns=10**6)
    wait = lasting._wait_for

    def wait_for_a_second(topics: Any) -> None:
        monkeypatch.setattr("kafkaio.topic_admin.ADMIN_TIMEOUT_S", 1.0)
        wait(topics)

    monkeypatch.setattr(lasting, "_wait_for", wait_for_a_second)
    monkeypatch.setattr("kafkaio.topic_admin.TURN_S", 120.0)  # of a broker that takes its time
    with pytest.raises(PublishError, match=f"no broker reports their partitions, those of {topic}"):
        lasting.ensure({topic: 1})


class LeaderlessConsumer(Consumer):
    """Has heard of partitions without a leader, as of a broker that was frozen: librdkafka does not ask for it before five minutes."""

    is_informed = False

    def list_topics(self, *arguments: Any, **options: Any) -> Any:
        self.is_informed = True
        return super().list_topics(*arguments, **options)

    def get_watermark_offsets(self, *arguments: Any, **options: Any) -> Any:
        self._require_leader()
        return super().get_watermark_offsets(*arguments, **options)

    def offsets_for_times(self, *arguments: Any, **options: Any) -> Any:
        self._require_leader()
        return super().offsets_for_times(*arguments, **options)

    def _require_leader(self) -> None:
        if not self.is_informed:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


def test_a_client_that_heard_of_no_leader_asks_the_brokers_for_it(kafka: Kafka) -> None:
    topic = unique_name("led")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    part, config = TopicPartition(topic, 0, 0), client_config(kafka.bootstrap_servers, {"group.id": "led"})
    for ask in (lambda one: watermarks(one, part, 5.0), lambda one: offsets_for_times(one, [part], 5.0)):
        consumer = LeaderlessConsumer(config)
        try:
            assert ask(consumer)
            assert consumer.is_informed
        finally:
            consumer.close()


def test_questions_that_failed_are_asked_by_another_client_the_next_time(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaio.topic_admin.ADMIN_TIMEOUT_S", 0.5)
    topic, admin = unique_name("lost"), TopicAdmin(cluster(kafka.bootstrap_servers))
    monkeypatch.setattr(admin, "_admin", LostClient(admin._admin))
    with pytest.raises(PublishError, match="Kafka cannot be reached"):
        admin.ensure({topic: 2})
    monkeypatch.setattr("kafkaio.topic_admin.ADMIN_TIMEOUT_S", 60.0)
    admin.ensure({topic: 2})
    assert admin.partitions_now([topic]) == {topic: 2}


def test_a_record_that_a_test_could_not_deliver_fails_the_test() -> None:
    producer = RecordProducer({"bootstrap.servers": "localhost:1", "log_level": 0, "message.timeout.ms": 100})
    producer.produce("t", b"lost")
    with pytest.raises(AssertionError, match="timed out"):
        producer.flush(60)


def test_a_single_record_that_is_not_delivered_is_an_error_once() -> None:
    writer = RecordWriter(cluster("localhost:1"), {"message.timeout.ms": 100})
    writer.produce("t", b"lost", "key", 0)
    with pytest.raises(PublishError, match="timed out"):
        writer.flush(60)
    writer.poll()
    with pytest.raises(PublishError):
        writer.has_topic("t", 0.1)
