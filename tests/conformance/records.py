"""Topics of either side as records of schema and payload, Connect's JSON and Confluent's Avro alike."""

from __future__ import annotations

import io
import json
import struct
import urllib.request
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import fastavro
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from tests.support.topics import Record, read_topics

PAYLOAD: Final = b',"payload":'
FRAME: Final = struct.Struct(">bI")


class TopicReader:
    """Reads whole topics. Equal schemas are one and the same object, so that they are compared once."""

    def __init__(self, bootstrap_servers: str, registry: str | None = None) -> None:
        self._servers = bootstrap_servers
        self._registry = registry
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._block = cache(json.loads)
        self._avro = cache(self._fetched)

    def existing(self) -> set[str]:
        """All topics there are."""
        return set(self._admin.list_topics(timeout=30).topics)

    def read(self, topic: str) -> list[Record]:
        """Every committed record; none when the topic does not exist."""
        return self.read_all([topic])[topic]

    def read_all(self, topics: Iterable[str]) -> dict[str, list[Record]]:
        """Every committed record of some topics."""
        wanted = list(topics)
        there = self.existing()
        found = read_topics(self._servers, [topic for topic in wanted if topic in there], raw=True)
        return {topic: [self._parsed(record) for record in found.get(topic, ())] for topic in wanted}

    def _parsed(self, record: Record) -> Record:
        return replace(record, key=self._decoded(record.key), value=self._decoded(record.value))

    def _decoded(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if data[:1] == b"\0":
            _, ident = FRAME.unpack_from(data)
            schema, parsed = self._avro(ident)
            payload: Any = fastavro.schemaless_reader(io.BytesIO(data[FRAME.size :]), parsed, None)
        else:
            head, separator, tail = data.partition(PAYLOAD)
            if not (separator and head.startswith(b'{"schema":')):
                message = f"not a record with schema and payload: {data[:80]!r}"
                raise ValueError(message)
            schema, payload = self._block(head.removeprefix(b'{"schema":')), json.loads(tail[:-1])
        return None if schema is None else {"schema": schema, "payload": payload}

    def _fetched(self, ident: int) -> tuple[Any, Any]:
        """The schema of an id as the registry holds it, and parsed."""
        with urllib.request.urlopen(f"{self._registry}/schemas/ids/{ident}") as answer:  # noqa: S310
            schema = json.loads(json.load(answer)["schema"])
        return schema, fastavro.parse_schema(schema)
