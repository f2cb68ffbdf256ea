"""Notifications as the producer writes them, in each format."""

from __future__ import annotations

from typing import Any

from producer.control.notification_encoder import NotificationEncoder
from producer.kafka.connect_records import RecordEncoder
from schemas.notifications import NOTIFICATION_KEY, NOTIFICATION_VALUE, Notification
from schemas.settings import FormatSettings


class Registry:
    """A schema registry in memory: ids from 41 on; `subjects` has what was registered."""

    def __init__(self) -> None:
        self.subjects: dict[str, str] = {}

    def register(self, subject: str, schema: str) -> int:
        self.subjects.setdefault(subject, schema)
        return 41 + list(self.subjects).index(subject)


def encoder(wire: FormatSettings, registry: Any = None) -> NotificationEncoder:
    return NotificationEncoder(RecordEncoder("srv.notifications", NOTIFICATION_KEY, NOTIFICATION_VALUE, wire, registry))


def as_json(notification: Notification, *, schemas: bool = False) -> tuple[bytes, bytes]:
    """Key and value."""
    return encoder(FormatSettings(type="json", schemas=schemas)).encode(notification)


def as_avro(notification: Notification) -> tuple[bytes, bytes]:
    """Key and value, with ids of the registry in memory."""
    return encoder(FormatSettings(type="avro", registry="http://registry"), Registry()).encode(notification)
