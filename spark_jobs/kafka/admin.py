"""Facts of topics besides their records, asked through the JVM: the client comes with Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from schemas.settings import KafkaSettings
from schemas.waiting import waiting
from spark_jobs.kafka.read import cluster_options

log = structlog.get_logger()

_Answer = TypeVar("_Answer")

_CLOSES_S: Final = 1
_CLIENT: Final = "kafka."
_GONE: Final = "UnknownTopicOrPartition"
_NOT_ALLOWED: Final = "AuthorizationException"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Where the log of each partition begins (offset, inclusive), and whether records of one key may be thinned out."""

    starts: Mapping[int, int]
    compacted: bool

    @property
    def trimmed(self) -> list[int]:
        """The partitions that have lost records."""
        return [partition for partition, start in self.starts.items() if start > 0]


def topic_exists(spark: SparkSession, kafka: KafkaSettings, topic: str) -> bool:
    """Return whether there is such a topic, for which the right to describe topics is enough. `SinkError` as below."""
    return _asked(spark, kafka, topic, partial(_described, topic=topic)) is not None


def topic_facts(spark: SparkSession, kafka: KafkaSettings, topic: str) -> TopicFacts | None:
    """Return the facts of a topic; None if there is no such topic. `SinkError` if Kafka cannot be asked."""
    return _asked(spark, kafka, topic, partial(_facts, topic=topic))


def first_offsets(spark: SparkSession, kafka: KafkaSettings, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return where the logs of these partitions begin, without those of no topic, by one request. `SinkError` as above."""

    def question(java: Any, admin: Any) -> dict[tuple[str, int], int]:
        partition_of = java.org.apache.kafka.common.TopicPartition  # looked up once: each part of the name is a question to the JVM
        known = {one: partition_of(*one) for one in partitions}
        asked, earliest = java.java.util.HashMap(), java.org.apache.kafka.clients.admin.OffsetSpec.earliest()
        for partition in known.values():
            asked[partition] = earliest
        answer = admin.listOffsets(asked)
        found = {one: _offset(answer.partitionResult(partition)) for one, partition in known.items()}
        return {one: offset for one, offset in found.items() if offset is not None}

    return _asked(spark, kafka, partitions[0][0], question) or {}


def _offset(future: Any) -> int | None:
    try:
        return int(future.get().offset())
    except Py4JJavaError as error:
        if _GONE in str(error.java_exception):
            return None
        raise


def topic_ids(spark: SparkSession, kafka: KafkaSettings, topics: Iterable[str]) -> dict[str, str]:
    """Return the ids of those topics that there are. `SinkError` as above."""
    names = sorted(topics)

    def question(java: Any, admin: Any) -> dict[str, str]:
        asked = java.java.util.ArrayList(names)
        futures = admin.describeTopics(asked).topicNameValues()
        return {topic: found for topic in names if (found := _id(futures[topic]))}

    return (_asked(spark, kafka, names[0], question) or {}) if names else {}


def is_same_producer(
    spark: SparkSession, kafka: KafkaSettings, anchor: str, known: Mapping[str, str], others: Iterable[str]
) -> bool:
    """Return whether topics that were read and are missing or replaced concern their tables only.

    It is one where the producer's state topic (`anchor`) is the one it was, or, where its id is not known, any topic of another
    table. Else this is another cluster, or another producer, whose positions say nothing of those in the sink.
    """
    asked = [anchor] if anchor in known else [topic for topic in others if topic in known]
    ids = topic_ids(spark, kafka, asked)
    return any(ids.get(topic) == known[topic] for topic in asked)


def id_of_anchor(spark: SparkSession, kafka: KafkaSettings, anchor: str) -> str:
    """Return the id of the producer's state topic; "" if there is none, or if this user may not ask about it."""
    try:
        return topic_ids(spark, kafka, [anchor]).get(anchor, "")
    except SinkError as error:
        if _NOT_ALLOWED not in str(error):
            raise
        return ""


def require_same_topics(
    spark: SparkSession, kafka: KafkaSettings, topics: Iterable[str], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the ids of those topics that there are; `SinkError` if one is known by another id, and as above.

    A topic that was created again may be longer than what was read of the former one: its first records would count as read.
    """
    ids = topic_ids(spark, kafka, topics)
    for topic, ident in ids.items():
        if known.get(topic, ident) != ident:
            message = (
                f"topic {topic} was deleted and created again since it was read: what this sink has read of the former one is "
                "not in it. Start the merge job on an empty sink path and snapshot again"
            )
            raise SinkError(message)
    return ids


def _id(future: Any) -> str:
    """Return the id of a topic; "" if there is no such topic, or if the broker knows no ids."""
    try:
        ident = future.get().topicId()
    except Py4JJavaError as error:
        if _GONE in str(error.java_exception):
            return ""
        raise
    return "" if ident is None or not ident.getMostSignificantBits() else str(ident.toString())


def _asked(spark: SparkSession, kafka: KafkaSettings, topic: str, question: Callable[[Any, Any], _Answer]) -> _Answer | None:
    """Return the answer to a question, which is asked with the JVM and its client; None if there is no such topic."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001 - the one way to the JVM
    with waiting("kafka", kafka.bootstrap_servers, f"what there is of topic {topic}"), _admin(java, kafka) as admin:
        try:
            return question(java, admin)
        except Py4JJavaError as error:
            if _GONE in str(error.java_exception):
                return None
            message = f"topic {topic} cannot be asked about: {error.java_exception}"
            raise SinkError(message) from error


def _facts(java: Any, admin: Any, topic: str) -> TopicFacts:
    offsets = _starts(java, admin, [(topic, item.partition()) for item in _described(java, admin, topic).partitions()])
    starts = {one.partition(): int(found.offset()) for one, found in offsets.items()}
    return TopicFacts(starts, _is_compacted(java, admin, topic))


def _starts(java: Any, admin: Any, partitions: Iterable[tuple[str, int]]) -> Any:
    asked, earliest = java.java.util.HashMap(), java.org.apache.kafka.clients.admin.OffsetSpec.earliest()
    for topic, partition in partitions:
        asked[java.org.apache.kafka.common.TopicPartition(topic, partition)] = earliest
    return admin.listOffsets(asked).all().get()


def _described(java: Any, admin: Any, topic: str) -> Any:
    return admin.describeTopics(java.java.util.Collections.singletonList(topic)).allTopicNames().get().get(topic)


def _is_compacted(java: Any, admin: Any, topic: str) -> bool:
    """Return whether the policy of the topic says so; also True if this user may not read the policy."""
    resource = java.org.apache.kafka.common.config.ConfigResource
    name = resource(getattr(resource, "Type").TOPIC, topic)  # noqa: B009 - an inner class of Java
    try:
        found = admin.describeConfigs(java.java.util.Collections.singletonList(name)).all().get()
    except Py4JJavaError as error:
        if _NOT_ALLOWED not in str(error.java_exception):
            raise
        advice = "grant DESCRIBE_CONFIGS on topics: without it every quarantined record of it counts as not provable"
        log.warning("merge.topic_policy_unknown", topic=topic, advice=advice)
        return True
    return "compact" in str(found.get(name).get("cleanup.policy").value())


@contextmanager
def _admin(java: Any, kafka: KafkaSettings) -> Iterator[Any]:
    properties = java.java.util.Properties()
    for name, value in cluster_options(kafka).items():
        properties.setProperty(name.removeprefix(_CLIENT), value)
    admin = java.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield admin
    finally:
        admin.close(java.java.time.Duration.ofSeconds(_CLOSES_S))  # every answer has come, or is not waited for
