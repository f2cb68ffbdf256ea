"""What our clients do if a broker is silent, behind its controller, or refuses. No broker runs here."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from conformance import topic_reader
from kafkaio import committed_reader
from kafkaio.committed_reader import CommittedReader
from kafkaio.slices import Slice
from kafkaio.transactional_writer import TransactionalWriter
from schemas.errors import PublishError, RetriableSinkError, SinkError
from schemas.settings import KafkaSettings
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.sinks.kafka import kafka_client
from spark_jobs.sinks.kafka.kafka_client import KafkaClient
from tests.support.played_consumer import PlayedMessage, play
from tests.support.servers import cluster

NOWHERE = cluster("127.0.0.1:1")
END = KafkaError(KafkaError._PARTITION_EOF)


class LateAdmin:
    """An admin client whose controller has made a topic; the broker that answers learns of it at its third answer."""

    def __init__(self, *_: object) -> None:
        self.answers = ["the id", None, None]

    def forget(self, _topic: str) -> None:
        pass

    def ensure(self, *_: object) -> None:
        pass

    def end_offsets(self, topics: list[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: 1} for topic in topics}

    def topic_id(self, _topic: str) -> str | None:
        return self.answers.pop()


def test_a_silent_broker_is_one_wait_however_long_it_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log reports each wait once."""
    waits: list[str] = []

    @contextmanager
    def noted(_peer: str, _address: str, what: str, _since_s: float | None = None) -> Iterator[None]:
        waits.append(what)
        yield

    monkeypatch.setattr(committed_reader, "waiting", noted)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kafka = cluster(f"127.0.0.1:{silent.getsockname()[1]}")
        with CommittedReader(kafka, "silent", silence_s=3.0) as reader:
            reader.begin({("t", 0): 0})
            with pytest.raises(PublishError, match="Kafka sent nothing for 3"):
                list(reader.read_to({("t", 0): 1}))
    assert waits.count("records of topic t") == 1


def test_a_topic_that_the_broker_does_not_know_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "TopicAdmin", LateAdmin)
    assert KafkaClient(NOWHERE, "sink").create_topic("t", 1, {}) == "the id"


def test_a_right_to_read_commits_that_is_missing_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "TopicAdmin", LateAdmin)
    refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    play(monkeypatch, {("commits", 0): [PlayedMessage(("commits", 0), 0, failure=refusal)]})
    with pytest.raises(SinkError, match="topic commits cannot be read") as caught:
        list(KafkaClient(NOWHERE, "sink").committed_records("commits"))
    assert not isinstance(caught.value, RetriableSinkError)


def test_a_kafka_sink_is_made_without_a_client_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings are checked without a connection, and without certificates."""

    def opened(*_: object) -> None:
        raise AssertionError("a client was opened")

    monkeypatch.setattr(kafka_client, "TopicAdmin", opened)
    client = KafkaClient(NOWHERE, "sink")
    with pytest.raises(AssertionError, match="a client was opened"):
        client.topic_id("t")


def test_the_driver_reads_with_the_options_of_a_connection_and_checks_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("t", 0)
    configs = play(monkeypatch, {where: [PlayedMessage(where, 0, b"key")]})
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1", options={"linger.ms": "5", "acks": "1", "client.rack": "a"})
    assert [one.offset for one in FewRecords(kafka).read([Slice("t", 0, 0, 1)], b"key") or ()] == [0]
    (config,) = configs
    assert (config["check.crcs"], config["client.rack"]) == ("true", "a")
    assert {"linger.ms", "acks"}.isdisjoint(config)


def test_a_record_that_is_too_large_is_reported_also_if_its_limit_is_a_text_of_the_settings() -> None:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1", options={"message.max.bytes": str(2 << 20)})
    error = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert "A record may have 2 MiB here" in str(TransactionalWriter(kafka, "id")._translated(error, "produce"))


def test_a_comparison_reads_a_partition_to_its_end_while_another_one_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last offset of a partition is the end of a transaction: only the broker's report says that nothing is left."""
    full, ended = ("t", 0), ("t", 1)
    records = [PlayedMessage(full, number, b"x") for number in range(10)]
    play(monkeypatch, {full: records, ended: [PlayedMessage(ended, 0, b"y"), PlayedMessage(ended, 2, failure=END)]})
    monkeypatch.setattr(topic_reader, "BUFFERED", 4)
    messages: Any = topic_reader._Messages(CommittedReader(NOWHERE, "compare", silence_s=1.0), {full: (0, 10), ended: (0, 2)})
    assert [messages.next_of(1).value, messages.next_of(1)] == [b"y", None]
    assert [messages.next_of(0).offset for _ in range(10)] == list(range(10))
    assert messages.next_of(0) is None
