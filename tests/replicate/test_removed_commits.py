"""A start behind commit records that Kafka has removed, or whose topic was created again, ends with the reason and the remedy."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafkaio.topic_admin import TopicAdmin
from schemas.errors import ConfigError
from schemas.settings import from_mapping
from schemas.topics import commits_topic
from spark_jobs.replicate.task import run_task
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, task_of
from tests.support.producers import SIGNAL, running
from tests.support.servers import database


def test_a_start_says_that_its_commit_records_are_gone(source, registry):
    target, topic = database("mariadb114"), commits_topic(source.name)
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)")
    task = task_of(source, registry.url, target)
    with running(from_mapping(mapping_of(source, registry.url))) as producer:
        catch_up(task)
        source.execute("INSERT INTO a VALUES (1)", "INSERT INTO a VALUES (2)")
        producer.caught_up(source)
    admin = TopicAdmin(task.kafka)
    end = admin.readable_ends([topic])[topic][0]
    client = AdminClient({"bootstrap.servers": task.kafka.bootstrap_servers})
    for answer in client.delete_records([TopicPartition(topic, 0, end - 2)]).values():
        answer.result()
    with pytest.raises(ConfigError, match=r"has lost records by retention.*tidemark_meta\.source"):
        run_task(task, threading.Event())
    admin.delete(topic)
    with running(from_mapping(mapping_of(source, registry.url))) as producer:
        source.execute("INSERT INTO a VALUES (3)")
        producer.caught_up(source)
    assert admin.readable_ends([topic])[topic][0] < end
    with pytest.raises(ConfigError, match="was created again"):
        run_task(task, threading.Event())
