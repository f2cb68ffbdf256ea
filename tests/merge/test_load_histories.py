"""Random histories whose windows are read by the merge job in part, through deaths of the job: the source's rows in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.markers import CloseMarker, LoadMarker, Marker
from schemas.merge_rule import Entry
from tests.merge.chunks import Chunks
from tests.merge.conftest import SinkFactory
from tests.merge.history import History
from tests.merge.lake import Crash, amounts, progress
from tests.merge.test_spark_model import SHAPE, Dying, Played, topics_of
from tests.merge.topics import TableTopics

MOST_PIECES = 400


class PlayedWithLoads(Played):
    """A close marker of a window that the job reads is not written before the job has answered."""

    def __init__(self, history: History, topics: TableTopics, seed: int, chunks: Chunks) -> None:
        super().__init__(history, topics, seed)
        self._chunks = chunks
        self._answered: set[str] = set()
        for window, reads in history.loads.items():
            chunks.has_records(window, *([self._record(entry) for entry in rows] for rows in reads))

    def _record(self, entry: Entry) -> tuple[bytes | None, bytes]:
        row = {"id": entry.key, "amount": entry.row}
        return self._topics.key(row), self._topics.value("r", None, row, entry.version)

    def _produce(self, part: tuple[str, int], count: int) -> None:
        self._answered |= {one.window for one in self._chunks.answers() if not one.error}
        start = self._next[part]
        for number, record in enumerate(self._records(part)[start : start + count]):
            if isinstance(record, CloseMarker) and record.loaded and record.window not in self._answered:
                count = number
                break
        super()._produce(part, count)

    def _marker(self, marker: Marker) -> None:
        if isinstance(marker, LoadMarker):
            marker = replace(marker, value_schema=self._topics.value_id, key_schema=self._topics.key_id)
        super()._marker(marker)


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow), pytest.param(13, marks=pytest.mark.slow)])
def test_a_history_with_loads_ends_in_the_rows_of_the_source(
    seed: int, spark: SparkSession, merge_settings: SinkFactory, tmp_path: Path
) -> None:
    settings = merge_settings(max_batch_records=400)
    history = History(seed, replace(SHAPE, loads=0.7)).run()
    topics, chunks, dying = topics_of(settings), Chunks(spark, settings, tmp_path / "chunks"), Dying(seed)
    for number, _ in enumerate(PlayedWithLoads(history, topics, seed, chunks).produce_pieces(most=130)):
        assert number < MOST_PIECES
        merge_through_crashes(chunks, dying)
    chunks.merge()
    assert amounts(settings) == history.source
    assert history.counts["windows loaded"] > 3
    assert history.counts["loads given up"] > 0
    assert len(chunks.reads()) > history.counts["windows loaded"]
    assert dying.deaths > 0
    found = progress(settings)
    assert (found["tombstones"], found["lacks"]) == (0, None)
    assert found["consistent_at"] is not None


def merge_through_crashes(chunks: Chunks, dying: Dying) -> None:
    while True:
        try:
            chunks.merge(dying)
        except Crash:
            continue
        return
