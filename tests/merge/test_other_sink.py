"""The merge job over a sink that is not Delta, and dies in each of its steps: the merge knows a sink by its contract only."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from schemas.identity import Target
from schemas.markers import CompleteMarker, HeartbeatMarker
from schemas.settings import Settings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.merge.context import checkpoint_of
from spark_jobs.merge.table_batch import TableBatch
from spark_jobs.sinks.faulty import Faults, InjectedCrashError, faulty
from spark_jobs.sinks.memory_sink import MemorySink, MemoryStorage
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, at, flush, marker, progress, topics_of


class Lake:
    """Jobs on one storage, each of which begins with nothing but the storage and the checkpoint."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.storage = MemoryStorage()
        self._spark, self._settings = spark, settings

    def merge(self, point: str | None = None) -> None:
        """Merge all, through a crash at a point if one is given."""
        faults = Faults()
        if point is not None:
            faults.crash_at(point)
            with pytest.raises(InjectedCrashError):
                self._run(faults)
        self._run(faults)

    def _run(self, faults: Faults) -> None:
        checkpoint = checkpoint_of(SinkLayout.of(self._settings.sink))
        sink = faulty(MemorySink(self.storage, lambda: checkpoint.query_id or ""), faults)
        MergeJob(self._settings, spark=self._spark, sink=sink).run(until_caught_up=True)

    @property
    def amounts(self) -> dict[str, int]:
        rows = self.storage.tables[Target("lake", "shop.orders")].rows.values()
        return {row["id"]: row["amount"] for row in rows}


def test_the_rows_of_the_source_are_in_any_sink_whatever_step_the_job_dies_in(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = merge_settings()
    lake, topics = Lake(spark, settings), topics_of(settings, ORDERS)
    for number in range(4):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, number % 2)
    topics.put(topics.changes, 0, b"garbage", b"\x01garbage")
    flush(topics)
    lake.merge("after put")
    assert lake.amounts == {str(number): number for number in range(4)}
    assert [row["offset"] for row in lake.storage.quarantined] == [2]

    topics.change("u", {"id": "1", "amount": 10}, at(200, 1).text)
    topics.change("d", {"id": "2", "amount": 2}, at(201, 1).text)
    marker(topics, HeartbeatMarker, 220, 90)
    flush(topics)
    lake.merge("before save")
    assert lake.amounts == {"0": 0, "1": 10, "3": 3}

    topics.row({"id": "2", "amount": 2}, at(150).text)  # late: the tombstone stops it
    marker(topics, HeartbeatMarker, 300, 300)
    flush(topics)
    lake.merge()
    assert lake.amounts == {"0": 0, "1": 10, "3": 3}

    topics.row({"id": "1", "amount": 10}, at(350).text, 1)
    topics.row({"id": "4", "amount": 4}, at(350).text)
    marker(topics, CompleteMarker, 400, 350, request="again", first_bound=at(350), whole_table=True, rows=2)
    flush(topics)
    lake.merge("before delete_between")
    assert lake.amounts == {"1": 10, "4": 4}
    assert progress(settings)["consistent_at"] == at(400).text


def test_workers_decode_for_any_sink_and_leave_no_file(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_spark: list[object] = []
    monkeypatch.setattr(TableBatch, "merge_records", lambda *given: by_spark.append(given))
    settings = merge_settings()
    lake, topics = Lake(spark, settings), topics_of(settings, ORDERS)
    topics.change("c", {"id": "1", "amount": 1}, at(100, 1).text)
    flush(topics)
    lake.merge()
    topics.change("u", {"id": "1", "amount": 10}, at(200, 1).text)
    topics.change("c", {"id": "2", "amount": 2}, at(201, 1).text)
    flush(topics)
    lake.merge()
    assert not by_spark
    assert lake.amounts == {"1": 10, "2": 2}
    assert not SinkLayout.of(settings.sink).kept_rows.exists()
