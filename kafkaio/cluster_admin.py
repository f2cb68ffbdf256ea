"""The cluster for a diagnosis: brokers, settings, and the rights of our user, asked for without a change."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from kafkaio.client import opened
from kafkaio.topic_admin import TopicAdmin

LONGEST_MS: Final = (1 << 31) - 1
"""The time of a transaction that is asked for: above every limit but the largest number, with which nothing may be asked."""
_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_OF_ADMIN: Final = frozenset({"error_cb", "allow.auto.create.topics"})
_SILENT: Final = logging.getLogger("tidemark.doctor.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The numbers of the brokers, and of each topic that our user is shown the number of copies of each partition."""

    brokers: tuple[str, ...]
    copies: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class ShownSettings:
    """Settings by broker or topic, and the reasons why some are not shown."""

    settings: Mapping[str, Mapping[str, str]]
    reasons: tuple[str, ...]


class ClusterAdmin(TopicAdmin):
    """A client with the questions of a diagnosis. A right counts as missing only if Kafka refuses because of it."""

    def cluster(self) -> ClusterFacts:
        """Return the brokers and topics. `KafkaAccessError` if they refuse us, `PublishError` if none answers."""
        listed = self._metadata()
        copies = {name: [len(one.replicas) for one in topic.partitions.values()] for name, topic in listed.topics.items()}
        return ClusterFacts(tuple(sorted(str(one) for one in listed.brokers)), copies)

    def settings_of_brokers(self, brokers: Iterable[str]) -> ShownSettings:
        """Return the settings of brokers; each is asked for its own."""
        return self._shown([[ConfigResource(ResourceType.BROKER, name)] for name in brokers])

    def settings_of_topics(self, topics: Collection[str]) -> ShownSettings:
        """Return the settings of topics."""
        return self._shown([[ConfigResource(ResourceType.TOPIC, name) for name in topics]] if topics else [])

    def _shown(self, questions: Iterable[list[ConfigResource]]) -> ShownSettings:
        asked: dict[ConfigResource, Any] = {}
        for question in questions:
            asked |= self._admin.describe_configs(question, request_timeout=self._answer_s)
        settings, reasons = {}, list[str]()
        for resource, answer in asked.items():
            try:
                entries = answer.result()
            except KafkaException as error:
                reasons.append(error.args[0].str())
                continue
            settings[resource.name] = {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}
        return ShownSettings(settings, tuple(dict.fromkeys(reasons)))

    def missing_operations(self, topics: Iterable[str], needed: frozenset[str]) -> dict[str, frozenset[str]]:
        """Return the operations, of those that are needed, that our user lacks by topic; topics that do not exist are left out."""
        asked = TopicCollection(sorted(topics))
        answers = self._admin.describe_topics(asked, include_authorized_operations=True, request_timeout=self._answer_s)
        missing = {}
        for topic, answer in answers.items():
            try:
                allowed = answer.result().authorized_operations
            except KafkaException as error:
                if error.args[0].code() in _REFUSALS:
                    missing[topic] = needed
                continue
            missing[topic] = frozenset() if allowed is None else needed - {operation.name for operation in allowed}
        return missing

    def may_describe_group(self, group: str) -> bool:
        """Return whether our user is shown a consumer group."""
        return _is_allowed(self._admin.describe_consumer_groups([group], request_timeout=self._answer_s)[group])

    def may_create(self, topic: str) -> bool:
        """Return whether our user may create a topic; the request is only validated."""
        request = [NewTopic(topic, 1, 1)]
        return _is_allowed(self._admin.create_topics(request, validate_only=True, request_timeout=self._answer_s)[topic])

    def is_id_refused(self, transactional_id: str) -> bool:
        """Return whether our user has no right to a transactional id. The caller has checked that brokers refuse the question.

        A longer transaction is asked for than brokers allow: Kafka looks at the rights first, then at the time, and refuses
        before it takes the id from a producer that has it (KafkaApis, TransactionCoordinator).
        """
        probe = opened(
            Producer,
            {
                **{name: value for name, value in self._config.items() if name not in _OF_ADMIN},
                "transactional.id": transactional_id,
                "transaction.timeout.ms": LONGEST_MS,
                "logger": _SILENT,  # librdkafka calls it fatal, and prints that
            },
        )
        try:
            probe.init_transactions(self._answer_s)
        except KafkaException as error:
            return error.args[0].code() in _REFUSALS
        return False


def _is_allowed(answer: Any) -> bool:
    """Return True unless an answer is a refusal; any other error says that rights were looked at and are there."""
    try:
        answer.result()
    except KafkaException as error:
        return error.args[0].code() not in _REFUSALS
    return True
