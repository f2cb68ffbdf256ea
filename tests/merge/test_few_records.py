"""What the driver reads from Kafka by itself: the records of a few slices with their times, and nothing where that fails."""

from __future__ import annotations

import threading
import time
from datetime import datetime

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from devservers import Kafka
from kafkaio import committed_reader
from kafkaio.slices import Slice
from schemas.errors import SinkError
from schemas.markers import MARKER_KEY, CompleteMarker, HeartbeatMarker
from schemas.settings import KafkaSettings
from schemas.waiting import Waits
from spark_jobs.kafka import few_records
from spark_jobs.kafka.few_records import DriverRecord, FewRecords
from spark_jobs.merge import table_input
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, marker, merge_all, progress, topics_of
from tests.merge.test_kafka_records import TopicFactory, end_of, write
from tests.merge.test_kafka_records import new_topic as new_topic  # noqa: PLC0414 - a fixture
from tests.support.record_producer import RecordProducer

KEY = b"marker"


def few(kafka: Kafka) -> FewRecords:
    return FewRecords(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))


def read(kafka: Kafka, *slices: Slice) -> list[DriverRecord]:
    with capture_logs() as logged:
        found = few(kafka).read(slices, KEY)
    assert found is not None, logged
    return found


def test_values_are_those_of_the_key_and_of_others_whether_they_have_one(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic()
    began = datetime.fromtimestamp(int(time.time()))  # noqa: DTZ006 - without a zone, as Spark gives times
    write(kafka, topic, [(KEY, b"first"), (b"row", b"x" * 1000), (b"gone", None), (None, b"y"), (KEY, None), (b"row", b"")])
    found = read(kafka, Slice(topic, 0, 0, end_of(kafka, topic)))
    assert [(one.offset, one.key, one.value) for one in found] == [
        (0, KEY, b"first"), (1, b"row", b""), (2, b"gone", None), (3, None, b""), (4, KEY, None), (5, b"row", b""),
    ]  # fmt: skip
    assert all(one.timestamp is not None and began <= one.timestamp <= datetime.now() for one in found)  # noqa: DTZ005


def test_what_was_rolled_back_is_not_read_and_ends_of_transactions_end_slices(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic()
    write(kafka, topic, [(b"1", b"a"), (b"2", b"a")])
    write(kafka, topic, [(b"3", b"b"), (b"4", b"b")], commits=False)
    write(kafka, topic, [(b"5", b"c")])
    write(kafka, topic, [(b"6", b"d")], commits=False)
    assert [one.key for one in read(kafka, Slice(topic, 0, 0, 10))] == [b"1", b"2", b"5"]
    assert read(kafka, Slice(topic, 0, 3, 6)) == []
    assert read(kafka, Slice(topic, 0, 8, 10)) == []


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 7), (0, 50), (49, 50), (99, 100), (0, 101)])
def test_a_slice_has_the_records_from_its_start_to_its_end(
    kafka: Kafka, new_topic: TopicFactory, start: int, end: int
) -> None:
    topic = new_topic()
    write(kafka, topic, [(b"%d" % number, b"x") for number in range(100)])
    found = read(kafka, Slice(topic, 0, start, end))
    assert [int(one.key or b"") for one in found] == list(range(start, min(end, 100)))


def test_records_of_many_partitions_keep_their_order_and_their_topic(kafka: Kafka, new_topic: TopicFactory) -> None:
    topics = new_topic(3), new_topic(3)
    for topic in topics:
        for partition in range(3):
            write(kafka, topic, [(b"%d" % number, b"x") for number in range(40)], partition)
    slices = [Slice(topic, partition, partition, 30 + partition) for topic in topics for partition in range(3)]
    found = read(kafka, *slices)
    assert len(found) == 6 * 30
    for part in slices:
        mine = [int(one.key or b"") for one in found if (one.topic, one.partition) == (part.topic, part.partition)]
        assert mine == list(range(part.start, part.end))


def test_many_records_are_left_to_spark_and_none_need_no_kafka(
    kafka: Kafka, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    write(kafka, topic, [(KEY, b"x" * 100)] * 20)
    assert len(read(kafka, Slice(topic, 0, 0, 20))) == 20
    reader = few(kafka)
    with capture_logs() as logged:
        monkeypatch.setattr(few_records, "_MOST_BYTES", 1_000)
        assert reader.read([Slice(topic, 0, 0, 20)], KEY) is None
        assert len(reader.read([Slice(topic, 0, 0, 5)], KEY) or ()) == 5, "large records are no failure"
        monkeypatch.setattr(few_records, "FEW", 4)
        assert reader.read([Slice(topic, 0, 0, 5)], KEY) is None
        assert len(reader.read([Slice(topic, 0, 0, 4)], KEY) or ()) == 4
    assert logged == []
    assert FewRecords(KafkaSettings(bootstrap_servers="127.0.0.1:1")).read([], KEY) == []


def test_records_that_are_gone_are_left_to_spark_which_then_reads_for_a_while(
    kafka: Kafka, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    write(kafka, topic, [(KEY, b"one")])
    reader = few(kafka)
    with capture_logs() as logged:
        assert reader.read([Slice(topic, 0, 500, 501)], KEY) is None
        assert reader.read([Slice(topic, 0, 0, 1)], KEY) is None
    assert [one["event"] for one in logged] == ["merge.records_read_by_spark"]
    assert (logged[0]["what"], topic in logged[0]["reason"]) == ("markers", True)
    reader._pauses["markers"].until_s = 0.0
    assert [one.value for one in reader.read([Slice(topic, 0, 0, 1)], KEY) or ()] == [b"one"]


def test_a_pause_becomes_longer_where_the_next_attempt_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_records, "_SILENCE_S", 0.2)
    reader = FewRecords(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    pauses = []
    for _ in range(3):
        reader._pauses["markers"].until_s = 0.0
        with capture_logs() as logged:
            assert reader.read([Slice("any", 0, 0, 1)], KEY) is None
        pauses.append(round((reader._pauses["markers"].until_s - time.monotonic()) / 600))
        assert "topic any cannot be read: Kafka sent nothing for 0.2" in logged[0]["reason"]
    assert pauses == [1, 2, 4]


def test_a_topic_that_is_written_to_does_not_hide_that_another_one_is_silent(
    kafka: Kafka, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slice of one ends, and its partition has more all the time; the other one ends before its slice does."""
    monkeypatch.setattr(few_records, "_SILENCE_S", 5.0)  # the first contact is within it
    busy, short = new_topic(), new_topic()
    for topic in (busy, short):
        write(kafka, topic, [(KEY, b"one")])
    ended = threading.Event()

    def writes() -> None:
        producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers})
        while not ended.wait(0.2):
            producer.produce(busy, b"more", KEY)
            producer.poll(0)
        producer.flush(30)

    writer = threading.Thread(target=writes)
    writer.start()
    try:
        began = time.monotonic()
        with capture_logs() as logged:
            assert few(kafka).read([Slice(busy, 0, 0, 1), Slice(short, 0, 0, 5)], KEY) is None
        assert time.monotonic() - began < 60
        assert f"topic {short} could not be read to its end ([0] up to 5)" in logged[0]["reason"]
    finally:
        ended.set()
        writer.join(60)


def test_a_process_that_is_asked_to_end_waits_for_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    waits.end()
    for module in (few_records, committed_reader):
        monkeypatch.setattr(module, "WAITS", waits)
    with capture_logs() as logged, pytest.raises(SinkError, match="asked to end"):
        FewRecords(KafkaSettings(bootstrap_servers="127.0.0.1:1")).read([Slice("any", 0, 0, 1)], KEY)
    assert logged == []


def test_the_driver_and_spark_find_the_same_markers(kafka: Kafka, new_topic: TopicFactory, spark: SparkSession) -> None:
    """Good and bad ones, with their times, and which topics have rows."""
    good = HeartbeatMarker(position=at(100), horizon=at(100), partitions=2, partition=1, table="shop.orders").to_bytes()
    records = {
        new_topic(): [(MARKER_KEY, good), (MARKER_KEY, b"{")],
        new_topic(): [(b"row", b"x"), (MARKER_KEY, good)],
        new_topic(): [(b"gone", None), (None, None)],
    }
    for topic, written in records.items():
        write(kafka, topic, written)
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    slices = [Slice(topic, 0, 0, end_of(kafka, topic)) for topic in records]
    by_driver = table_input._markers_among(slices, FewRecords(settings).read(slices, MARKER_KEY) or [])
    assert by_driver == table_input._read_markers(spark, settings, slices)
    assert [(len(one["markers"]), len(one["bad_markers"]), one["has_rows"]) for one in by_driver.values()] == [
        (1, 1, False), (1, 0, True), (0, 0, False),
    ]  # fmt: skip


def test_a_job_merges_the_same_where_spark_reads_markers(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FewRecords, "read", lambda *_: None)
    settings = merge_settings()
    topics = topics_of(settings, ORDERS)
    for key in ("one", "two"):
        topics.row({"id": key, "amount": 1}, at(100).text)
    marker(topics, CompleteMarker, 150, request="all", first_bound=at(100), whole_table=True, rows=2)
    flush(topics)
    merge_all(spark, settings)
    assert (amounts(settings), progress(settings)["consistent_at"]) == ({"one": 1, "two": 1}, at(150).text)
