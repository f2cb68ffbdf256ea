"""The merge job and a table, a sink or a checkpoint that somebody has removed, put back or replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, merge_all, topics_of

PutBack = Callable[[SparkSession, Path, Path], None]


def test_a_table_that_vanished_is_not_created_again_from_the_rest(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = replace(merge_settings(), on_table_error="stop")
    topics = topics_of(settings, ORDERS)
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    path = Path(settings.sink.table_path("shop", "orders"))
    aside = path.rename(path.with_name("aside"))
    topics.change("c", {"id": "two", "amount": 2}, at(200, 1).text)
    flush(topics)
    with pytest.raises(SinkError, match="is gone"):
        merge_all(spark, settings)
    assert not path.exists()
    aside.rename(path)
    merge_all(spark, settings)
    assert amounts(settings) == {"one": 1, "two": 2}


def test_sink_and_checkpoint_must_belong_together(spark: SparkSession, merge_settings: SinkFactory) -> None:
    settings = replace(merge_settings(), on_table_error="stop")
    topics = topics_of(settings, ORDERS, snapshot=False)
    topics.change("c", {"id": "one", "amount": 1}, at(100, 1).text)
    flush(topics)
    merge_all(spark, settings)
    service = Path(settings.sink.service_path)
    (service / "checkpoint").rename(service / "elsewhere")
    with pytest.raises(SinkError, match=r"not the one this sink was written with.*snapshot the tables again"):
        merge_all(spark, settings)
    (service / "progress.json").rename(service / "progress.old")
    with pytest.raises(SinkError, match=r"the sink has batch 0, its checkpoint .* ends at -1"):
        merge_all(spark, settings)
    (service / "state").rename(service / "state.old")
    with pytest.raises(SinkError, match="was last written by batch 0 of query"):
        merge_all(spark, settings)
    assert amounts(settings) == {"one": 1}


def restored(spark: SparkSession, path: Path, _copy: Path) -> None:
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 0")


def copied_back(_spark: SparkSession, path: Path, copy: Path) -> None:
    shutil.rmtree(path)
    copy.rename(path)


def replaced(spark: SparkSession, path: Path, _copy: Path) -> None:
    mine = spark.read.format("delta").load(str(path)).limit(1).localCheckpoint()
    shutil.rmtree(path)
    mine.write.format("delta").save(str(path))


def overwritten(spark: SparkSession, path: Path, _copy: Path) -> None:
    mine = spark.read.format("delta").load(str(path)).limit(1).localCheckpoint()
    mine.write.format("delta").mode("overwrite").save(str(path))


@pytest.mark.parametrize("put_back", [restored, copied_back, replaced, overwritten])
@pytest.mark.parametrize("running", [True, False], ids=["while_it_runs", "between_two_runs"])
def test_a_table_that_was_put_back_or_replaced_stops_the_job(
    spark: SparkSession, merge_settings: SinkFactory, put_back: PutBack, running: bool
) -> None:
    """Each batch is one record: nothing that a batch wrote may be missing from what the next one writes to."""
    settings = replace(merge_settings(max_batch_records=1), on_table_error="stop")
    topics = topics_of(settings, ORDERS, snapshot=False)
    path = Path(settings.sink.table_path("shop", "orders"))
    for number in range(2 if not running else 3):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(topics)

    def step(name: str, batch_id: int) -> None:
        if (name, batch_id) == ("published", 0):
            shutil.copytree(path, path.with_name("copy"))
        if (name, batch_id) == ("published", 1) and running:
            put_back(spark, path, path.with_name("copy"))

    words = "snapshot the tables again"
    if running:
        with pytest.raises(SinkError, match=words):
            merge_all(spark, settings, step)
    else:
        merge_all(spark, settings, step)
        put_back(spark, path, path.with_name("copy"))
        topics.change("c", {"id": "2", "amount": 2}, at(102, 1).text)
        flush(topics)
    with pytest.raises(SinkError, match=words):
        merge_all(spark, settings)
    assert "2" not in amounts(settings)


def test_a_checkpoint_that_was_put_back_is_refused_and_one_with_the_sink_continues(
    spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = merge_settings()
    topics = topics_of(settings, ORDERS, snapshot=False)
    sink, checkpoint = Path(settings.sink.path), Path(settings.sink.service_path) / "checkpoint"
    older = sink.with_name("older")
    for number in range(2):
        topics.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
        flush(topics)
        merge_all(spark, settings)
        if number == 0:
            shutil.copytree(sink, older)
    newer = checkpoint.rename(checkpoint.with_name("newer"))
    shutil.copytree(older / "_tidemark" / "checkpoint", checkpoint)
    with pytest.raises(SinkError, match=r"the sink has batch 1, its checkpoint .* ends at 0.*snapshot the tables again"):
        merge_all(spark, settings)
    (sink / "_tidemark" / "progress.json").rename(sink / "progress.old")
    topics.change("c", {"id": "2", "amount": 2}, at(102, 1).text)
    flush(topics)
    with pytest.raises(SinkError, match=r"the sink has batch 1, its checkpoint .* ends at 0"):
        merge_all(spark, settings)
    assert amounts(settings) == {"0": 0, "1": 1}
    assert newer.exists()

    # The whole sink put back, checkpoint and all, is a sink of yesterday: it continues from there.
    shutil.rmtree(sink)
    older.rename(sink)
    merge_all(spark, settings)
    assert amounts(settings) == {"0": 0, "1": 1, "2": 2}
