"""What the driver reads from Kafka by itself: the records of a few slices with their times, and nothing where that fails."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from structlog.testing import capture_logs

from devservers import Kafka
from schemas.settings import KafkaSettings
from spark_jobs.kafka import few_records
from spark_jobs.kafka.few_records import FEW, FewRecords, Record
from spark_jobs.kafka.slices import Slice
from tests.merge.test_kafka_records import TopicFactory, end_of, write
from tests.merge.test_kafka_records import new_topic as new_topic  # noqa: PLC0414 - a fixture

KEY = b"marker"


def few(kafka: Kafka) -> FewRecords:
    return FewRecords(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))


def read(kafka: Kafka, *slices: Slice) -> list[Record]:
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


def test_many_records_are_left_to_spark_and_none_need_no_kafka(kafka: Kafka) -> None:
    assert few(kafka).read([Slice("of_many", 0, 0, FEW + 1)], KEY) is None
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
    assert [one["event"] for one in logged] == ["merge.markers_read_by_spark"]
    assert topic in logged[0]["reason"]
    monkeypatch.setattr(reader, "_reads_from_s", time.monotonic())
    assert [one.value for one in reader.read([Slice(topic, 0, 0, 1)], KEY) or ()] == [b"one"]


def test_a_silent_broker_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_records, "_SILENCE_S", 0.5)
    with capture_logs() as logged:
        assert FewRecords(KafkaSettings(bootstrap_servers="127.0.0.1:1")).read([Slice("any", 0, 0, 1)], KEY) is None
    assert "has sent no record of any for 0.5 s" in logged[0]["reason"]
