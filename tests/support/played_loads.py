"""The merge job's part of a load, played by a thread: it reads chunks by the real client, keeps the rows, and answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pytest

from kafkaio.schema_registry import HttpRegistry, RegisteredSchema
from mysqlio.server_facts import identity_of
from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from schemas.position import Position
from schemas.settings import Settings, SinkSettings
from spark_jobs.loads.chunk_source import TableChunks
from tests.support.memory_log import Durable, MemoryLog, begin, settings_for
from tests.support.snapshots import Source

Pairs = list[tuple[bytes | None, bytes]]
Play = Callable[[TableChunks, LoadMarker], LoadAnswer | None]


@dataclass
class MemoryRegistry:
    """A registry in memory, for the producer (`register`) and for the merge job (`versions`)."""

    known: dict[str, list[str]] = field(default_factory=dict)

    def register(self, subject: str, schema: str) -> int:
        texts = self.known.setdefault(subject, [])
        if schema not in texts:
            texts.append(schema)
        return self.number(subject, texts.index(schema))

    def number(self, subject: str, index: int) -> int:
        return 1 + index + 10 * subject.endswith("-value")

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        texts = self.known.get(subject, [])
        return tuple(RegisteredSchema(self.number(subject, i), text, i + 1) for i, text in enumerate(texts))

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Answer what the merge job asks the registry by HTTP."""
        monkeypatch.setattr(HttpRegistry, "versions", lambda _, subject: self.versions(subject))


def load_settings(source: Source, **snapshot: Any) -> Settings:
    """Settings with which the merge job can be asked for chunks."""
    settings = settings_for(source.server, source.schema)
    wire = replace(settings.format, type="avro", registry="http://127.0.0.1:9")
    asked = replace(settings.snapshot, **{"via": "spark", "load_rows": 100, "loads": 3, **snapshot})
    return replace(settings, format=wire, sinks=(SinkSettings(path="/lake"),), snapshot=asked)


def load_log(source: Source, registry: MemoryRegistry, durable: Durable | None = None, **snapshot: Any) -> MemoryLog:
    settings = load_settings(source, **snapshot)
    return MemoryLog(
        settings,
        durable or begin(settings),
        source.tables,
        registry=registry,
        server=identity_of(source.connection),
        connector="mariadb" if source.server.name.startswith("mariadb") else "mysql",
    )


def marker_of(draft: Any) -> LoadMarker:
    """The marker of a draft, as the log reader writes it."""
    fields = {**draft.fields, "position": Position.parse(draft.fields["position"]), "low": Position.parse(draft.fields["low"])}
    return LoadMarker(table=draft.table, horizon=Position.MINIMUM, partitions=1, partition=0, **fields)


def pairs(blocks: Any) -> Pairs:
    """Keys and values of blocks, as they are."""
    return [pair for keys, values in blocks for pair in zip(keys.to_pylist(), values.to_pylist(), strict=True)]


class PlayedMergeJob:
    """A thread that carries the load markers of a log out. `play` decides what becomes of one; None: no answer."""

    def __init__(self, log: MemoryLog, play: Play | None = None) -> None:
        self._log = log
        self._play = play or self.load
        self._source = TableChunks(log.settings)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="merge-job")
        self._error: BaseException | None = None
        self._seen = len(log.durable.marked("load"))
        self.rows: dict[str, Pairs] = {}
        self.asked: list[LoadMarker] = []

    def load(self, source: TableChunks, load: LoadMarker) -> LoadAnswer:
        """Read the rows and answer how many there are."""
        database, table = load.table.split(".")
        self.rows[load.window] = pairs(source.read(database, table, load))
        return LoadAnswer(load.window, len(self.rows[load.window]))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                drafts = self._log.durable.marked("load")
                for draft in drafts[self._seen :]:
                    self._seen += 1
                    load = marker_of(draft)
                    self.asked.append(load)
                    answer = self._play(self._source, load)
                    if answer is not None:
                        self._source.answer([answer])
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self._error = error
