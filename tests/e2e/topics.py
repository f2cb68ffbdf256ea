"""What a consumer sees: records decoded with the registry's schemas, only those of committed transactions."""

from __future__ import annotations

import io
import json
import struct
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro

from schemas import topics
from schemas.documents import SchemaIdDocument
from schemas.settings import Settings
from tests.support.topics import Record, read_topic, read_topics

_WIRE = struct.Struct(">bI")


@dataclass(frozen=True, slots=True)
class Change:
    """A record of a change topic that is no tombstone."""

    partition: int
    offset: int
    key: dict[str, Any] | None
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    position: str


class RecordReader:
    """Decodes wire-format Avro, and JSON without schemas.

    With `kept` by what the producer's state topic keeps of ids, as the merge job does: for a registry that lost its memory.
    """

    def __init__(self, settings: Settings, *, kept: bool = False) -> None:
        self._settings = settings
        self._schema = cache(self._fetch)
        self._kept = self._read_kept() if kept else {}

    def records(self, topic: str) -> list[tuple[int, int, Any, Any]]:
        """Partition, offset, key and value of every record, partition by partition."""
        found = read_topic(self._settings.kafka.bootstrap_servers, topic, raw=True)
        return list(self._decoded(topic, found))

    def changes(self, database: str, table: str) -> list[Change]:
        """The changes of a table, partition by partition, tombstones left out."""
        return self.changes_of_tables(database, [table])[table]

    def changes_of_tables(self, database: str, tables: Iterable[str]) -> dict[str, list[Change]]:
        """The same of several tables, through one consumer."""
        names = {topics.change_topic(self._settings.name, database, table): table for table in tables}
        found = read_topics(self._settings.kafka.bootstrap_servers, list(names), raw=True)
        return {table: self._changes(topic, found[topic]) for topic, table in names.items()}

    def _decoded(self, topic: str, records: Iterable[Record]) -> Iterator[tuple[int, int, Any, Any]]:
        subjects = topics.key_subject(topic), topics.value_subject(topic)
        for r in records:
            yield r.partition, r.offset, self.decode(r.key, subjects[0]), self.decode(r.value, subjects[1])

    def _changes(self, topic: str, records: list[Record]) -> list[Change]:
        return [
            Change(
                partition, offset, key,
                value["op"], value["before"], value["after"], value["source"]["sequence"],
            )
            for partition, offset, key, value in self._decoded(topic, records)
            if value is not None
        ]  # fmt: skip

    def decode(self, data: bytes | None, subject: str = "") -> Any:
        if data is None:
            return None
        if data[:1] != b"\0":
            return json.loads(data)
        _, ident = _WIRE.unpack_from(data)
        schema = self._kept.get((subject, ident)) or self._schema(ident)
        return fastavro.schemaless_reader(io.BytesIO(data[_WIRE.size :]), schema, None)

    def _read_kept(self) -> dict[tuple[str, int], Any]:
        """The parsed schemas by subject and id."""
        found = read_topic(self._settings.kafka.bootstrap_servers, topics.state_topic(self._settings.name), raw=True)
        documents = [json.loads(r.value) for r in found if (r.key or b"").startswith(SchemaIdDocument.PREFIX.encode()) and r.value]
        return {(one["subject"], one["id"]): fastavro.parse_schema(json.loads(one["schema"])) for one in documents}

    def _fetch(self, ident: int) -> Any:
        with urllib.request.urlopen(f"{self._settings.format.registry}/schemas/ids/{ident}") as answer:  # noqa: S310
            return fastavro.parse_schema(json.loads(json.load(answer)["schema"]))


def plain(value: Any) -> Any:
    """Numbers as numbers: an unsigned bigint is a Decimal in Avro and an int in mysql-replication."""
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value


@dataclass(frozen=True, slots=True)
class Notification:
    """One answer or step."""

    id: str
    aggregate_type: str
    type: str
    data: dict[str, str]


class Notifications:
    """The notifications topic of a pipeline."""

    def __init__(self, settings: Settings) -> None:
        self._reader = RecordReader(settings)
        self._bootstrap_servers = settings.kafka.bootstrap_servers
        self._topic = topics.notifications_topic(settings.name)

    def read(self) -> list[Notification]:
        """All of them, oldest first."""
        return [
            Notification(value["id"], value["aggregate_type"], value["type"], value["additional_data"] or {})
            for _, _, _, value in self._reader.records(self._topic)
        ]

    def of(self, ident: str) -> list[Notification]:
        return [notification for notification in self.read() if notification.id == ident]
