"""The memory twin, alone and behind faults that do not happen: no Spark, no Delta."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

from spark_jobs.sinks.contract import Columns, Sink
from spark_jobs.sinks.faulty import Faults, faulty
from spark_jobs.sinks.memory_sink import MemoryCommit, MemorySink, MemoryStorage, StoredTable
from tests.sinks.append_behaviour import AppendBehaviour, AppendLab
from tests.sinks.behaviour import COLUMNS, NAME, QUERY, Lab, SinkBehaviour
from tests.sinks.kept_behaviour import KeptRowsBehaviour
from tests.sinks.load_behaviour import LoadBehaviour
from tests.sinks.schema_behaviour import SchemaBehaviour
from tests.sinks.shared_behaviour import SharedTargetBehaviour


class LocalFrame:
    """What a sink in memory reads of a frame."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> None:
        self._rows = [LocalRow(zip([name for name, _ in columns], row, strict=True)) for row in rows]

    def collect(self) -> list[LocalRow]:
        return self._rows


class LocalRow(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:  # noqa: N802 - as Spark's rows
        return dict(self)


class MemoryLab(Lab):
    def __init__(self, *, is_faulty: bool) -> None:
        self._storage = MemoryStorage()
        self._is_faulty = is_faulty
        self._copy: StoredTable | None = None

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = MemorySink(self._storage, lambda: query)
        return faulty(sink, faults or Faults()) if faults is not None or self._is_faulty else sink

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        return LocalFrame(rows, columns)

    @property
    def _table(self) -> StoredTable:
        return self._storage.tables[NAME]

    def rows(self) -> list[dict[str, Any]]:
        return list(self._table.rows.values())

    def stamps(self) -> list[Mapping[str, Any]]:
        stamps = [one.stamp for one in self._table.commits if one.stamp is not None and one.step != "compact"]
        return [{"query_id": one.query_id, "batch_id": one.batch_id, **one.progress} for one in stamps]

    def quarantined(self) -> list[int]:
        return [row["offset"] for row in self._storage.quarantined]

    def keep_copy(self) -> None:
        self._copy = copy.deepcopy(self._table)

    def put_back(self) -> None:
        assert self._copy is not None
        self._storage.tables[NAME] = self._copy

    def replace(self) -> None:
        self._table.rows = {}
        self._table.commits.append(MemoryCommit(None, "OVERWRITE", replaces=True))

    def remove(self) -> None:
        del self._storage.tables[NAME]

    def meddle(self) -> None:
        self._table.commits.append(MemoryCommit(None, "OPTIMIZE"))

    def make_foreign(self) -> None:
        self._storage.tables[NAME] = StoredTable(COLUMNS, commits=[MemoryCommit(None, "CREATE")])

    def second_writer(self) -> AbstractContextManager[None]:
        return self.open(query="second").exclusive(self.spark, 0)


class TestMemory(SinkBehaviour, LoadBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour):
    @pytest.fixture
    def lab(self) -> Lab:
        return MemoryLab(is_faulty=False)


class TestFaultyMemory(SinkBehaviour, LoadBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour):
    @pytest.fixture
    def lab(self) -> Lab:
        return MemoryLab(is_faulty=True)


class MemoryAppendLab(AppendLab):
    def __init__(self) -> None:
        self._storage = MemoryStorage()

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        return faulty(MemorySink(self._storage, lambda: query), faults or Faults())

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        return LocalFrame(rows, columns)

    def ops(self) -> list[tuple[str, str, str | None]]:
        table = self._storage.tables.get(self.name, StoredTable())
        return [(one["_tm_source"], one["_tm_change "], one.get("_tm_position")) for one in table.events]


class TestMemoryChangelog(AppendBehaviour):
    @pytest.fixture
    def lab(self) -> AppendLab:
        return MemoryAppendLab()
