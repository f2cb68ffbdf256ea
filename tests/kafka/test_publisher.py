"""The publisher alone, on a broker that takes its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from producer.kafka.chunk_sink import KafkaChunkWriter
from producer.kafka.publisher import TransactionalPublisher
from schemas.errors import PublishError
from schemas.settings import KafkaSettings, SaslSettings
from tests.support.own_broker import own_kafka
from tests.support.servers import cluster, unique_name
from tests.support.topics import read_topics

RECORDS = 3_000
LINGERING = {"linger.ms": 60_000}  # until somebody flushes


class Slow:
    """A client whose broker acknowledges a part of the records in each turn, whatever the machine does meanwhile."""

    def __init__(self, client: Producer) -> None:
        self._client, self._left, self.turns = client, len(client), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __len__(self) -> int:
        return self._left or len(self._client)

    def flush(self, _timeout: float) -> int:
        self.turns += 1
        self._left //= 16
        return self._left or self._client.flush(120)


class Silent(Slow):
    """One whose broker acknowledges nothing."""

    def flush(self, _timeout: float) -> int:
        return self._left


@pytest.mark.parametrize("call", ["flush", "commit"])
def test_a_slow_broker_is_waited_for_as_long_as_it_continues(call: str, kafka: Kafka) -> None:
    topic = unique_name("slow")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    publisher = TransactionalPublisher(cluster(kafka.bootstrap_servers), topic, LINGERING)
    publisher.fence()
    produce(publisher, topic)
    slow = publisher._producer = Slow(publisher._live())
    getattr(publisher, call)()
    assert slow.turns > 2
    publisher.commit()
    publisher.close()
    assert sum(map(len, read_topics(kafka.bootstrap_servers, [topic]).values())) == RECORDS


def test_a_broker_that_takes_nothing_is_given_up(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaio.transactional_writer.CALL_TIMEOUT_S", 0.5)
    topic = unique_name("silent")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    publisher = TransactionalPublisher(cluster(kafka.bootstrap_servers), topic, LINGERING)
    publisher.fence()
    produce(publisher, topic)
    client = publisher._live()
    publisher._producer = Silent(client)
    with pytest.raises(PublishError, match=f"{RECORDS} records are not acknowledged, and none was within"):
        publisher.flush()
    publisher._producer = client
    publisher.close()


def test_a_slot_is_taken_over_with_the_password_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot continues when a rotated password is in its file, also where the log reader needs no new connection."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_captain="it";'
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    password = tmp_path / "password"
    password.write_text("not-it", "utf-8")
    sasl = SaslSettings(mechanism="PLAIN", username="captain", password_file=str(password))
    with own_kafka(tmp_path, secure=("SASL_PLAINTEXT",), properties=properties) as broker:
        admin = TopicAdmin(cluster(broker.bootstrap_servers))
        servers = broker.listener("SASL_PLAINTEXT")
        slot = KafkaChunkWriter(admin, KafkaSettings(bootstrap_servers=servers, security_protocol="SASL_PLAINTEXT", sasl=sasl), "slot")
        with monkeypatch.context() as patch:
            patch.setattr("kafkaio.transactional_writer.CALL_TIMEOUT_S", 10.0)
            with pytest.raises(PublishError):
                slot.fence()
        password.write_text("it", "utf-8")
        slot.fence()
        slot.close()


def produce(publisher: TransactionalPublisher, topic: str) -> None:
    for number in range(RECORDS):
        publisher.produce(topic, b"%d" % number)
