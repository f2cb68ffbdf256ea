"""What is read of topics for the command: schema changes as they come, and the times of newest records."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka.admin import AdminClient

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import DecodeError
from schemas.settings import Settings, from_mapping
from tests.cli.test_schema_history import ID, NAME, ORDERS, model, record, start
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name
from tidemark.api.schema_history import history_of
from tidemark.api.schema_reader import SchemaReader, read_schema_topic


def settings_of(kafka: Kafka) -> Settings:
    kafka_section = {"bootstrap_servers": kafka.bootstrap_servers}
    return from_mapping({"name": unique_name("read"), "source": {"tables": ["shop\\..*"]}, "kafka": kafka_section, "format": {"type": "json"}})


def write(kafka: Kafka, topic: str, *values: bytes, partitions: int = 1, at_ms: int | None = None, ends: bool = True) -> None:
    """One transaction, committed or aborted."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: partitions})
    producer = RecordProducer({**servers, "transactional.id": unique_name("writes")})
    producer.init_transactions(120)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, b"shop", partitions - 1, **({} if at_ms is None else {"timestamp": at_ms}))
    producer.flush(120)
    if ends:
        producer.commit_transaction(120)
    else:
        producer.abort_transaction(120)


def bodies(*records: object) -> list[bytes]:
    return [json.dumps(one).encode() for one in records]


def test_schema_changes_are_read_as_they_come_and_committed_ones_alone(kafka: Kafka) -> None:
    settings = settings_of(kafka)
    with SchemaReader(settings) as reader:
        assert "there is no topic" in reader.read().missing
        write(kafka, settings.name, *bodies(*start(ID)))
        first = reader.read()
        assert (first.missing, first.is_complete, len(first.records)) == ("", True, 2)
        assert len(reader.read().records) == 2
        added = bodies(record("ALTER TABLE orders ADD name", "ALTER", model(ID, NAME), 100))
        write(kafka, settings.name, *added, ends=False)
        assert len(reader.read().records) == 2
        write(kafka, settings.name, *added)
        found = reader.read().records
    assert history_of(ORDERS, found).version == 2
    assert read_schema_topic(settings).records == found


def test_older_records_that_are_gone_are_noticed(kafka: Kafka) -> None:
    from confluent_kafka import TopicPartition

    settings = settings_of(kafka)
    write(kafka, settings.name, *bodies(*start(ID), *start(ID, NAME)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(settings.name, 0, 2)])[TopicPartition(settings.name, 0, 2)].result(60)
    topic = read_schema_topic(settings)
    assert not topic.is_complete
    assert len(topic.records) == 2


def test_a_record_that_cannot_be_decoded_is_named(kafka: Kafka) -> None:
    settings = settings_of(kafka)
    write(kafka, settings.name, b"\0bad")
    with pytest.raises(DecodeError, match=f"{settings.name} offset 0 cannot be decoded"):
        read_schema_topic(settings)


def test_the_newest_record_of_a_topic_is_that_of_all_its_partitions(kafka: Kafka) -> None:
    name = unique_name("newest")
    begun_ms = time.time_ns() // 1_000_000
    write(kafka, f"{name}.a", b"1", partitions=3, at_ms=1_700_000_000_000)
    first_ms = time.time_ns() // 1_000_000
    write(kafka, f"{name}.a", b"2", at_ms=1_700_000_005_000)
    write(kafka, f"{name}.empty", partitions=2)
    found = TopicAdmin(cluster(kafka.bootstrap_servers)).newest_ms([f"{name}.a", f"{name}.empty", f"{name}.none"])
    assert list(found) == [f"{name}.a"]
    assert begun_ms <= first_ms <= found[f"{name}.a"] <= time.time_ns() // 1_000_000, "the end of its transaction, by the broker"
    assert TopicAdmin(cluster(kafka.bootstrap_servers)).newest_ms([]) == {}
