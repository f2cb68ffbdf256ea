"""Membership in a consumer group that decides who has the partitions of a topic; no record is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafkaio.client import answers, client_config, failure, is_refusal, opened
from schemas.applied.kafka_security import client_options

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

_HEARTBEAT_MS: Final = 1_000

Partitions = Callable[[list[int]], None]


class GroupMember:
    """A member of a group, with the credentials as they are when it is made. `join` comes first; for one thread.

    `refusal` is the reason why brokers refuse our user, "" while they do not.
    """

    def __init__(self, kafka: KafkaSettings, group: str, topic: str, session_ms: int) -> None:
        self._kafka, self._topic = kafka, topic
        self.refusal = ""
        self._credentials = client_options(kafka)
        options: dict[str, Any] = {
            **self._credentials,
            "error_cb": self._on_error,
            "group.id": group,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            # A member that joins must not take the partition from the one that has it.
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "allow.auto.create.topics": False,
        }
        self._consumer = opened(Consumer, client_config(kafka.bootstrap_servers, options))

    @property
    def has_credentials(self) -> bool:
        """Whether its credentials are still those of the settings. `SecretError` if a file cannot be read."""
        return client_options(self._kafka) == self._credentials

    def join(self, won: Partitions, lost: Partitions) -> None:
        """Join the group; `poll` reports the partitions that this member gets and loses. `PublishError` if it cannot."""

        def assigned(consumer: Consumer, partitions: list[Any]) -> None:
            if partitions:
                consumer.incremental_assign(partitions)
                consumer.pause(partitions)  # the records of the topic are of no interest
                won([one.partition for one in partitions])

        def revoked(consumer: Consumer, partitions: list[Any]) -> None:
            if partitions:
                consumer.incremental_unassign(partitions)
                lost([one.partition for one in partitions])

        try:
            self._consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        except KafkaException as error:
            raise failure(error.args[0].str(), error.args[0]) from error

    def poll(self, within_s: float) -> str:
        """Keep the membership; return the error that Kafka reports, "" without one. `PublishError` if the client fails."""
        try:
            message = self._consumer.poll(within_s)
        except KafkaException as error:
            raise failure(error.args[0].str(), error.args[0]) from error
        problem = None if message is None else message.error()
        return "" if problem is None else problem.str()

    def answers(self, topic: str, within_s: float) -> bool:
        """Return whether a broker answers in time."""
        return answers(self._consumer, topic, within_s)

    def close(self) -> None:
        """Leave the group: another member gets the partitions at once."""
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if is_refusal(error):
            self.refusal = error.str()
