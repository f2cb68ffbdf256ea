"""What is asked about topics, and with which rights."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from schemas.settings import KafkaSettings
from spark_jobs.kafka.admin import topic_exists, topic_facts

KAFKA = KafkaSettings(bootstrap_servers="localhost:1")


class Raised:
    """An exception of Java."""

    _target_id = "o1"

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.{self._name}"


def session(**raised: str) -> tuple[SparkSession, Any]:
    """A session whose Kafka client raises that at a call."""
    spark = MagicMock()
    admin = spark.sparkContext._jvm.org.apache.kafka.clients.admin.AdminClient.create.return_value
    for name, error in raised.items():
        getattr(admin, name).side_effect = Py4JJavaError("it failed", cast("Any", Raised(error)))
    return cast("SparkSession", spark), admin


def test_whether_a_topic_exists_wants_no_other_right_than_to_describe_topics() -> None:
    spark, admin = session(describeConfigs="TopicAuthorizationException", listOffsets="TopicAuthorizationException")
    assert topic_exists(spark, KAFKA, "shop.state")
    admin.describeConfigs.assert_not_called()
    assert not topic_exists(session(describeTopics="UnknownTopicOrPartitionException")[0], KAFKA, "shop.state")


def test_a_topic_whose_policy_may_not_be_read_is_taken_as_compacted() -> None:
    facts = topic_facts(session(describeConfigs="TopicAuthorizationException")[0], KAFKA, "shop.db.t")
    assert facts is not None
    assert facts.compacted
    with pytest.raises(SinkError, match="cannot be asked about"):
        topic_facts(session(describeConfigs="TimeoutException")[0], KAFKA, "shop.db.t")
