"""The writer without a JVM: each batch once, whatever the names and values, and nothing of a table that it cannot write exactly."""

from __future__ import annotations

import json
import os
import pickle
import random
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.delta.arrow_limits import open_table, why_not
from spark_jobs.sinks.delta.arrow_put import (
    ArrowPut,
    RangedPut,
    UnsupportedTableError,
    compact_files,
    remove_expired_commits,
)
from spark_jobs.sinks.stamp import Stamp

KEYS = ["id", "*", "s", "t", 'a"b', "a`b", "a'b", "a.b", "a%20b", "a#b", "Ä日", "select", "c0", "gone"]


def table(rows: list[tuple[Any, Any, str]], key: str = "id") -> pa.Table:
    keys, values, positions = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    columns = [pa.array(keys, pa.int64()), pa.array(values, pa.decimal128(20, 0)), pa.array(positions, pa.string())]
    return pa.table(columns, names=[key, "Value", POSITION])


def batch(rows: list[tuple[int, int | None, str]], key: str = "id") -> pa.Table:
    """Rows of a batch: a value of None is a delete."""
    made = table([(one, None if value is None else Decimal(value), at) for one, value, at in rows], key)
    return made.append_column(DELETED, pa.array([value is None for _, value, _ in rows], pa.bool_()))


def put(path: Path, version: int = 1, key: str = "id", **more: Any) -> ArrowPut:
    return ArrowPut(str(path), (key,), (key, "Value"), "tidemark/q/t/merge", version, '{"tidemark":1}', **more)


def values(path: Path, key: str = "id") -> dict[int, tuple[int, str]]:
    rows = pa.table(open_table(str(path)).to_pyarrow_table()).to_pylist()
    assert len({row[key] for row in rows}) == len(rows)
    return {row[key]: (int(row["Value"]), row[POSITION]) for row in rows}


def made(path: Path, key: str = "id") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    write_deltalake(path.as_uri(), table([(k, Decimal(k), "p2") for k in (1, 2, 3)], key))
    return path


@pytest.mark.parametrize("key", KEYS)
def test_rows_of_any_column_name_and_path_change_for_newer_ones_only(key: str, tmp_path: Path) -> None:
    path = made(tmp_path / "t #'\"`ü{x}?*[a]$;:&+=,@@00", key)
    rows = [(1, 10, "p3"), (2, 20, "p1"), (3, None, "p3"), (4, None, "p3"), (5, 2**64 - 1, "p1")]
    pickle.loads(pickle.dumps(put(path, key=key))).run(batch(rows, key))  # noqa: S301
    assert values(path, key) == {1: (10, "p3"), 2: (2, "p2"), 5: (2**64 - 1, "p1")}


def test_a_batch_is_put_once_also_when_it_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    put(path).run(batch([(1, 0, "p1")]))
    found = open_table(str(path))
    assert (found.version(), found.transaction_version("tidemark/q/t/merge")) == (1, 1)
    put(path).run(batch([(9, 9, "p9")]))
    assert open_table(str(path)).version() == 1
    put(path, 2, append=True).run(batch([(7, 7, "p9"), (8, None, "p9")]))
    put(path, 2, append=True).run(batch([(7, 7, "p9"), (8, None, "p9")]))
    assert set(values(path)) == {1, 2, 3, 7}
    info = json.loads((path / "_delta_log" / f"{2:020}.json").read_text(encoding="utf-8").splitlines()[0])["commitInfo"]
    assert info["userMetadata"] == '{"tidemark":1}'


def test_an_attempt_that_loses_against_another_at_the_same_moment_leaves_its_rows_out(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    ours, stale = put(path), open_table(str(path))
    ours.run(batch([(5, 5, "p9")]))
    with pytest.raises(Exception, match=r"transaction"):
        ours._write(stale, batch([(5, 5, "p9")]))
    ours.run(batch([(5, 5, "p9")]))
    assert set(values(path)) == {1, 2, 3, 5}


def test_random_batches_give_what_a_dictionary_gives(tmp_path: Path) -> None:
    for seed in range(5):
        rng, path = random.Random(seed), made(tmp_path / str(seed))
        rows = values(path)
        for version in range(1, 8):
            keys = rng.sample(range(12), rng.randint(0, 12))
            changes = [(key, None if rng.random() < 0.3 else rng.randint(0, 2**64 - 1), f"p{rng.randint(1, 9)}") for key in keys]
            put(path, version, key_range=("id", 0, 11) if rng.random() < 0.5 else None).run(batch(changes))
            for key, value, position in changes:
                if key in rows and position <= rows[key][1]:
                    continue
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = (value, position)
            assert values(path) == rows, f"seed {seed}"


def test_statistics_of_a_file_have_no_decimal_that_a_double_has_not(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    put(path).run(batch([(1, 2**64 - 1, "p3")]))
    (found,) = pa.table(open_table(str(path)).get_add_actions(flatten=True)).to_pylist()
    assert (found["max.id"], found["min.Value"], found["max.Value"]) == (3, None, None)


def test_small_files_become_one_and_no_row_changes(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    for number in range(3, 8):
        put(path, number, append=True).run(batch([(number * 10, number, "p9"), (number * 10 + 1, 2**64 - 1, "p9")]))
    stamp = Stamp("q", 9, "s.t", {})
    before = values(path)
    assert len(open_table(str(path)).file_uris()) > 1
    assert compact_files(str(path), ("id", "Value"), stamp)
    found = open_table(str(path))
    assert (len(found.file_uris()), values(path)) == (1, before)
    commit = (path / "_delta_log" / f"{found.version():020}.json").read_text(encoding="utf-8").splitlines()
    actions = [json.loads(line) for line in commit]
    assert all(one.get("add", one.get("remove", {"dataChange": False}))["dataChange"] is False for one in actions)
    assert [one["commitInfo"]["userMetadata"] for one in actions if "commitInfo" in one] == [stamp.metadata]
    assert compact_files(str(path), ("id", "Value"), stamp), "a table with nothing to do"
    assert open_table(str(path)).version() == found.version()
    assert not compact_files(str(path), ("id",), stamp), "a table with other columns is the JVM's"


def test_a_table_that_cannot_be_written_exactly_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table([(1, Decimal(1), "p1")]), partition_by=["id"])
    assert why_not(str(path), ("id", "Value"), ("id",)) == "it has partition columns"
    with pytest.raises(UnsupportedTableError, match="partition columns"):
        put(path).run(batch([(1, 1, "p3")]))
    other = made(tmp_path / "other")
    assert why_not(str(other), ("id", "Value"), ("id",)) is None
    assert why_not(str(other), ("id",), ("id",)) == "its columns are not those of the batch"
    DeltaTable(str(other)).alter.set_table_properties({"delta.appendOnly": "true"})
    assert why_not(str(other), ("id", "Value"), ("id",)) == "it has the property delta.appendOnly"
    with pytest.raises(UnsupportedTableError, match="percent sign"):
        replace(put(other), path=str(tmp_path / "a%20b")).run(batch([]))


def test_commits_that_the_log_need_not_keep_are_removed_behind_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = {"delta.logRetentionDuration": "interval 7 days", "delta.checkpointInterval": "5"}
    path.mkdir()
    for number in range(8):
        write_deltalake(path.as_uri(), table([(number, Decimal(number), "p1")]), mode="append", configuration=properties)
    log, before = path / "_delta_log", values(path)
    remove_expired_commits(str(path))
    assert (log / f"{0:020}.json").exists(), "it is young"
    old = time.time() - 9 * 24 * 3600
    for file in log.iterdir():
        os.utime(file, (old, old))
    remove_expired_commits(str(path))
    assert sorted(file.name for file in log.glob("*.json")) == [f"{number:020}.json" for number in range(4, 8)]
    assert values(path) == before


@pytest.mark.parametrize(("known", "operation"), [((0, 3), "WRITE"), ((0, 4), "MERGE"), (None, "MERGE")])
def test_rows_above_all_keys_that_the_table_ever_had_are_appended(
    known: tuple[int, int] | None, operation: str, tmp_path: Path
) -> None:
    path = made(tmp_path / "t")
    RangedPut(put(path), "id", known).run(batch([(4, 40, "p1"), (5, None, "p1")]))
    assert open_table(str(path)).history(1)[0]["operation"] == operation
    assert values(path) == {1: (1, "p2"), 2: (2, "p2"), 3: (3, "p2"), 4: (40, "p1")}
