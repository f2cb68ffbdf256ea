"""What the merge job knows of the producer's documents, read by the driver itself, and by Spark where that is not possible."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from devservers import Kafka
from kafkaio import committed_reader
from kafkaio.topic_admin import TopicAdmin
from schemas.documents import OffsetDocument, SchemaIdDocument, TopicsDocument
from schemas.errors import EndingError
from schemas.settings import Settings
from schemas.state import DOCUMENT_PARTITION, OFFSET_PARTITION, PARTITIONS, value_of
from schemas.topics import state_topic
from schemas.waiting import Waits
from spark_jobs.kafka import few_records
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.producer_schemas import ProducerSchemas
from spark_jobs.kafka.state_reader import schemas_by_subject, tables_with_topics
from spark_jobs.merge.table_set_aside import is_of_one_table
from tests.merge.conftest import SinkFactory
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name

TABLES = {("shop", "orders"), ("shop", "order_items")}
SHORT = '"string"'


@pytest.fixture
def settings(kafka: Kafka, merge_settings: SinkFactory) -> Settings:
    """A producer whose state topic has documents of two tables, one of a third one that was removed, and two schemas."""
    found = merge_settings()
    topic = state_topic(found.name)
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: PARTITIONS})
    documents = [TopicsDocument(*table, 2) for table in (*sorted(TABLES), ("shop", "gone"))]
    schemas = [SchemaIdDocument("a-value", 7, SHORT), SchemaIdDocument("a-value", 9, SHORT)]
    with writer(kafka) as producer:
        for one in (*documents, *schemas):
            producer.produce(topic, value_of(one), one.key, DOCUMENT_PARTITION)
        producer.produce(topic, None, documents[-1].key, DOCUMENT_PARTITION)
        producer.produce(topic, b"{}", OffsetDocument.KEY, OFFSET_PARTITION)
    until = time.monotonic() + 30
    while not FewRecords(found.kafka).read_partition(topic, DOCUMENT_PARTITION, b""):  # a commit can be read some time after it
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


class writer:  # noqa: N801 - a context manager
    """A producer in a transaction, which is committed at the end: soon after that its records can be read."""

    def __init__(self, kafka: Kafka) -> None:
        self._settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique_name("writer")}

    def __enter__(self) -> RecordProducer:
        self._producer = RecordProducer(self._settings)
        self._producer.init_transactions(60)
        self._producer.begin_transaction()
        return self._producer

    def __exit__(self, *_: object) -> None:
        self._producer.commit_transaction(60)


class NoSpark:
    """In place of a session, where the driver is to read by itself."""

    def __getattr__(self, name: str) -> object:
        message = f"Spark was asked for {name}"
        raise AssertionError(message)


NO_SPARK = cast("SparkSession", NoSpark())


@pytest.mark.parametrize("by_spark", [False, True])
def test_the_driver_and_spark_find_the_same_tables_and_schemas(settings: Settings, spark: SparkSession, *, by_spark: bool) -> None:
    few = FewRecords(settings.kafka)
    if by_spark:
        few._pauses["documents"].until_s = math.inf
    session = spark if by_spark else NO_SPARK
    with capture_logs() as logged:
        assert tables_with_topics(session, settings, few) == TABLES
        found = schemas_by_subject(session, settings, few)
    assert {subject: [one.id for one in schemas] for subject, schemas in found.items()} == {"a-value": [7, 9]}
    assert logged == []


def test_what_an_open_transaction_hides_is_waited_for_but_not_for_long(
    kafka: Kafka, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, late = state_topic(settings.name), TopicsDocument("shop", "late", 2)
    few = FewRecords(settings.kafka)
    assert tables_with_topics(NO_SPARK, settings, few) == TABLES
    found: list[set[tuple[str, str]]] = []
    with writer(kafka) as producer:
        producer.produce(topic, value_of(late), late.key, DOCUMENT_PARTITION)
        producer.flush(60)
        began = time.monotonic()
        with capture_logs() as logged:
            assert tables_with_topics(NO_SPARK, settings, few) == TABLES
        assert (1.9 < time.monotonic() - began < 8, logged) == (True, [])
        monkeypatch.setattr(few_records, "_OPEN_S", 60.0)
        reading = threading.Thread(target=lambda: found.append(tables_with_topics(NO_SPARK, settings, few)))
        reading.start()
        time.sleep(0.3)
    reading.join(60)
    assert found == [{*TABLES, ("shop", "late")}]


def test_what_is_rolled_back_meanwhile_ends_the_wait(
    kafka: Kafka, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, late = state_topic(settings.name), TopicsDocument("shop", "late", 2)
    few = FewRecords(settings.kafka)
    producer = writer(kafka).__enter__()
    producer.produce(topic, value_of(late), late.key, DOCUMENT_PARTITION)
    producer.flush(60)
    monkeypatch.setattr(few_records, "_OPEN_S", 60.0)
    began = time.monotonic()
    threading.Timer(0.2, producer.abort_transaction, [60]).start()
    assert tables_with_topics(NO_SPARK, settings, few) == TABLES
    assert 0.1 < time.monotonic() - began < 30


def test_a_partition_without_records_and_one_that_is_not_there(kafka: Kafka, settings: Settings) -> None:
    topic = unique_name("empty")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    few = FewRecords(settings.kafka)
    assert few.read_partition(topic, 0, b"") == []
    with capture_logs() as logged:
        assert few.read_partition(topic, 1, b"") is None
        assert few.read_partition(topic, 0, b"") is None, "Spark reads for a while"
    assert [(one["event"], one["what"]) for one in logged] == [("merge.records_read_by_spark", "documents")]
    assert logged[0]["reason"] == f"topic {topic} has no partition 1"
    began = time.monotonic()
    with capture_logs() as logged:
        assert FewRecords(settings.kafka).read_partition("not-there", 1, b"") is None
    assert (time.monotonic() - began < 8, "not-there" in logged[0]["reason"]) == (True, True)
    assert few._pauses["markers"].until_s == 0, "markers are read as before"


def test_records_of_other_keys_take_no_memory_and_those_that_were_removed_are_passed_over(
    kafka: Kafka, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = state_topic(settings.name)
    with writer(kafka) as producer:
        for number in range(3_000):
            producer.produce(topic, b"x" * 100, f"sign/{number}", DOCUMENT_PARTITION)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(topic, DOCUMENT_PARTITION, 1)])[TopicPartition(topic, DOCUMENT_PARTITION, 1)].result(60)
    monkeypatch.setattr(few_records, "_MOST_BYTES", 10_000)
    few = FewRecords(settings.kafka)
    assert tables_with_topics(NO_SPARK, settings, few) == {("shop", "orders")}, "the first one of all documents is gone"
    assert few.read_partition(topic, DOCUMENT_PARTITION, b"sign/") is None, "so many bytes are Spark's"
    monkeypatch.setattr(few_records, "_MOST_PASSED", 2_000)
    few = FewRecords(settings.kafka)
    with capture_logs() as logged:
        assert few.read_partition(topic, DOCUMENT_PARTITION, b"topics/") is None, "so many records are Spark's"
        monkeypatch.setattr(few_records, "_MOST_PASSED", 5_000)
        assert few.read_partition(topic, DOCUMENT_PARTITION, b"topics/") is None, "for a while"
    assert logged == []


def test_a_process_that_is_asked_to_end_waits_for_no_document_and_names_no_right(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits()
    waits.end()
    for module in (few_records, committed_reader):
        monkeypatch.setattr(module, "WAITS", waits)
    nobody = replace(settings, kafka=replace(settings.kafka, bootstrap_servers="127.0.0.1:1"))
    few = FewRecords(nobody.kafka)
    given = ProducerSchemas(lambda: schemas_by_subject(NO_SPARK, nobody, few))
    began = time.monotonic()
    with capture_logs() as logged, pytest.raises(EndingError):
        given.of("a-value", [])
    with pytest.raises(EndingError) as later:
        given.of("a-value", [])
    assert not is_of_one_table(later.value, lambda _: None), "no table is set aside for it"
    with pytest.raises(EndingError):
        tables_with_topics(NO_SPARK, nobody, few)
    assert (time.monotonic() - began < 8, logged) == (True, [])
