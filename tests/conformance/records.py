"""Whole topics of either side as records of schema and payload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from tests.support.topics import Record, read_topics
from tidemark.api.record_decoding import Decoder


class TopicReader:
    """Reads whole topics. Equal schemas are one and the same object, so that they are compared once."""

    def __init__(self, bootstrap_servers: str, registry: str | None = None) -> None:
        self._servers = bootstrap_servers
        self._decoder = Decoder(registry)
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

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
        decode = self._decoder.decode
        return replace(record, key=decode(record.key), value=decode(record.value))
