"""librdkafka settings shared by every client of the producer, and admin calls on topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from schemas.errors import PublishError, StateError

ADMIN_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.1
_FINAL: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)


def client_config(bootstrap_servers: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a client's configuration that all clients share; `options` wins."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 2,  # lost connections are told by errors and error_cb; librdkafka repeats them on stderr
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2000,
        **options,
    }


class TopicAdmin:
    """Creates topics, tells their partition counts and end offsets."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, Any]) -> None:
        self._admin = AdminClient(client_config(bootstrap_servers, options))
        self._partitions: dict[str, int] = {}

    def partitions(self, topic: str) -> int:
        """Number of partitions of an existing topic; `StateError` when it does not exist."""
        count = self._partitions.get(topic)
        if count is None:
            count = self._fetch_partitions([topic]).get(topic)
            if count is None:
                message = f"topic {topic} does not exist"
                raise StateError(message)
            self._partitions[topic] = count
        return count

    def ensure(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create the topics that do not exist, with that many partitions each (broker's default replicas).

        An existing topic keeps what it has; a partition count that differs from the recorded one is the
        caller's to detect (`partitions`).
        """
        missing = [topic for topic in topics if topic not in self._partitions]
        if not missing:
            return
        existing = self._fetch_partitions(missing)
        self._partitions.update(existing)
        new = [
            NewTopic(topic, num_partitions=topics[topic], replication_factor=-1, config=dict(config or {}))
            for topic in missing
            if topic not in existing
        ]
        if not new:
            return
        for topic, future in self._admin.create_topics(new, request_timeout=ADMIN_TIMEOUT_S).items():
            try:
                future.result()
                self._partitions[topic] = topics[topic]
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    message = f"topic {topic} cannot be created: {error.args[0].str()}"
                    raise PublishError(message) from error

    def end_offsets(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """End offset (exclusive, records of open transactions included) of every partition of the topics."""
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        request: dict[TopicPartition, Any] = {
            TopicPartition(topic, partition): latest
            for topic in topics
            for partition in range(self.partitions(topic))
        }
        ends: dict[str, dict[int, int]] = {}
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while request:
            request = self._list_offsets(request, ends, retry=time.monotonic() < deadline)
            if request:
                time.sleep(_RETRY_S)
        return ends

    def _list_offsets(
        self, request: dict[TopicPartition, Any], ends: dict[str, dict[int, int]], *, retry: bool
    ) -> dict[TopicPartition, Any]:
        """Fill in `ends`; what has to be asked again (a new topic's leader is not known at once)."""
        again = {}
        futures = self._admin.list_offsets(
            request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ADMIN_TIMEOUT_S
        )
        for where, future in futures.items():
            try:
                ends.setdefault(where.topic, {})[where.partition] = future.result().offset
            except KafkaException as error:
                if retry and error.args[0].code() not in _FINAL:
                    again[where] = request[where]
                    continue
                message = (
                    f"end offset of {where.topic}[{where.partition}] cannot be read: {error.args[0].str()}"
                )
                raise PublishError(message) from error
        return again

    def _fetch_partitions(self, topics: Iterable[str]) -> dict[str, int]:
        wanted = set(topics)
        try:
            metadata = self._admin.list_topics(timeout=ADMIN_TIMEOUT_S)
        except KafkaException as error:
            message = f"Kafka cannot be reached: {error.args[0].str()}; check kafka.bootstrap_servers"
            raise PublishError(message) from error
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if name in wanted and topic.error is None
        }
