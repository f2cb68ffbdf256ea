"""One table written by the JVM, which marks rows as deleted, and by delta-rs, which copies files, in any order: the rows are right."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.identity import SourceId, SourceTable, Target
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.contract import Winners
from spark_jobs.sinks.delta import arrow_put, writes
from spark_jobs.sinks.delta.arrow_put import ArrowPut, RangedPut, delete_where
from spark_jobs.sinks.delta.table_schema import create_table
from spark_jobs.sinks.delta.target import DeltaTarget, KnownTable
from spark_jobs.sinks.delta.writer_choice import WriterRules
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE
from spark_jobs.sinks.worker_writes import PutDeclinedError, PutShape
from tidemark.verify.delta_reader import DeltaRows as Reader
from tidemark.verify.sink_reader import KeySpan

ROWS = 400
COLUMNS = (("id", T.LongType()), ("v", T.LongType()))
TYPES = T.StructType(
    [T.StructField("id", T.LongType()), T.StructField("v", T.LongType()), T.StructField(POSITION, T.StringType())]
)
Model = dict[int, tuple[int, str]]


def stamp(batch: int) -> Stamp:
    return Stamp("q", batch, "s.t", {})


def has_vectors(path: Path) -> bool:
    return DeltaTable(str(path)).metadata().configuration.get("delta.enableDeletionVectors") == "true"


def filled(path: Path) -> Model:
    create_table(str(path), COLUMNS, stamp(0))
    ids = list(range(ROWS))
    for part in (ids[: ROWS // 2], ids[ROWS // 2 :]):
        rows = pa.table({"id": pa.array(part), "v": pa.array(part), POSITION: pa.array([f"p{0:03}"] * len(part))})
        write_deltalake(str(path), rows, mode="append")
    return {number: (number, "p000") for number in ids}


def batch_of(number: int, model: Model, rng: random.Random) -> pa.Table:
    """Twelve rows of a newer position, and what they make of the model."""
    ids = rng.sample(range(ROWS + 20), 12)
    gone = [rng.random() < 0.4 for _ in ids]
    position = f"p{number:03}"
    for one, is_gone in zip(ids, gone, strict=True):
        model.pop(one, None)
        if not is_gone:
            model[one] = (one * number, position)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array([one * number for one in ids], pa.int64()),
            POSITION: pa.array([position] * len(ids)),
            DELETED: pa.array(gone),
        }
    )


def by_delta_rs(path: Path) -> Model:
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT * FROM t").read_all()
    rows = pa.table(found).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["v"], row[POSITION]) for row in rows}


def test_the_jvm_with_deletion_vectors_and_delta_rs_take_turns_and_every_reader_finds_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, rng = tmp_path / "t", random.Random(11)
    model = filled(path)
    assert writes.enable_vectors(spark, str(path), stamp(1))
    assert not writes.enable_vectors(spark, str(path), stamp(1)), "a step that is run again does nothing"
    for number, by_jvm in enumerate((True, True, False, True, False, False, True), 1):
        rows = batch_of(number, model, rng)
        if by_jvm:
            frame = spark.createDataFrame(rows.to_pylist(), T.StructType([*TYPES, T.StructField(DELETED, T.BooleanType())]))
            writes.merge(frame, str(path), ("id",), ("id", "v"), stamp(number), "")
        for _ in range(2):  # the put of a batch that is there does nothing
            ArrowPut(str(path), ("id",), ("id", "v"), "tidemark/q/s.t/merge", number, stamp(number).metadata).run(rows)
        assert by_delta_rs(path) == model, number
    assert list(DeltaTable(str(path)).deletion_vectors()), "the last MERGE has marked rows"
    reader = Reader(str(path))
    assert reader.count() == len(model)
    assert sorted(row["id"] for row in spark.read.format("delta").load(str(path)).collect()) == sorted(model)
    assert delete_where(str(path), ("id", "v"), f"{POSITION} < 'p003'", "tidemark/q/s.t/floor", stamp(8))
    model = {number: row for number, row in model.items() if row[1] >= "p003"}
    assert by_delta_rs(path) == model
    assert Reader(str(path)).count() == len(model)
    writes.compact(spark, str(path), stamp(8))
    assert by_delta_rs(path) == model


def test_verify_reads_the_rows_that_are_left_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    filled(path)
    writes.enable_vectors(spark, str(path), stamp(1))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 7 = 0 AND id > 20")
    assert list(DeltaTable(str(path)).deletion_vectors())
    reader = Reader(str(path))
    left = [number for number in range(ROWS) if number % 7 or number <= 20]
    found = [number for batch in reader.read(["id"]) for number in batch["id"].to_pylist()]
    assert sorted(found) == left
    chosen = [row for batch in reader.read(["v"], KeySpan("id", None, 30)) for row in batch["v"].to_pylist()]
    assert chosen == [number for number in left if number < 30]
    assert reader.count() == len(left)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_put_that_a_worker_declines_is_done_by_the_jvm_which_marks_rows_if_it_may(
    spark: SparkSession, tmp_path: Path, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    model = filled(path)
    table, known = SourceTable.of(SourceId("s"), "s", "t"), KnownTable()
    target = DeltaTarget(spark, path, Target("s", "t"), [table], "q", known, WriterRules(has_vectors=allowed), PLAIN_SHAPE)
    offered = target.worker_put(PutShape(("id",), COLUMNS, "id", None, 12), stamp(1))
    assert isinstance(offered, RangedPut)
    rows = batch_of(1, model, random.Random(5))
    before = DeltaTable(str(path)).version()
    with monkeypatch.context() as patched:
        patched.setattr(arrow_put, "chosen_writer", lambda *_: "jvm")
        with pytest.raises(PutDeclinedError, match="12 rows into files with 400 rows"):
            offered.run(rows)
    assert DeltaTable(str(path)).version() == before
    target.note_declined()
    frame = spark.createDataFrame(rows.to_pylist(), T.StructType([*TYPES, T.StructField(DELETED, T.BooleanType())]))
    with target.commit(stamp(1)) as writer:
        writer.put(Winners(frame, ("id",), COLUMNS))
    assert has_vectors(path) == allowed
    offered.run(rows)  # whichever of the two runs first, or again
    assert by_delta_rs(path) == model


def test_the_driver_opens_a_table_once_for_all_batches_that_workers_put(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rng = tmp_path / "t", random.Random(5)
    model = filled(path)
    opened: list[str] = []
    monkeypatch.setattr("spark_jobs.sinks.delta.target.why_not", lambda path, *_: opened.append(path))
    known, table = KnownTable(), SourceTable.of(SourceId("s"), "s", "t")
    for number, has_succeeded in enumerate((True, True, False, True), 1):
        target = DeltaTarget(spark, path, Target("s", "t"), [table], "q", known, WriterRules(), PLAIN_SHAPE)
        offered = target.worker_put(PutShape(("id",), COLUMNS, "id", None, 12), stamp(number))
        assert offered is not None
        if has_succeeded:
            offered.run(batch_of(number, model, rng))
            target.note_put(COLUMNS)
    assert len(opened) == 2, "at first, and after a worker that has not done it"
    assert by_delta_rs(path) == model
