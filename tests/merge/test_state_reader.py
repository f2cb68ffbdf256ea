"""What the merge job knows of the producer's documents, read by the driver itself, and by Spark where that is not possible."""

from __future__ import annotations

import math
import threading
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from devservers import Kafka
from schemas.documents import OffsetDocument, SchemaIdDocument, TopicsDocument
from schemas.settings import Settings
from schemas.state import DOCUMENT_PARTITION, OFFSET_PARTITION, PARTITIONS, value_of
from schemas.topics import state_topic
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.state_reader import schemas_by_subject, tables_with_topics
from tests.merge.conftest import SinkFactory
from tests.support.servers import unique_name

TABLES = {("shop", "orders"), ("shop", "order_items")}
SHORT = '"string"'


@pytest.fixture
def settings(kafka: Kafka, merge_settings: SinkFactory) -> Settings:
    """A producer whose state topic has documents of two tables, one of a third one that was removed, and two schemas."""
    found = merge_settings()
    topic = state_topic(found.name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    documents = [TopicsDocument(*table, 2) for table in (*sorted(TABLES), ("shop", "gone"))]
    schemas = [SchemaIdDocument("a-value", 7, SHORT), SchemaIdDocument("a-value", 9, SHORT)]
    with writer(kafka) as producer:
        for one in (*documents, *schemas):
            producer.produce(topic, value_of(one), one.key, DOCUMENT_PARTITION)
        producer.produce(topic, None, documents[-1].key, DOCUMENT_PARTITION)
        producer.produce(topic, b"{}", OffsetDocument.KEY, OFFSET_PARTITION)
    few, until = FewRecords(found.kafka), time.monotonic() + 30
    while not few.read_partition(topic, DOCUMENT_PARTITION, b""):  # a commit can be read some time after it
        assert time.monotonic() < until
    return found


class writer:  # noqa: N801 - a context manager
    """A producer in a transaction, which is committed at the end: soon after that its records can be read."""

    def __init__(self, kafka: Kafka) -> None:
        self._settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique_name("writer")}

    def __enter__(self) -> Producer:
        self._producer = Producer(self._settings)
        self._producer.init_transactions(60)
        self._producer.begin_transaction()
        return self._producer

    def __exit__(self, *_: object) -> None:
        self._producer.commit_transaction(60)


@pytest.mark.parametrize("by_spark", [False, True])
def test_the_driver_and_spark_find_the_same_tables_and_schemas(settings: Settings, spark: SparkSession, *, by_spark: bool) -> None:
    few = FewRecords(settings.kafka)
    if by_spark:
        few._reads_from_s = math.inf
    with capture_logs() as logged:
        assert tables_with_topics(spark, settings, few) == TABLES
        found = schemas_by_subject(spark, settings, few)
    assert {subject: [one.id for one in schemas] for subject, schemas in found.items()} == {"a-value": [7, 9]}
    assert logged == []


def test_what_an_open_transaction_hides_is_waited_for_but_not_for_long(
    kafka: Kafka, settings: Settings, spark: SparkSession
) -> None:
    topic, late = state_topic(settings.name), TopicsDocument("shop", "late", 2)
    few = FewRecords(settings.kafka)
    assert tables_with_topics(spark, settings, few) == TABLES
    found: list[set[tuple[str, str]]] = []
    with writer(kafka) as producer:
        producer.produce(topic, value_of(late), late.key, DOCUMENT_PARTITION)
        producer.flush(60)
        began = time.monotonic()
        with capture_logs() as logged:
            assert tables_with_topics(spark, settings, few) == TABLES
        assert (1.9 < time.monotonic() - began < 8, logged) == (True, [])
        reading = threading.Thread(target=lambda: found.append(tables_with_topics(spark, settings, few)))
        reading.start()
        time.sleep(0.3)
    reading.join(60)
    assert found == [{*TABLES, ("shop", "late")}]


def test_what_is_rolled_back_meanwhile_ends_the_wait(kafka: Kafka, settings: Settings, spark: SparkSession) -> None:
    topic, late = state_topic(settings.name), TopicsDocument("shop", "late", 2)
    few = FewRecords(settings.kafka)
    producer = writer(kafka).__enter__()
    producer.produce(topic, value_of(late), late.key, DOCUMENT_PARTITION)
    producer.flush(60)
    threading.Timer(0.2, producer.abort_transaction, [60]).start()
    assert tables_with_topics(spark, settings, few) == TABLES
    assert few._failures == 0


def test_a_partition_without_records_and_one_that_is_not_there(kafka: Kafka, settings: Settings) -> None:
    topic = unique_name("empty")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    few = FewRecords(settings.kafka)
    assert few.read_partition(topic, 0, b"") == []
    with capture_logs() as logged:
        assert few.read_partition(topic, 1, b"") is None
    assert [(one["event"], one["what"]) for one in logged] == [("merge.records_read_by_spark", "documents")]
