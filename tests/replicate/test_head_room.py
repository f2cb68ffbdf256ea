"""How long Kafka keeps the records that a task needs next, on a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from kafkaio.topic_admin import TopicAdmin
from schemas.settings import KafkaSettings
from schemas.topics import commits_topic
from spark_jobs.replicate.task_figures import TaskFigures
from tests.support.servers import unique_name
from tidemark.api.head_room import KafkaHeadRoom, read_head_room
from tidemark.api.task_metrics import task_metrics
from tidemark.status.task_status import SourceOfTaskStatus, TaskStatus

HOUR_MS = 3_600_000


@pytest.fixture
def kafka_settings(kafka):
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


@pytest.mark.parametrize(
    ("commits", "table", "seconds", "is_kept"),
    [
        ({"retention.ms": str(4 * HOUR_MS)}, {"retention.ms": str(3 * HOUR_MS)}, 7_200, False),
        ({"retention.ms": str(2 * HOUR_MS)}, {"retention.ms": str(3 * HOUR_MS)}, 3_600, False),
        ({"retention.ms": "-1"}, {"retention.ms": str(HOUR_MS // 2)}, 0, False),
        ({"retention.ms": "-1"}, {"retention.ms": "-1"}, None, True),
        ({"retention.ms": "-1"}, {"retention.bytes": "1000000"}, None, None),
        ({"retention.ms": "-1"}, {"cleanup.policy": "compact"}, None, None),
    ],
)
def test_the_shortest_retention_of_the_topics_of_a_source_counts(kafka_settings, commits, table, seconds, is_kept):
    source = unique_name("kept")
    topic = commits_topic(source)
    admin = TopicAdmin(kafka_settings)
    admin.ensure({topic: 1}, commits)
    admin.ensure({f"{source}.db.t": 1}, table)
    admin.ensure({source: 1}, {"retention.ms": "-1"})
    admin.ensure({f"{source}.notifications": 1}, {"retention.ms": "1000"})
    producer = Producer({"bootstrap.servers": kafka_settings.bootstrap_servers})
    for age_ms in (HOUR_MS, 0):
        producer.produce(topic, b"{}", timestamp=time.time_ns() // 1_000_000 - age_ms)
    producer.flush()
    room = read_head_room(kafka_settings, source, 0)
    assert room.is_kept == is_kept
    assert (room.seconds is None) == (seconds is None)
    if seconds is not None:
        assert max(0, seconds - 300) <= room.seconds <= seconds
    if seconds:
        assert read_head_room(kafka_settings, source, 1).seconds > seconds + 3_000, "of the next record"
        assert read_head_room(kafka_settings, source, 2).seconds == seconds + 3_600, "nothing is unread"
        assert read_head_room(kafka_settings, source, -1) == KafkaHeadRoom(0.0, is_kept=False), "it was removed already"


def test_metrics_have_the_head_room_of_each_source_of_which_it_is_known():
    sources = [
        SourceOfTaskStatus(name=name, position="", behind_s=0, behind_commits=0, loading=(), head_room_s=seconds, is_kept=is_kept)
        for name, seconds, is_kept in (("a", 60.0, False), ("b", None, True), ("c", None, None))
    ]
    status = TaskStatus(read_ms=0, task="copy", target="mysql", process="p", sources=tuple(sources))
    lines = task_metrics(TaskFigures(), None, status).splitlines()
    assert [line for line in lines if line.startswith("tidemark_retention")] == [
        'tidemark_retention_head_room_seconds{reader="copy",source="a"} 60.0',
        'tidemark_retention_head_room_seconds{reader="copy",source="b"} inf',
    ]
