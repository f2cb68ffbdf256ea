"""How long changes were on their way to the lake, whichever writer brought them there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.delay_histogram import BOUNDS_S
from schemas.json_codec import decode
from schemas.merge_progress import MergeProgress
from schemas.settings import Settings
from spark_jobs.merge.rule import _MOST_TIMES
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, at, flush, merge_all, topics_of

HALF_AN_HOUR_AT_MOST, LONGER = len(BOUNDS_S) - 1, len(BOUNDS_S)


def counts(settings: Settings) -> dict[int, int]:
    """The delays that the progress document counts: by the index of the bound, where there are any."""
    text = (Path(settings.sink.path) / "_tidemark" / "progress.json").read_text(encoding="utf-8")
    found = decode(MergeProgress, json.loads(text)).tables[f"{ORDERS.database}.{ORDERS.name}"].delays
    assert found is not None
    return {index: count for index, count in enumerate(found.counts) if count}


@pytest.mark.parametrize("writer", ["arrow", "jvm"])
def test_each_writer_counts_changes_from_their_commit_and_no_row_of_a_snapshot(
    spark: SparkSession, merge_settings: SinkFactory, writer: str
) -> None:
    """The first batch makes the table, the second merges into it; records that cannot be merged have no delay."""
    settings = merge_settings(writer)
    topics = topics_of(settings, ORDERS)
    topics.committed_ms = int((time.time() - 1_000) * 1000)
    for number in range(3):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, 0)
    topics.committed_ms = int((time.time() - 7_200) * 1000)
    topics.row({"id": "9", "amount": 9}, at(90, 1).text)
    flush(topics)
    merge_all(spark, settings)
    assert counts(settings) == {HALF_AN_HOUR_AT_MOST: 3}
    topics.change("u", {"id": "1", "amount": 7}, at(200, 1).text, 0)
    topics.change("d", {"id": "2", "amount": 2}, at(201, 1).text, 0)
    flush(topics)
    merge_all(spark, settings)
    assert counts(settings) == {LONGER: 2}, "a job begins with none"


def test_many_changes_that_spark_merges_are_counted_by_some_of_them(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = merge_settings("jvm")
    topics = topics_of(settings, ORDERS)
    for number in range(4 * _MOST_TIMES):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text, number % 2)
    flush(topics)
    merge_all(spark, settings)
    found = counts(settings)
    assert set(found) == {LONGER}
    assert _MOST_TIMES / 2 <= found[LONGER] <= 2 * _MOST_TIMES
