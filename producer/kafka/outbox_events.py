"""Outbox events: rows inserted into an outbox table enter, events with their topic, key and id leave (pure).

As Debezium's `EventRouter` with its defaults, and with string converters: the key is the aggregate's id, the value is the
payload as the column has it, the header `id` is the event's id, the topic is named after the aggregate's type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from schemas import topics
from schemas.columns import TableSchema
from schemas.errors import ConfigError, DecodeError
from schemas.types.column_facts import BINARY_TYPES

if TYPE_CHECKING:
    from rowcodec import Records, TableCodec
    from schemas.settings import OutboxSettings

ROUTED: Final = "${routedByValue}"


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One record of an outbox topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    id: bytes


class Outbox:
    """The events of one version of an outbox table. `codec` writes its rows as plain JSON."""

    def __init__(self, table: TableSchema, codec: TableCodec, settings: OutboxSettings) -> None:
        self._table = table
        self.codec = codec
        self._settings = settings
        names = {column.name for column in table.columns} - table.dropped
        for key in ("id", "key", "payload", "route_by"):
            if getattr(settings, key) not in names:
                message = (
                    f"records.outbox.{key}: {table.full_name} has no column {getattr(settings, key)!r}; it has "
                    f"{', '.join(sorted(names))}"
                )
                raise ConfigError(message)

    def events(self, records: Records) -> Iterator[OutboxEvent]:
        """Yield the events of inserted rows; `DecodeError` for one that names no topic."""
        offsets = records.value_offsets.tolist()
        for index in range(records.count):
            row = json.loads(records.values[offsets[index] : offsets[index + 1]])["after"]
            yield self._event(row)

    def _event(self, row: Mapping[str, Any]) -> OutboxEvent:
        route, ident = self._bytes(row, self._settings.route_by), self._bytes(row, self._settings.id)
        if not route or ident is None:
            reason = (
                f"a row of the outbox table {self._table.full_name} has no {self._settings.route_by} or no "
                f"{self._settings.id}: its event has no topic, or no id"
            )
            raise DecodeError(reason)
        topic = topics.sanitise(self._settings.topic.replace(ROUTED, route.decode()))
        if len(topic) > topics.MAX_TOPIC_LENGTH:
            reason = f"outbox topic {topic!r} is longer than the {topics.MAX_TOPIC_LENGTH} characters Kafka allows"
            raise DecodeError(reason)
        return OutboxEvent(topic, self._bytes(row, self._settings.key), self._bytes(row, self._settings.payload), ident)

    def _bytes(self, row: Mapping[str, Any], name: str) -> bytes | None:
        value = row[name]
        if value is None:
            return None
        if self._table.column(name).type in BINARY_TYPES:
            return base64.b64decode(value)
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()
