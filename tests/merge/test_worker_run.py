"""What a worker does with the records that Spark hands it: by table, and within the memory that it may take."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from spark_jobs.merge import worker_run
from spark_jobs.merge.worker_run import by_table, outcome
from spark_jobs.merge.worker_task import NUMBER, TableTask, TaskFailure
from spark_jobs.sinks.contract import PutDeclinedError

TASK = cast("TableTask", None)


def batch(*numbers: int, size: int = 100) -> pa.RecordBatch:
    values = pa.array([b"x" * size] * len(numbers))
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), values], [NUMBER, "value"])


def test_the_records_of_each_table_come_together() -> None:
    found = dict(by_table(iter([batch(1, 0), batch(1), batch(2)]), {0: None, 1: 1000, 2: 1000}))
    assert {number: [rows.num_rows for rows in given] for number, given in found.items()} == {0: [1], 1: [2], 2: [1]}


def test_the_largest_table_of_more_bytes_than_a_worker_may_hold_is_let_go_and_the_others_are_not() -> None:
    large = [batch(0, 0), batch(1), batch(2), batch(0, 1), batch(0)]
    found = dict(by_table(iter(large), dict.fromkeys(range(3), 450)))
    assert {number: [rows.num_rows for rows in given] for number, given in found.items()} == {0: [], 1: [2], 2: [1]}


def test_one_table_alone_is_let_go_too() -> None:
    assert dict(by_table(iter([batch(7, 7), batch(7)]), {7: 150})) == {7: []}


def test_a_task_without_records_is_left_to_spark_and_says_which_setting_it_is() -> None:
    found = outcome(TASK, [])
    assert isinstance(found, TaskFailure)
    assert "merge_memory_bytes" in found.reason
    assert (found.is_refused, found.is_declined) == (False, False)


@pytest.mark.parametrize(("error", "declined"), [(PutDeclinedError("dear"), True), (ValueError("dear"), False)])
def test_a_put_that_is_declined_is_no_failure(error: Exception, declined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def done(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(worker_run, "done", done)
    found = outcome(TASK, [pa.table({})])
    assert isinstance(found, TaskFailure)
    assert found.is_declined == declined
