"""A publisher whose transactional id another one has taken over is reported so, wherever it notices."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from producer.kafka.publisher import TransactionalPublisher
from schemas.errors import FencedError, PublishError
from tests.support.servers import cluster, unique_name


@pytest.mark.parametrize("has_begun", [False, True])
def test_the_next_record_may_be_refused_before_anything_else_is(has_begun: bool, kafka: Kafka) -> None:
    """As an ordinary error it would make the first one start over, and take over in its turn."""
    topic = unique_name("taken-over")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    first, second = (TransactionalPublisher(cluster(kafka.bootstrap_servers), topic, {"linger.ms": 0}) for _ in range(2))
    first.fence()
    if has_begun:
        first.produce(topic, b"before")
        first.flush()
    second.fence()
    with pytest.raises(FencedError, match="has taken over"):
        produce_on(first, topic)
    first.close()
    second.close()


def test_a_poll_between_records_may_be_reported_first(kafka: Kafka) -> None:
    """One that waits for room in the client's queue hears of it there, once."""
    topic = unique_name("taken-over")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    first, second = (TransactionalPublisher(cluster(kafka.bootstrap_servers), topic, {"linger.ms": 0}) for _ in range(2))
    first.fence()
    second.fence()
    first.produce(topic, b"behind")  # its transaction is not begun at the broker yet: that it is fenced is fatal at once
    with pytest.raises(FencedError, match="has taken over"):
        poll_on(first)
    first.close()
    second.close()


class _PlayedClient:
    """A client whose commit the broker answers with an internal error, and its aborts with these codes, one after the other."""

    def __init__(self, *aborts: int) -> None:
        self.aborts = list(aborts)

    def __len__(self) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0

    def commit_transaction(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN, "Unknown broker error"))

    def abort_transaction(self, _timeout_s: float) -> None:
        if self.aborts:
            raise KafkaException(KafkaError(self.aborts.pop(0)))


@pytest.mark.parametrize("aborts", [[KafkaError.PRODUCER_FENCED], [KafkaError.UNKNOWN, KafkaError.INVALID_PRODUCER_EPOCH]])
def test_a_commit_beside_the_takeover_may_be_answered_with_an_internal_error(aborts: list[int]) -> None:
    """As an ordinary error it would make the first one start over, and take over in its turn."""
    writer = open_writer(_PlayedClient(*aborts))
    with pytest.raises(FencedError, match="has taken over"):
        writer.commit()


@pytest.mark.parametrize("aborts", [[], [KafkaError.INVALID_TXN_STATE]])
def test_an_internal_error_of_a_broker_is_no_takeover(aborts: list[int]) -> None:
    writer = open_writer(_PlayedClient(*aborts))
    with pytest.raises(PublishError, match="Unknown broker error"):
        writer.commit()


def open_writer(client: _PlayedClient) -> TransactionalPublisher:
    writer = TransactionalPublisher(cluster("127.0.0.1:1"), "played")
    writer._producer, writer.in_transaction = client, True  # type: ignore[assignment]
    return writer


def poll_on(publisher: TransactionalPublisher) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        publisher._poll(0.1)


def produce_on(publisher: TransactionalPublisher, topic: str) -> None:
    """Nothing but records, until one is refused."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        publisher.produce(topic, b"behind")
        time.sleep(0.01)
