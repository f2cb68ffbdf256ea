"""Notifications as Kafka records, in the format of all other records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from producer.kafka.connect_records import RecordEncoder
    from schemas.notifications import Notification

_ROW_KEYS: Final = frozenset({"maximum_key", "last_processed_key"})


class NotificationEncoder:
    """Encodes notifications by `records`. `hides_keys` leaves out the keys of rows: columns are masked."""

    def __init__(self, records: RecordEncoder, *, hides_keys: bool = False) -> None:
        self._records = records
        self._hides_keys = hides_keys

    def encode(self, notification: Notification) -> tuple[bytes, bytes]:
        """Key and value of the record; `RegistryError` when the registry can't be used."""
        value = notification.value()
        if self._hides_keys:
            data = value["additional_data"]
            value["additional_data"] = {name: text for name, text in data.items() if name not in _ROW_KEYS}
        return self._records.encode(notification.key(), value)
