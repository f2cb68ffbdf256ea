"""The files of older versions of a Delta table go after its retention; all else in the folder that a reader needs stays."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.identity import Target
from spark_jobs.sinks.delta import writes
from spark_jobs.sinks.delta.delta_sink import DeltaSink
from spark_jobs.sinks.delta.table_schema import create_table
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.store.sink_layout import SinkLayout

COLUMNS = (("id", T.LongType()), ("v", T.LongType()))
TABLE = Target("lake", "shop.t")
HOUR_S = 3600.0


def sink_of(folder: Path) -> DeltaSink:
    return DeltaSink(SinkLayout(folder), lambda: "q")


def made(spark: SparkSession, folder: Path, retention: str | None) -> Path:
    """Return a table of one row that was written three times, so that two files are of older versions."""
    path = folder / "shop" / "t"
    create_table(str(path), COLUMNS, Stamp("q", 0, "shop.t", {}))
    if retention is not None:
        names = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
        properties = ", ".join(f"'{name}' = '{retention}'" for name in names if "0 hours" not in retention or name == names[0])
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
    for value in range(3):
        row = pa.table({"id": pa.array([1]), "v": pa.array([value])})
        stamped = CommitProperties(custom_metadata={"userMetadata": Stamp("q", value, "shop.t", {}).metadata})
        write_deltalake(str(path), row, mode="overwrite", schema_mode="merge", commit_properties=stamped)
    return path


def aged(path: Path, hours: float) -> None:
    """Let all files of a table, and their removals, be so old."""
    old = time.time() - hours * HOUR_S
    for file in path.glob("[!_]*.*"):
        os.utime(file, (old, old))
    for checksum in (path / "_delta_log").glob(".*.crc"):
        checksum.unlink()
    for commit in (path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = int(1000 * old)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.*") if "_delta_log" not in file.parts}


def live(path: Path) -> set[str]:
    return {Path(file).name for file in DeltaTable(str(path)).file_uris()}


def rows(path: Path) -> list[dict[str, int]]:
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT id, v FROM t ORDER BY id").read_all()
    return pa.table(found).to_pylist()


@pytest.mark.parametrize(
    ("retention", "stays_h", "goes_h"),
    [
        (None, 24 * 7 - 1, 24 * 7 + 1),
        ("interval 30 days", 24 * 29, 24 * 31),
        ("interval 2 days", 47, 49),
        ("interval 0 hours", 23, 25),
    ],
)
def test_a_file_of_an_older_version_goes_after_the_retention_of_its_table_and_none_that_was_written_within_a_day(
    spark: SparkSession, tmp_path: Path, retention: str | None, stays_h: float, goes_h: float
) -> None:
    path = made(spark, tmp_path, retention)
    version = DeltaTable(str(path)).version()
    (path / "of_a_lost_batch.parquet").write_text("x", encoding="utf-8")
    for hours in (stays_h, goes_h):
        aged(path, hours)
        (path / "being_written.parquet").write_text("x", encoding="utf-8")
        before = files(path)
        assert len(before) == 5
        assert sink_of(tmp_path).remove_old_files(spark, TABLE)
        assert files(path) == (before if hours == stays_h else live(path) | {"being_written.parquet"})
        assert rows(path) == [{"id": 1, "v": 2}]
        assert DeltaTable(str(path)).version() == version, "nothing is committed"


def test_the_vectors_that_mark_rows_as_deleted_stay(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs takes such a file for one that no version has, so it is not asked to remove any."""
    path = made(spark, tmp_path, None)
    writes.enable_vectors(spark, str(path), Stamp("q", 1, "shop.t", {}))
    many = pa.table({"id": pa.array(range(2, 200)), "v": pa.array(range(2, 200))})
    write_deltalake(str(path), many, mode="append", schema_mode="merge")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 7 = 0")
    aged(path, 24 * 8)
    left = rows(path)
    vectors = {name for name in files(path) if name.endswith(".bin")}
    assert vectors
    sink_of(tmp_path).remove_old_files(spark, TABLE)
    kept = files(path)
    assert {name for name in kept if name.endswith(".bin")} == vectors
    assert {name for name in kept if name.endswith(".parquet")} == live(path)
    assert rows(path) == left
    assert len(spark.read.format("delta").load(str(path)).collect()) == len(left)


def test_the_jvm_keeps_nothing_of_a_table_that_it_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """Two hundred tables that workers write would be two hundred lists of files in its heap."""
    path = made(spark, tmp_path, None)
    delta = spark.sparkContext._gateway.jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    logs = getattr(getattr(delta, "DeltaLog$"), "MODULE$")
    before = logs.cacheSize()
    spark.read.format("delta").load(str(path)).collect()
    assert logs.cacheSize() == before + 1
    sink_of(tmp_path).remove_old_files(spark, TABLE)
    assert logs.cacheSize() == before


def test_a_target_that_is_not_there_has_no_old_files(spark: SparkSession, tmp_path: Path) -> None:
    assert not sink_of(tmp_path).remove_old_files(spark, TABLE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("query", [None, "another"])
def test_a_table_of_somebody_else_is_left_alone(spark: SparkSession, tmp_path: Path, query: str | None) -> None:
    path = tmp_path / "shop" / "t"
    if query is None:
        write_deltalake(str(path), pa.table({"id": pa.array([1]), "v": pa.array([1])}))
    else:
        create_table(str(path), COLUMNS, Stamp(query, 0, "shop.t", {}))
    (path / "of_a_lost_batch.parquet").write_text("x", encoding="utf-8")
    aged(path, 24 * 8)
    before = files(path)
    assert not sink_of(tmp_path).remove_old_files(spark, TABLE)
    assert files(path) == before
