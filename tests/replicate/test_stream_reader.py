"""Commit records and rows that Kafka does not have whole, on a real broker: a task ends, and says what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkaio.topic_admin import TopicAdmin
from schemas.commit_records import CommitRecord
from schemas.errors import StateError
from schemas.position import Position
from schemas.settings import KafkaSettings
from schemas.topics import commits_topic
from spark_jobs.replicate.order.stream_reader import StreamReader
from tests.support.servers import unique_name

AT = Position(0, 1, 100)


def record(n: int, **more: Any) -> CommitRecord:
    return replace(CommitRecord(n=n, begin=AT, to=AT, since_us=1, promise_us=1), **more)


def read(kafka: Any, source: str, *commits: CommitRecord, rows: int = 0, removed: int = 0) -> list[int]:
    """The numbers of the records that a reader from number 1 on returns; of the rows Kafka has removed the first ones."""
    TopicAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)).ensure({commits_topic(source): 1, f"{source}.shop.a": 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(rows):
        producer.produce(f"{source}.shop.a", b"row", partition=0)
    for commit in commits:
        producer.produce(commits_topic(source), commit.to_bytes(), partition=0)
    assert producer.flush(30) == 0
    if removed:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for done in admin.delete_records([TopicPartition(f"{source}.shop.a", 0, removed)]).values():
            done.result(30)
    reader = StreamReader(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), "reader", 1 << 20)
    reader.add(source, 0, 1)
    numbers: list[int] = []
    try:
        while (transaction := reader.next(5.0)) is not None:
            numbers.append(transaction.commit.n)
    finally:
        reader.close()
    return numbers


def spans(source: str, rows: int, end: int) -> dict[str, Any]:
    return {"rows": {f"{source}.shop.a": rows}, "spans": {f"{source}.shop.a": {0: (0, end)}}}


def test_records_with_their_rows_are_returned_in_turn(kafka):
    source = unique_name("reader")
    assert read(kafka, source, record(1, **spans(source, 2, 2)), record(2), rows=2) == [1, 2]


def test_a_number_that_is_missing_is_named(kafka):
    with pytest.raises(StateError, match="has record 3 at offset 1, and record 2 is next"):
        read(kafka, unique_name("reader"), record(1), record(3))


def test_a_log_that_was_not_published_is_named(kafka):
    with pytest.raises(StateError, match=r"the log before it was not published \(purged\)\. Empty the task's tables"):
        read(kafka, unique_name("reader"), record(1), record(2, reset="purged"))


def test_rows_that_kafka_does_not_have_any_more_are_counted(kafka):
    source = unique_name("reader")
    with pytest.raises(StateError, match="has 2 of the 3 records of commit record 1"):
        read(kafka, source, record(1, **spans(source, 3, 3)), rows=3, removed=1)
