"""Reads the notifications topic: what the producer answers, in whatever format it writes."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafkaio.client import client_config, opened, watermarks, with_leaders
from schemas import topics
from schemas.applied.kafka_security import client_options
from schemas.avro import to_avro
from schemas.errors import DecodeError, PublishError
from schemas.notifications import NOTIFICATION_VALUE, SIGNAL, Notification
from schemas.waiting import waiting

if TYPE_CHECKING:
    from schemas.settings import Settings

_WIRE_HEADER: Final = 5
_BROKER_S: Final = 20.0
_MADE_S: Final = 2.0
_POLL_S: Final = 0.25


class NotificationReader:
    """Notifications written from the moment this reader was opened."""

    def __init__(self, settings: Settings) -> None:
        self._topic = topics.notifications_topic(settings.name, settings.kafka.topic_delimiter)
        self._servers = settings.kafka.bootstrap_servers
        options = {
            **client_options(settings.kafka),
            "group.id": f"{settings.name}-cli",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
        self._consumer = opened(Consumer, client_config(settings.kafka.bootstrap_servers, options))

    def __enter__(self) -> Self:
        try:
            self._consumer.assign(self._ends())
        except KafkaException as error:
            self._consumer.close()
            reason = f"{error.args[0].str()}; was `tidemark run` ever started?"
            raise PublishError(f"topic {self._topic} cannot be read: {reason}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def answer(self, signal_id: str, deadline: float) -> Notification | None:
        """Return the answer to a signal; None when there is none until `deadline` (monotonic seconds)."""
        for notification in self.read(deadline):
            if notification.id == signal_id and notification.aggregate_type == SIGNAL:
                return notification
        return None

    def read(self, deadline: float) -> Iterator[Notification]:
        """Notifications as they come, until `deadline` (monotonic seconds)."""
        while time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            error, value = message.error(), message.value()
            if error is not None:
                raise PublishError(f"topic {self._topic} cannot be read: {error.str()}")
            if value is not None:
                yield parse(value)

    def _ends(self) -> list[TopicPartition]:
        """Return the ends as they are now, so that what is written next is read whenever the first poll comes.

        We make the topic with one partition; somebody else may have made it with more.
        """
        with waiting("kafka", self._servers, f"the ends of {self._topic}"):
            partitions = [TopicPartition(self._topic, number) for number in with_leaders(self._partitions, _MADE_S)]
            for partition in partitions:
                _, partition.offset = watermarks(self._consumer, partition, _BROKER_S)
        return partitions

    def _partitions(self) -> list[int]:
        listed = self._consumer.list_topics(self._topic, timeout=_BROKER_S).topics[self._topic]
        if listed.error is not None:
            raise KafkaException(listed.error)
        return sorted(listed.partitions)


def parse(value: bytes) -> Notification:
    """Parse a notification from the bytes of a record's value: JSON, JSON with schema, or Avro in wire format.

    Raises `DecodeError` for anything else.
    """
    try:
        payload = _avro_payload(value) if value[:1] == b"\0" else _json_payload(value)
        return Notification(
            id=payload["id"],
            aggregate_type=payload["aggregate_type"],
            type=payload["type"],
            timestamp_ms=payload["timestamp"],
            additional_data=payload["additional_data"] or {},
        )
    except (ValueError, KeyError, TypeError, IndexError, EOFError) as error:
        raise DecodeError(f"not a notification: {error!r}") from error


def _json_payload(value: bytes) -> dict[str, Any]:
    document = json.loads(value)
    if not isinstance(document, dict):
        raise TypeError("no JSON object")
    payload: dict[str, Any] = document.get("payload", document)
    return payload


def _avro_payload(value: bytes) -> dict[str, Any]:
    import fastavro  # the extra spark has none, and reads notifications in JSON

    return cast("dict[str, Any]", fastavro.schemaless_reader(io.BytesIO(value[_WIRE_HEADER:]), _avro_schema(), None))


@cache
def _avro_schema() -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(to_avro(NOTIFICATION_VALUE)))
