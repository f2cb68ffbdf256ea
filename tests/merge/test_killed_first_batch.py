"""A merge job that is killed while Spark writes down the offsets of its first batch: the next one must start."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.store.files import LocalFiles

LEFT = (".0.67f38485-7a2d-42e4-a66d-695abb8eb7c3.tmp", "..0.67f38485-7a2d-42e4-a66d-695abb8eb7c3.tmp.crc", ".0.crc")


def run(spark: SparkSession, folder: Path) -> list[int]:
    """Run a query over text files to the end of what is there; return the batches that it had."""
    batches: list[int] = []
    lines = spark.readStream.text(str(folder / "lines"))
    writer = lines.writeStream.foreachBatch(lambda _, number: batches.append(number)).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    return batches


def test_what_is_left_of_the_first_batch_keeps_no_query_from_starting(spark: SparkSession, tmp_path: Path) -> None:
    offsets, checkpoint = tmp_path / "checkpoint" / "offsets", SparkCheckpoint(LocalFiles(tmp_path), "checkpoint")
    offsets.mkdir(parents=True)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "1.txt").write_text("a\n", encoding="utf-8")
    for name in LEFT:
        (offsets / name).write_text("v1\n", encoding="utf-8")
    with pytest.raises(StreamingQueryException, match="should be empty on batch 0"):
        run(spark, tmp_path)
    checkpoint.remove_unfinished()
    assert run(spark, tmp_path) == [0]
    before = {file.name for file in offsets.iterdir()}
    (offsets / ".1.67f38485-7a2d-42e4-a66d-695abb8eb7c3.tmp").write_text("v1\n", encoding="utf-8")
    checkpoint.remove_unfinished()
    assert before < {file.name for file in offsets.iterdir()}, "later batches are Spark's own affair"
    (tmp_path / "lines" / "2.txt").write_text("b\n", encoding="utf-8")
    assert run(spark, tmp_path) == [1]
