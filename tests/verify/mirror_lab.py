"""Mirrors in topics as a job would have written them: messages of changelog-json, and a table of the same columns without rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from schemas.identity import TableName
from schemas.settings import Settings, from_mapping
from schemas.topics import target_topic
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name


class MirrorTopics:
    """The topics of a sink. Rows have the column `id`, which is their key."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self._template = f"{unique_name('mirrors')}.$database.$table"
        sink = {"name": "stream", "type": "kafka", "path": str(folder), "topic": self._template}
        self.settings: Settings = from_mapping(
            {
                "name": "verify",
                "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
                "source": {"tables": [".*"]},
                "sinks": [sink],
            }
        )
        self._topics = TopicAdmin(cluster(kafka.bootstrap_servers))
        # Idempotent: of two requests in flight a retried one would come behind the other, and the order is what is tested.
        self._producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "enable.idempotence": True})
        self._there: dict[TableName, dict[int, dict[str, Any]]] = {}

    def topic(self, name: TableName) -> str:
        return target_topic(self._template, name.database, name.table)

    def write(self, name: TableName, rows: pa.Table) -> None:
        """Make a target equal to rows. One that is new had another row before, and each row was another one first."""
        write_deltalake(self.settings.sink.table_path(name.database, name.table), rows.slice(0, 0), mode="overwrite", schema_mode="overwrite")
        was = self._there.get(name, {-77: {"id": -77, "_tm_position": "", "_tm_source": "gone"}})
        if name not in self._there:
            self._topics.ensure({self.topic(name): 3})
            self.send(name, "+I", was[-77])
        now = {row["id"]: row for row in rows.to_pylist()}
        for key in was.keys() - now.keys():
            self.send(name, "-D", was[key])
        for key, row in now.items():
            if key not in was:
                self.send(name, "+I", {**row, "v": "spoiled"})
            self.send(name, "-U", was.get(key, {**row, "v": "spoiled"}))
            self.send(name, "+U", row)
        self._producer.flush(60)
        self._there[name] = now

    def send(self, name: TableName, op: str, row: dict[str, Any]) -> None:
        data = {column: value for column, value in row.items() if not column.startswith("_tm_")}
        own = {column: row.get(column) for column in ("_tm_position", "_tm_source")}
        self._producer.produce(self.topic(name), json.dumps({"data": data, "op": op, **own}), json.dumps({"id": row["id"]}))

    def flush(self) -> None:
        self._producer.flush(60)
