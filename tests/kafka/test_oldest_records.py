"""When the oldest record from an offset on was written, asked for several offsets of one partition at once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafkaio.oldest_records import OldestRecords
from kafkaio.topic_admin import TopicAdmin
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name

MINUTE_AGO = time.time_ns() // 1_000_000 - 60_000  # older than a week, the broker would remove them at any time
TIMES = (MINUTE_AGO, MINUTE_AGO + 1_000, MINUTE_AGO + 2_000)


@pytest.fixture
def topic(kafka) -> str:
    name = unique_name("oldest")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({name: 2})
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in (0, 1):
        for time_ms in TIMES:
            producer.produce(topic=name, value=b"{}", partition=partition, timestamp=time_ms + partition)
    producer.flush(120)
    return name


@pytest.fixture
def oldest(kafka) -> Iterator[OldestRecords]:
    records = OldestRecords(cluster(kafka.bootstrap_servers), unique_name("oldest"), "gone")
    yield records
    records.close()


def test_sinks_that_have_read_a_partition_up_to_different_offsets_each_get_their_time(topic, oldest):
    asked = [(topic, 0, 0), (topic, 1, 1), (topic, 0, 2), (topic, 1, 3), (topic, 0, 1)]
    assert oldest.written(asked) == {
        (topic, 0, 0): TIMES[0],
        (topic, 0, 1): TIMES[1],
        (topic, 0, 2): TIMES[2],
        (topic, 1, 1): TIMES[1] + 1,
        (topic, 1, 3): 0,
    }
