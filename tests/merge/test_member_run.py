"""A table of a group read by a worker, without Spark: its newest rows, what is counted, and the tombstones it leaves."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaio.slices import SNAPSHOT
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION
from spark_jobs.merge.worker_records import TooManyRowsError
from spark_jobs.merge.worker_run import newest_rows, put_rows
from spark_jobs.merge.worker_task import DECLINED, Admission, MemberTask, TaskResult, TombstonePaths
from spark_jobs.sinks.worker_writes import PutDeclinedError, WorkerPut
from tests.arrow.test_arrow_decoder import PLAN, record
from tests.merge.lake import at

Record = tuple[bytes | None, bytes | None]


def task(folder: Path, *, keeps_changes: bool = False, read: tuple[str, ...] = (), count: int = 0) -> MemberTask:
    paths = TombstonePaths(read, count, str(folder / "new"), replaces=False)
    admission = Admission({}, "", at(4).text)
    return MemberTask(DecoderPlan.of(PLAN), PLAN.keys, admission, paths, keeps_changes, str(folder / "results" / "one"))


def read(one: MemberTask, changes: list[Record], snapshot: list[Record] | None = None) -> dict[int, tuple[bool, str]]:
    """The rows as id → deleted, position."""
    rows = snapshot or []
    keys, values = zip(*changes, *rows, strict=True)
    flags = [False] * len(changes) + [True] * len(rows)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    table = pa.table({SNAPSHOT: flags, "partition": [0] * len(flags), **columns})
    found = pa.Table.from_batches(list(newest_rows(one, iter(table.to_batches()))))
    assert found.column_names == [*(name for name, _ in PLAN.columns), DELETED, POSITION]
    return {row["id"]: (row[DELETED], row[POSITION]) for row in found.to_pylist()}


def result(one: MemberTask) -> TaskResult:
    found = pickle.loads(Path(one.result).read_bytes())  # noqa: S301 - written here
    assert isinstance(found, TaskResult)
    return found


def tombstones(folder: Path) -> list[int]:
    return sorted(pq.ParquetDataset([str(path) for path in folder.glob("*.parquet")]).read()["id"].to_pylist())


def test_the_newest_rows_leave_and_what_was_counted_is_in_the_file(tmp_path: Path) -> None:
    one = task(tmp_path)
    assert read(one, [record(1, "c", 5), record(1, "u", 7), record(2, "d", 6), record(3, "d", 3)]) == {
        1: (False, at(7, 1).text), 2: (True, at(6, 1).text), 3: (True, at(3, 1).text),
    }  # fmt: skip
    found = result(one)
    assert (found.observed.winners, found.observed.oldest) == (3, at(3, 1).text)
    assert found.tombstones == (at(6, 1).text, 1), "the delete below the horizon is needed by no later batch"
    assert tombstones(tmp_path / "new") == [2]


def test_with_a_condition_changes_leave_tombstones_and_rows_that_won_over_one(tmp_path: Path) -> None:
    """Which of them match is found out later: a tombstone of one that does stops nothing but what is older than it."""
    one = task(tmp_path, keeps_changes=True)
    rows = [record(2, "r", 8), record(3, "r", 8)]
    assert {key: deleted for key, (deleted, _) in read(one, [record(1, "u", 5), record(2, "u", 6)], rows).items()} == {
        1: False, 2: False, 3: False,
    }  # fmt: skip
    assert tombstones(tmp_path / "new") == [1, 2], "no change of 3 is in the batch"
    assert read(task(tmp_path / "b", keeps_changes=True), [record(1, "u", 5)]) == {1: (False, at(5, 1).text)}
    assert tombstones(tmp_path / "b" / "new") == [1]


def test_rows_have_the_op_and_the_time_of_their_record_where_that_is_asked_for(tmp_path: Path) -> None:
    one = replace(task(tmp_path), keeps_change=True)
    changes, rows = [record(1, "c", 5), record(1, "u", 7), record(2, "d", 6)], [record(3, "r", 8)]
    keys, values = zip(*changes, *rows, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    table = pa.table({SNAPSHOT: [False, False, False, True], "partition": [0] * 4, **columns})
    found = pa.Table.from_batches(list(newest_rows(one, iter(table.to_batches())))).to_pylist()
    times = {row["id"]: row[COMMITTED] for row in found}
    assert {row["id"]: row[CHANGE] for row in found} == {1: "u", 2: "d", 3: "r"}
    assert (times[3], times[1]) == (None, times[2])
    assert times[1] is not None


def test_a_row_that_a_tombstone_has_overtaken_stays_away(tmp_path: Path) -> None:
    read(task(tmp_path), [record(1, "d", 9)])
    later = task(tmp_path / "later", read=(str(tmp_path / "new"),), count=1)
    assert set(read(later, [record(1, "c", 5), record(2, "c", 5)])) == {2}
    assert result(later).tombstones is None


def test_more_records_than_memory_allows_are_refused(tmp_path: Path) -> None:
    one = replace(task(tmp_path), most_bytes=50)
    with pytest.raises(TooManyRowsError, match="merge_memory_bytes"):
        read(one, [record(1, "c", 5), record(2, "c", 6)])


def test_no_record_at_all_is_a_result_as_well(tmp_path: Path) -> None:
    one = task(tmp_path)
    assert list(newest_rows(one, iter(()))) == []
    assert result(one).observed.winners == 0


@dataclass(frozen=True, slots=True)
class Noted(WorkerPut):
    """A put that notes its rows, or declines."""

    rows: list[int]
    declines: bool = False

    def run(self, rows: pa.Table) -> None:
        if self.declines:
            raise PutDeclinedError("costs more")
        self.rows.extend(rows["id"].to_pylist())

    def require_arrived(self, rows: int) -> None:
        assert rows == len(self.rows)


@pytest.mark.parametrize(("declines", "count"), [(False, 3), (True, DECLINED)])
def test_all_rows_of_a_target_are_put_in_one_go(declines: bool, count: int) -> None:
    put = Noted([], declines)
    batches = [pa.record_batch({"id": pa.array(ids, pa.int64())}) for ids in ([1, 2], [], [3])]
    (answer,) = put_rows(put, iter(batches))
    assert answer.to_pydict() == {"rows": [count]}
    assert put.rows == ([] if declines else [1, 2, 3])
    (answer,) = put_rows(put, iter(()))
    assert answer.to_pydict() == {"rows": [0]}
