"""Reads the notifications topic: what the producer answers, in whatever format it writes."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self, cast

from kafkaio.committed_reader import CommittedReader, Partition
from schemas import topics
from schemas.avro import to_avro
from schemas.errors import DecodeError, PublishError
from schemas.notifications import NOTIFICATION_VALUE, SIGNAL, Notification

if TYPE_CHECKING:
    from schemas.settings import Settings

_WIRE_HEADER: Final = 5
_MADE_S: Final = 2.0
_POLL_S: Final = 0.25


class NotificationReader:
    """Notifications written from the moment this reader was opened."""

    def __init__(self, settings: Settings) -> None:
        self._topic = topics.notifications_topic(settings.name, settings.kafka.topic_delimiter)
        self._reader = CommittedReader(settings.kafka, f"{settings.name}-cli")

    def __enter__(self) -> Self:
        try:
            self._reader.begin(self._ends())
        except PublishError as error:
            self._reader.close()
            raise PublishError(f"{error}; was `tidemark run` ever started?") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def answer(self, signal_id: str, deadline: float) -> Notification | None:
        """Return the answer to a signal; None when there is none until `deadline` (monotonic seconds)."""
        for notification in self.read(deadline):
            if notification.id == signal_id and notification.aggregate_type == SIGNAL:
                return notification
        return None

    def read(self, deadline: float) -> Iterator[Notification]:
        """Notifications as they come, until `deadline` (monotonic seconds)."""
        while time.monotonic() < deadline:
            record = self._reader.next_record(_POLL_S)
            if record is not None and record.value is not None:
                yield parse(record.value)

    def _ends(self) -> dict[Partition, int]:
        """Return the ends as they are now, so that what is written next is read whenever the first poll comes.

        We make the topic with one partition; somebody else may have made it with more. One that was made just now is waited for.
        """
        deadline = time.monotonic() + _MADE_S
        while not (partitions := self._reader.partitions(self._topic)):
            if time.monotonic() > deadline:
                raise PublishError(f"topic {self._topic} cannot be read: it does not exist")
            time.sleep(_POLL_S)
        return self._reader.ends(partitions)


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
    import fastavro  # only for notifications in Avro

    return cast("dict[str, Any]", fastavro.schemaless_reader(io.BytesIO(value[_WIRE_HEADER:]), _avro_schema(), None))


@cache
def _avro_schema() -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(to_avro(NOTIFICATION_VALUE)))
