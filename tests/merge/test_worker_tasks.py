"""The work of a task alone, without Spark: what it does not take for done, and what it leaves behind when it dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaio.slices import NUMBER, SNAPSHOT
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.merge import worker_run
from spark_jobs.merge.worker_run import outcomes
from spark_jobs.merge.worker_task import Admission, MergeTask, TaskFailure, TaskResult, TombstonePaths
from spark_jobs.sinks.worker_writes import WorkerPut
from tests.arrow.test_arrow_decoder import PLAN, DecoderPlan, record
from tests.merge.lake import Crash, at

PUT: list[pa.Table] = []


@dataclass(frozen=True, slots=True)
class Noted(WorkerPut):
    """A put that notes its rows."""

    then: Callable[[], object] = bool

    def run(self, rows: pa.Table) -> None:
        PUT.append(rows)
        self.then()

    def require_arrived(self, rows: int) -> None:
        assert rows == PUT[-1].num_rows


def task(folder: Path, *, read: tuple[str, ...] = (), count: int = 0, then: Callable[[], object] = bool) -> MergeTask:
    paths = TombstonePaths(read, count, str(folder / "new"), replaces=False)
    PUT.clear()
    return MergeTask(DecoderPlan.of(PLAN), PLAN.keys, Admission({}, "", ""), paths, Noted(then))


def outcome(one: MergeTask, given: pa.Table) -> TaskResult | TaskFailure:
    numbered = given.append_column(NUMBER, pa.array([0] * given.num_rows, pa.int32()))
    ((_, found),) = outcomes({0: one}, iter(numbered.to_batches()))
    return found


def records(*given: tuple[bytes, bytes | None]) -> pa.Table:
    keys, values = zip(*given, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.table({SNAPSHOT: [False] * len(keys), "partition": [0] * len(keys), **columns})


def kept(folder: Path) -> list[str]:
    found = pq.ParquetDataset([str(path) for path in folder.glob("*.parquet")]).read()
    return sorted(found[POSITION].to_pylist())


def test_a_row_that_a_tombstone_has_overtaken_is_left_out(tmp_path: Path) -> None:
    done = outcome(task(tmp_path), records(record(1, "d", 9), record(2, "d", 3)))
    assert isinstance(done, TaskResult)
    assert done.tombstones == (at(9, 1).text, 2)
    again = replace(task(tmp_path), tombstones=TombstonePaths((str(tmp_path / "new"),), 2, str(tmp_path / "next"), replaces=False))
    assert isinstance(outcome(again, records(record(1, "c", 5), record(2, "c", 5))), TaskResult)
    (rows,) = PUT
    assert [(row["id"], row[DELETED]) for row in rows.to_pylist()] == [(2, False)]


@pytest.mark.parametrize("files", [None, 0, 1])
def test_tombstones_that_are_gone_are_not_taken_for_none(tmp_path: Path, files: int | None) -> None:
    """What the state counts on is not there: an older row would undo a delete in silence."""
    folder = tmp_path / "old"
    if files is not None:
        folder.mkdir()
    if files:
        pq.write_table(pa.table({"id": pa.array([1], pa.int32()), POSITION: [at(9, 1).text]}), folder / "part-00000.parquet")
    done = outcome(task(tmp_path, read=(str(folder),), count=2), records(record(1, "c", 5)))
    assert isinstance(done, TaskFailure)
    assert str(folder) in done.reason
    assert not PUT


def test_an_attempt_that_dies_while_it_writes_tombstones_leaves_those_of_another_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of a job that was killed still writes when the next job has saved the state that names the folder."""
    deletes = records(record(1, "d", 9), record(2, "d", 3))
    assert isinstance(outcome(task(tmp_path), deletes), TaskResult)
    before = kept(tmp_path / "new")

    def dies(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(worker_run.pq, "write_table", dies)
        outcome(task(tmp_path), deletes)
    assert kept(tmp_path / "new") == before == [at(3, 1).text, at(9, 1).text]


def test_tombstones_replace_what_an_attempt_of_spark_has_left(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    (folder / "_temporary" / "0").mkdir(parents=True)
    for name in ("part-00000-1.snappy.parquet", ".part-00000-1.snappy.parquet.crc", "_SUCCESS"):
        (folder / name).write_bytes(b"of another attempt")
    assert isinstance(outcome(task(tmp_path), records(record(1, "d", 9))), TaskResult)
    assert kept(folder) == [at(9, 1).text]


class Panic(BaseException):
    """What a library in Rust raises where it has a bug: no `Exception`."""


def test_a_library_that_panics_does_so_for_one_table(tmp_path: Path) -> None:
    def panics() -> None:
        raise Panic("range end index 5 out of range")

    done = outcome(task(tmp_path, then=panics), records(record(1, "c", 5)))
    assert isinstance(done, TaskFailure)
    assert done.reason == "Panic: range end index 5 out of range"


def test_what_ends_a_process_is_not_the_failure_of_a_table(tmp_path: Path) -> None:
    def ends() -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        outcome(task(tmp_path, then=ends), records(record(1, "c", 5)))
