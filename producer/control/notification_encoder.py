"""Notifications as Kafka records, in the format of all other records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from schemas import avro, topics
from schemas.errors import ConfigError
from schemas.notifications import NOTIFICATION_KEY, NOTIFICATION_VALUE, Notification

if TYPE_CHECKING:
    from schemas.settings import FormatSettings

_ROW_KEYS: Final = frozenset({"maximum_key", "last_processed_key"})
_WIRE: Final = struct.Struct(">bI")


class NotificationEncoder:
    """Encodes notifications: Avro in Confluent wire format, or JSON with or without schemas.

    `register(subject, schema) -> id` is the registry's; Avro needs it, at the first notification. `hides_keys` leaves out the keys
    of rows: columns are masked.
    """

    def __init__(
        self,
        prefix: str,
        wire: FormatSettings,
        register: Callable[[str, str], int] | None = None,
        delimiter: str = topics.DELIMITER,
        *,
        hides_keys: bool = False,
    ) -> None:
        self._topic = topics.notifications_topic(prefix, delimiter)
        self._wire = wire
        self._register = register
        self._hides_keys = hides_keys

    def encode(self, notification: Notification) -> tuple[bytes, bytes]:
        """Key and value of the record; `RegistryError` when the registry can't be used."""
        if self._hides_keys:
            data = {name: text for name, text in notification.additional_data.items() if name not in _ROW_KEYS}
            notification = replace(notification, additional_data=data)
        if self._wire.type == "avro":
            return self._avro(notification)
        if self._wire.schemas:
            return notification.key_json_with_schema(), notification.value_json_with_schema()
        return notification.key_json(), notification.value_json()

    def _avro(self, notification: Notification) -> tuple[bytes, bytes]:
        if self._register is None:
            message = "format.registry: Avro needs the URL of a schema registry"
            raise ConfigError(message)
        key_id = self._register(topics.key_subject(self._topic), avro.to_avro(NOTIFICATION_KEY))
        value_id = self._register(topics.value_subject(self._topic), avro.to_avro(NOTIFICATION_VALUE))
        key = _WIRE.pack(0, key_id) + notification.key_avro()
        return key, _WIRE.pack(0, value_id) + notification.value_avro()
