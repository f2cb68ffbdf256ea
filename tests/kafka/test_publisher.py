"""The publisher alone, on a broker that takes its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.kafka.chunk_sink import KafkaChunkSink
from producer.kafka.client import TopicAdmin
from producer.kafka.publisher import TransactionalPublisher
from schemas.errors import PublishError
from tests.support.servers import unique_name
from tests.support.topics import read_topics
from tidemark.embedded import Kafka, start_kafka

RECORDS = 3_000
ONE_BY_ONE = {"batch.num.messages": 1, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}


@pytest.mark.parametrize("call", ["flush", "commit"])
def test_a_slow_broker_is_waited_for_as_long_as_it_goes_on(
    call: str, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.kafka.publisher.CALL_TIMEOUT_S", 0.2)
    topic = unique_name("slow")
    TopicAdmin(kafka.bootstrap_servers, {}).ensure({topic: 1})
    publisher = TransactionalPublisher(kafka.bootstrap_servers, topic, ONE_BY_ONE)
    fence(publisher, monkeypatch)
    produce(publisher, topic)
    assert publisher._live().flush(0.2) > 0, "all are acknowledged in one turn: this proves nothing"
    getattr(publisher, call)()
    publisher.commit()
    publisher.close()
    assert sum(map(len, read_topics(kafka.bootstrap_servers, [topic]).values())) == RECORDS


def test_a_broker_that_takes_nothing_is_given_up(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = unique_name("silent")
    TopicAdmin(kafka.bootstrap_servers, {}).ensure({topic: 1})
    publisher = TransactionalPublisher(kafka.bootstrap_servers, topic, {"linger.ms": 60_000})
    fence(publisher, monkeypatch)
    produce(publisher, topic)
    monkeypatch.setattr("producer.kafka.publisher.CALL_TIMEOUT_S", 0.0)  # none is sent in no time
    with pytest.raises(PublishError, match=f"{RECORDS} records are not acknowledged, and none was within"):
        publisher.flush()
    publisher.close()


def test_a_slot_is_taken_over_with_the_password_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot goes on when a rotated password is in its file, also where the log reader needs no new connection."""
    monkeypatch.setattr("producer.kafka.publisher.CALL_TIMEOUT_S", 10.0)
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_captain="it";'
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    password = ["not-it"]

    def options() -> dict[str, str]:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "captain", "sasl.password": password[0]}
        return {"security.protocol": "SASL_PLAINTEXT", **login}

    with start_kafka(tmp_path, secure=("SASL_PLAINTEXT",), properties=properties) as broker:
        admin = TopicAdmin(broker.bootstrap_servers, {})
        slot = KafkaChunkSink(admin, broker.listener("SASL_PLAINTEXT"), "slot", options)
        with pytest.raises(PublishError):
            slot.fence()
        password[0] = "it"
        slot.fence()
        slot.close()


def fence(publisher: TransactionalPublisher, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("producer.kafka.publisher.CALL_TIMEOUT_S", 60.0)
        publisher.fence()


def produce(publisher: TransactionalPublisher, topic: str) -> None:
    for number in range(RECORDS):
        publisher.produce(topic, b"%d" % number)
