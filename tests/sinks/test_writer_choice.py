"""The choice between two writers that give the same rows: costs decide, and what delta-rs cannot write is never given to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.sinks.delta.arrow_limits import open_table
from spark_jobs.sinks.delta.touched_files import touched_files
from spark_jobs.sinks.delta.writer_choice import (
    NOTHING,
    Size,
    WriterName,
    WriterRules,
    WriterSetting,
    chosen_writer,
)

AUTO = WriterRules()
LARGE = Size(3_000_000, 4 << 30)


def of_bench(rows: int) -> Size:
    """Files with so many rows of the benchmark's table."""
    return Size(rows, rows * 28)


@pytest.mark.parametrize(
    ("batch", "touched", "writer"),
    [
        (2, of_bench(3), "arrow"),
        (250_000, of_bench(1_000_000), "arrow"),
        (1_000_000, of_bench(5_000_000), "arrow"),
        (1_000_000, of_bench(20_000_000), "arrow"),
        (100, of_bench(1_000_000), "arrow"),
        (100, of_bench(20_000_000), "arrow"),
        (100, LARGE, "jvm"),
        (2_000_000, LARGE, "jvm"),
    ],
)
def test_the_cheaper_writer_is_chosen(batch: int, touched: Size, writer: WriterName) -> None:
    assert chosen_writer(Size(batch, batch * 200), touched, None, AUTO) == writer


def test_without_deletion_vectors_the_jvm_is_never_cheaper() -> None:
    rules = WriterRules(memory_bytes=16 << 30)
    assert chosen_writer(Size(100), LARGE, None, rules) == "jvm"
    assert chosen_writer(Size(100), LARGE, None, replace(rules, has_vectors=False)) == "arrow"
    assert chosen_writer(Size(2_000_000, 400_000_000), LARGE, None, rules) == "arrow"


@pytest.mark.parametrize("has_vectors", [True, False])
def test_files_that_take_more_than_the_memory_of_a_worker_are_left_to_the_jvm(*, has_vectors: bool) -> None:
    rules = WriterRules(memory_bytes=300 << 20, has_vectors=has_vectors)
    assert chosen_writer(Size(2), Size(1_000_000, 100 << 20), None, rules) == "arrow"
    assert chosen_writer(Size(2), Size(1_000_000, (100 << 20) + 1), None, rules) == "jvm"


@pytest.mark.parametrize("forced", ["auto", "arrow", "jvm"])
def test_a_table_that_delta_rs_cannot_write_is_the_jvms_whatever_the_setting(forced: WriterSetting) -> None:
    assert chosen_writer(Size(2), Size(3), "it has partition columns", WriterRules(forced)) == "jvm"


def test_a_setting_forces_a_writer_whatever_it_costs() -> None:
    assert chosen_writer(Size(100), LARGE, None, WriterRules("arrow")) == "arrow"
    assert chosen_writer(Size(2), Size(3), None, WriterRules("jvm")) == "jvm"


@pytest.mark.parametrize(
    ("keys", "column", "files"), [([3], "id", 1), ([3, 27], "id", 2), ([12, 99], "id", 1), ([99], "id", 0), ([3], None, 3)]
)
def test_files_that_cannot_have_a_key_are_not_touched(keys: list[int], column: str | None, files: int, tmp_path: Path) -> None:
    for first in (0, 10, 20):
        write_deltalake(str(tmp_path), pa.table({"id": pa.array(range(first, first + 10), pa.int64())}), mode="append")
    found = touched_files(open_table(str(tmp_path)), pa.table({"id": pa.array(keys, pa.int64())}), column)
    assert found.rows == files * 10
    assert (found.bytes > 0) == (files > 0)


def test_files_of_an_empty_table_are_nothing(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"id": pa.array([], pa.int64())}))
    rows = pa.table({"id": pa.array([1], pa.int64())})
    assert touched_files(open_table(str(tmp_path)), rows, "id").rows == NOTHING.rows
