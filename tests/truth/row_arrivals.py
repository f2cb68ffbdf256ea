"""Looks for the rows in Kafka and in the lake, by clients of its own: nothing of Tidemark says here what has arrived."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from schemas.overriding import override
from tests.truth.known_rows import KnownRows

_TOPICS_S: Final = 1.0
_LAKE_S: Final = 0.5
_WIRE_HEADER: Final = 5
"""Magic byte and schema id of a key in the registry's format."""


class _Watcher:
    """A thread that looks until it is left; what it fails with ends the run (`failure`)."""

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self.failure = error

    def _run(self) -> None:
        raise NotImplementedError


class KafkaArrivals(_Watcher):
    """Reads committed records only. A record is not in Kafka before its producer made it, and is when it is seen here.

    `topics` has the table of each topic, and may grow. `strange` are topics whose records are counted only, in `counted`.
    """

    def __init__(self, bootstrap_servers: str, topics: dict[str, str], rows: KnownRows) -> None:
        super().__init__("kafka-arrivals")
        self.topics, self._rows = topics, rows
        self.counted: dict[str, list[float]] = {}
        options = {"group.id": "truth", "enable.auto.commit": False, "isolation.level": "read_committed", "fetch.wait.max.ms": 100}
        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "topic.metadata.refresh.interval.ms": 1000, **options})

    @override
    def _run(self) -> None:
        assigned: list[TopicPartition] = []
        looked_s = 0.0
        while not self._ended.is_set():
            missing = set(self.topics) - {one.topic for one in assigned}
            if missing and time.monotonic() - looked_s > _TOPICS_S:
                looked_s = time.monotonic()
                new = self._new(missing)
                if new:
                    self._consumer.incremental_assign(new)
                    assigned += new
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._came(message)
        self._consumer.close()

    def _new(self, missing: set[str]) -> list[TopicPartition]:
        try:
            listed = self._consumer.list_topics(timeout=5).topics
        except KafkaException:
            return []
        found = {topic: listed[topic].partitions for topic in missing if topic in listed}
        return [TopicPartition(topic, number, OFFSET_BEGINNING) for topic, numbers in found.items() for number in numbers]

    def _came(self, message: Any) -> None:
        seen_s, topic, key = time.time(), message.topic(), message.key()
        made_s = message.timestamp()[1] / 1000
        if "-snapshot" in topic:
            if key:
                self.counted.setdefault(topic, []).append(made_s)
            return
        if key is not None and key[:1] == b"\0" and message.value() is not None:
            self._rows.came_into_kafka(self.topics[topic], _number_of(key), made_s, seen_s)


def _number_of(key: bytes) -> int:
    """Return the key of one INT column, from Avro's form."""
    value = shift = 0
    for byte in key[_WIRE_HEADER:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return (value >> 1) ^ -(value & 1)


class LakeArrivals(_Watcher):
    """Reads what each new commit of the Delta tables adds. Its file's time is when it was written, and then it is soon seen."""

    def __init__(self, folder: Path, tables: Callable[[], list[str]], rows: KnownRows) -> None:
        super().__init__("lake-arrivals")
        self._folder, self._tables, self._rows = folder, tables, rows
        self._done: dict[Path, int] = {}

    @override
    def _run(self) -> None:
        while not self._ended.wait(_LAKE_S):
            for table in self._tables():
                self._look(table)

    def _look(self, table: str) -> None:
        log = self._folder / table / "_delta_log"
        while (commit := log / f"{self._done.get(log, -1) + 1:020}.json").exists():
            seen_s, made_s = time.time(), commit.stat().st_mtime
            actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines() if line.strip()]
            for added in (action["add"] for action in actions if "add" in action):
                path = log.parent / urllib.parse.unquote(added["path"])
                with contextlib.suppress(FileNotFoundError):  # replaced since
                    for number in pq.read_table(path, columns=["id"])["id"].to_pylist():
                        self._rows.came_into_sink(table, number, made_s, seen_s)
            self._done[log] = self._done.get(log, -1) + 1
