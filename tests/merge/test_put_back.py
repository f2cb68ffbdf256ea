"""The merge job and a table, a sink or a checkpoint that somebody has removed, put back or replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, merge_all, progress, rows, topics_of
from tests.merge.topics import TableTopics

PutBack = Callable[[SparkSession, Path, Path], None]


def test_a_table_that_vanished_is_not_made_anew_from_the_rest(
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
    assert amounts(spark, settings) == {"one": 1, "two": 2}


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
    assert amounts(spark, settings) == {"one": 1}


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


PUT_BACK: dict[str, PutBack] = {one.__name__.replace("_", ""): one for one in (restored, copied_back, replaced, overwritten)}
"""By the name of the table that it is done to; a name with `_` would be looked up in the state topic."""


def copy_of(path: Path) -> Path:
    return path.with_name(f"copy-of-{path.name}")


def put_all_back(spark: SparkSession, paths: Mapping[str, Path]) -> None:
    for name, put_back in PUT_BACK.items():
        put_back(spark, paths[name], copy_of(paths[name]))


def write(topics: Mapping[str, TableTopics], *numbers: int) -> None:
    """A row of each number into every table."""
    for number in numbers:
        for one in topics.values():
            one.change("c", {"id": str(number), "amount": number}, at(100 + number, 1).text)
    flush(*topics.values())


@pytest.mark.parametrize("running", [True, False], ids=["while_it_runs", "between_two_runs"])
def test_a_table_that_was_put_back_or_replaced_stops_the_job(
    spark: SparkSession, merge_settings: SinkFactory, running: bool
) -> None:
    """Each batch is one record of each table: nothing that a batch wrote may be missing from what the next one writes to.

    Four tables, each put back in a way of its own, are set aside by one batch; where none may be, the job stops.
    """
    settings = merge_settings(max_batch_records=len(PUT_BACK))
    schemas = {name: replace(ORDERS, name=name) for name in PUT_BACK}
    topics = {name: topics_of(settings, schema, snapshot=False) for name, schema in schemas.items()}
    paths = {name: Path(settings.sink.table_path("shop", name)) for name in PUT_BACK}

    def step(name: str, batch_id: int) -> None:
        if (name, batch_id) == ("told", 0):
            for path in paths.values():
                shutil.copytree(path, copy_of(path))
        if (name, batch_id) == ("told", 1) and running:
            put_all_back(spark, paths)

    write(topics, *range(3 if running else 2))
    merge_all(spark, settings, step)
    if not running:
        put_all_back(spark, paths)
        write(topics, 2)
        merge_all(spark, settings)
    reasons = {name: progress(settings, schema)["set_aside"]["reason"] for name, schema in schemas.items()}
    assert [name for name, reason in reasons.items() if "snapshot the tables again" not in reason] == []
    write(topics, 3)
    with pytest.raises(SinkError, match="snapshot the tables again"):
        merge_all(spark, replace(settings, on_table_error="stop"))
    for schema in schemas.values():
        assert not {"2", "3"} & {row["id"] for row in rows(spark, settings, schema)}


def test_a_checkpoint_that_was_put_back_is_refused_and_one_with_the_sink_goes_on(
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
    assert amounts(spark, settings) == {"0": 0, "1": 1}
    assert newer.exists()

    # The whole sink put back, checkpoint and all, is a sink of yesterday: it goes on from there.
    shutil.rmtree(sink)
    older.rename(sink)
    merge_all(spark, settings)
    assert amounts(spark, settings) == {"0": 0, "1": 1, "2": 2}
