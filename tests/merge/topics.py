"""A producer's topics for tests of the merge job: framed envelopes, markers, registered schemas.

Plays log reader and chunk readers without a database: what is written is what the test says.
"""

from __future__ import annotations

import io
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, TopicMetadata

from kafkaio.topic_admin import TopicAdmin
from schemas.avro import to_avro
from schemas.columns import TableSchema
from schemas.documents import TopicsDocument
from schemas.markers import MARKER_KEY, Marker
from schemas.state import PARTITIONS, partition_of
from schemas.topics import (
    change_topic,
    key_subject,
    snapshot_topic,
    state_topic,
    value_subject,
)
from schemas.types.connect import key_schema, value_schema
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster

PATIENCE_S = 120

Row = Mapping[str, Any]


class TableTopics:
    """The change and snapshot topic of one table, written one record at a time."""

    def __init__(
        self,
        bootstrap: str,
        registry: str,
        prefix: str,
        table: TableSchema,
        partitions: int = 2,
        *,
        snapshot: bool = True,
    ) -> None:
        self.prefix = prefix
        self.table = table
        self.partitions = partitions
        self.committed_ms = 1  # `source.ts_ms` of what is written from here on
        self.changes = change_topic(prefix, table.database, table.name)
        self.snapshots = snapshot_topic(prefix, table.database, table.name)
        self._bootstrap, self._registry = bootstrap, registry
        self._producer = self._connected()
        self.ends: dict[str, dict[int, int]] = {self.changes: {}, self.snapshots: {}}
        self._topics = [self.changes, *([self.snapshots] if snapshot else [])]
        self._make()
        self.alter(table)

    def _make(self, *topics: str) -> None:
        TopicAdmin(cluster(self._bootstrap)).ensure(dict.fromkeys(topics or self._topics, self.partitions))

    def create_again(self, *topics: str) -> None:
        """Delete the topics (none named: both), and make them again under the same names."""
        names = topics or tuple(self._topics)
        self.delete(*names)
        self._make(*names)
        self.ends |= {name: {} for name in names}
        self._producer = self._connected()

    def delete(self, *topics: str) -> None:
        """Delete the topics."""
        names = list(topics or self._topics)
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for gone in admin.delete_topics(names).values():
            gone.result(PATIENCE_S)
        self._wait_for(lambda known: not any(name in names for name in known))

    def _connected(self) -> RecordProducer:
        """A producer that keeps the order of records also where the first of them are sent again, for want of a leader."""
        in_order = "max.in.flight.requests.per.connection"
        return RecordProducer({"bootstrap.servers": self._bootstrap, "linger.ms": 5, "log_level": 0, in_order: 1})

    def _wait_for(self, condition: Callable[[Mapping[str, TopicMetadata]], bool]) -> None:
        """Until the topics that the broker lists are so: it answers a change of them before it knows of it."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        deadline = time.monotonic() + PATIENCE_S
        while not condition(admin.list_topics(timeout=PATIENCE_S).topics):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def alter(self, table: TableSchema) -> None:
        """Write with another version of the table from here on."""
        self.table = table
        value, key = value_schema(table, self.prefix, "mysql"), key_schema(table, self.prefix)
        self.value_id, self._value = self._register(value_subject(self.changes), to_avro(value))
        if key is not None:
            self.key_id, self._key = self._register(key_subject(self.changes), to_avro(key))

    def _register(self, subject: str, text: str) -> tuple[int, Any]:
        request = urllib.request.Request(  # noqa: S310 - a loopback registry
            f"{self._registry}/subjects/{subject}/versions",
            json.dumps({"schema": text, "schemaType": "AVRO"}).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request) as response:  # noqa: S310
            return int(json.load(response)["id"]), fastavro.parse_schema(json.loads(text))

    def key(self, row: Row) -> bytes | None:
        """The key record of a row; none of a table without a key."""
        if not self.table.record_key:
            return None
        return self._framed(self.key_id, self._key, {name: row[name] for name in self.table.record_key})

    def value(self, op: str, before: Row | None, after: Row | None, version: str) -> bytes:
        """An envelope."""
        source = {
            "version": "3.6.1.Final", "connector": "mysql", "name": self.prefix, "ts_ms": self.committed_ms,
            "snapshot": "false", "db": self.table.database, "sequence": version, "ts_us": 1, "ts_ns": 1,
            "table": self.table.name, "server_id": 1, "gtid": None, "file": "binlog.000001", "pos": 4,
            "row": 0, "thread": None, "query": None,
        }  # fmt: skip
        envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": op}
        return self._framed(self.value_id, self._value, envelope | {"ts_ms": 1, "ts_us": 1, "ts_ns": 1})

    @staticmethod
    def _framed(schema_id: int, schema: Any, record: Any) -> bytes:
        buffer = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
        buffer.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(buffer, schema, record)
        return buffer.getvalue()

    def put(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Any record."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.ends[topic][partition] = self.ends[topic].get(partition, 0) + 1

    def change(self, op: str, row: Row, version: str, partition: int = 0, before: Row | None = None) -> None:
        """A change of a row; a delete is followed by its tombstone."""
        key = self.key(row)
        before, after = (row, None) if op == "d" else (before, row)
        self.put(self.changes, partition, key, self.value(op, before, after, version))
        if op == "d":
            self.put(self.changes, partition, key, None)

    def row(self, row: Row, low: str, partition: int = 0) -> None:
        """A snapshot row."""
        self.put(self.snapshots, partition, self.key(row), self.value("r", None, row, low))

    def marker(self, marker: Marker) -> None:
        """A marker, in every partition."""
        for one in marker.for_partitions():
            self.one_marker(one)

    def one_marker(self, marker: Marker) -> None:
        """A marker, in its own partition only."""
        self.put(self.snapshots, marker.partition, MARKER_KEY, marker.to_bytes())

    @property
    def change_offsets(self) -> dict[int, int]:
        """What a marker written now says about the change topic."""
        return dict(self.ends[self.changes])

    def register(self) -> None:
        """Say in the producer's state that it has topics of this table."""
        names = {"database": self.table.database, "table": self.table.name}
        document = json.dumps({"v": 1, **names, "partitions": self.partitions})
        topic = state_topic(self.prefix)
        TopicAdmin(cluster(self._bootstrap)).ensure({topic: PARTITIONS})
        key = f"{TopicsDocument.PREFIX}{self.table.full_name}".encode()
        self._producer.produce(topic, document.encode(), key, partition_of(key.decode()))
        self.flush()

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Have Kafka forget the records before an offset."""
        partition_offset = TopicPartition(topic, partition, offset)
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for done in admin.delete_records([partition_offset]).values():
            done.result(PATIENCE_S)

    def widen(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)
        self._wait_for(lambda known: topic in known and len(known[topic].partitions) == partitions)
        self._producer = self._connected()  # the old one learns of it within minutes

    def flush(self) -> None:
        """All records are in Kafka."""
        self._producer.flush(PATIENCE_S)
