"""What the benchmark writes into a lake, and that it notices a lake that is not as the source."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from bench import lake_rows
from bench.lake_source import FIRST_CHANGE, SPREAD, Sums
from bench.scene import BenchError
from schemas.position import Position

ROWS = 50


def truth(keys: range) -> Sums:
    texts = [f"{key}|{key % 1000}|name {key}|{key % 1000 / 4:.2f}" for key in keys]
    return Sums(len(keys), sum(keys), sum(key % 1000 for key in keys), sum(zlib.crc32(text.encode()) for text in texts))


def test_rows_that_were_never_changed_have_the_sums_of_the_source(tmp_path: Path) -> None:
    lake_rows.append_base(tmp_path / "t", 0, 20)
    lake_rows.append_base(tmp_path / "t", 20, ROWS)

    lake_rows.require_sums(tmp_path / "t", truth(range(ROWS)))
    lake_rows.require_whole(tmp_path / "t", ROWS, sum(range(ROWS)))
    assert lake_rows.rows_in_log(tmp_path / "t") == ROWS


def test_rows_appended_to_a_table_of_ours_are_older_than_what_it_has(tmp_path: Path) -> None:
    at = Position(0, 3, 500, 1)
    made = pa.table({"id": pa.array([9], pa.int64()), "a": pa.array([9], pa.int32()), lake_rows.POSITION: [at.text]})
    write_deltalake(str(tmp_path / "t"), made)

    lake_rows.append_base(tmp_path / "t", 0, 9)

    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()[lake_rows.POSITION].to_pylist()
    assert len(set(found)) == 10
    assert max(found) == at.text


@pytest.mark.parametrize("keys", [range(ROWS - 1), range(1, ROWS), range(ROWS + 1)])
def test_a_lake_that_is_not_as_the_source_is_refused(tmp_path: Path, keys: range) -> None:
    lake_rows.append_base(tmp_path / "t", 0, ROWS)

    with pytest.raises(BenchError, match="is not as the source"):
        lake_rows.require_sums(tmp_path / "t", truth(keys))
    with pytest.raises(BenchError, match="is not as the source"):
        lake_rows.require_whole(tmp_path / "t", len(keys), sum(keys))


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    lake_rows.append_base(tmp_path / "t", 0, ROWS)
    lake_rows.append_base(tmp_path / "t", 3, 4)

    with pytest.raises(BenchError, match="is not as the source"):
        lake_rows.require_whole(tmp_path / "t", ROWS + 1, sum(range(ROWS)) + 3)


@pytest.mark.parametrize("rows", [1_000_000, 5_000_000, 20_000_000, 250_000])
def test_keys_of_uniform_changes_are_all_different(rows: int) -> None:
    numbers = np.arange(min(rows, 1_000_000), dtype=np.int64)

    assert len(np.unique(numbers * SPREAD % rows)) == len(numbers)
    assert int((numbers % 1000).max()) < FIRST_CHANGE
