"""What every sink does that has loads (`WorkerLoads`): one suite, as `behaviour` is. Loads run in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.decode.record_columns import POSITION
from spark_jobs.sinks.contract import Sink, TargetRecord
from spark_jobs.sinks.faulty import Faults, InjectedCrashError
from spark_jobs.sinks.worker_writes import LoadedRows, PutShape, WorkerLoad
from tests.sinks.behaviour import COLUMNS, FIRST, Batch, Lab, at, change, delete

LOW = 150
Rows = Mapping[int, int]


class BrokenError(Exception):
    """The source does not answer any more."""


def blocks(*parts: Rows, low: int = LOW, then: Exception | None = None) -> Iterator[pa.Table]:
    """The rows of a chunk as a worker gives them, each part a block."""
    for part in parts:
        columns = [
            pa.array(list(part), pa.int64()),
            pa.array(list(part.values()), pa.int32()),
            pa.repeat(pa.scalar(at(low), pa.string()), len(part)),
        ]
        yield pa.table(columns, names=["id", "Amount", POSITION])
    if then is not None:
        raise then


def worker_load(lab: Lab, batch: int = 1, lane: int = 0, sink: Sink | None = None) -> WorkerLoad:
    found = lab.target(sink or lab.open()).worker_load(PutShape(("id",), COLUMNS, "id", None, 0), Batch(batch).stamp, lane)
    assert found is not None
    return found


def load(lab: Lab, *parts: Rows, batch: int = 1, lane: int = 0, low: int = LOW) -> LoadedRows:
    """Load as the merge does; the number of rows that were replaced is left out of the result."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "t" / "kept"
        one = worker_load(lab, batch, lane)
        done = one.run(blocks(*parts, low=low), at(low), kept)
        if done.older:
            one.replace_older(kept)
    return replace(done, older=0)


class LoadBehaviour:
    """The suite."""

    def test_a_load_makes_the_target_and_puts_all_its_rows(self, lab: Lab) -> None:
        assert load(lab, {1: 1, 2: 2}, {3: 3}, {}, {4: 4}) == LoadedRows(4, (1, 4))
        assert lab.amounts() == {1: 1, 2: 2, 3: 3, 4: 4}
        assert {row[POSITION] for row in lab.rows()} == {at(LOW)}
        assert lab.target(lab.open()).has_commit(1)

    def test_a_load_without_rows_leaves_an_empty_target(self, lab: Lab) -> None:
        assert load(lab) == LoadedRows(0)
        assert lab.rows() == []
        assert lab.target(lab.open()).exists()

    def test_a_newer_row_stays_an_older_one_is_replaced_and_others_are_added(self, lab: Lab) -> None:
        lab.play(Batch(0, [change(1, 100, 1), change(2, 200, 2), change(3, LOW, 3), change(99, 100, 99)]))
        assert load(lab, {1: 10, 2: 20}, {3: 30, 4: 40}) == LoadedRows(4, (1, 4))
        assert lab.amounts() == {1: 10, 2: 2, 3: 3, 4: 40, 99: 99}
        assert len(lab.rows()) == 5

    def test_keys_in_the_range_of_the_target_that_it_does_not_have_are_added_once(self, lab: Lab) -> None:
        record = lab.play(Batch(0, [change(number, 100, number) for number in range(0, 100, 10)]))
        load(lab, {number: number for number in range(100) if number % 10})
        lab.play(Batch(2, [change(55, 300, 0)]), replace(record, last_commit=1))
        assert lab.amounts() == {number: number for number in range(100)} | {55: 0}
        assert len(lab.rows()) == 100

    @pytest.mark.parametrize("there", [(), (1, 2, 3)], ids=["empty", "filled"])
    def test_a_load_that_is_repeated_takes_effect_once_whatever_it_reads_then(self, lab: Lab, there: tuple[int, ...]) -> None:
        lab.play(Batch(0, [change(key, 100, key) for key in there]))
        first = load(lab, {2: 20, 3: 30, 5: 50})
        assert first == LoadedRows(3, (2, 5))
        again = load(lab, {3: 31, 5: 51, 6: 61})
        assert again.rows == 3
        assert again.key_range is None or (again.key_range[0] <= 2 and again.key_range[1] >= 5)
        expected = {key: key for key in there} | {2: 20, 3: 30, 5: 50}
        found = lab.amounts()
        assert {key: found[key] for key in expected} == expected
        assert set(found) - set(expected) <= {6}, "it was inserted later, and the log has it"
        assert len(lab.rows()) == len(found)

    def test_loads_of_one_batch_have_lanes(self, lab: Lab) -> None:
        for lane, rows in enumerate(({1: 1}, {2: 2}, {3: 3})):
            load(lab, rows, lane=lane)
        load(lab, {1: 1}, lane=0)
        load(lab, {1: 5}, batch=2, lane=1, low=LOW + 1)
        assert lab.amounts() == {1: 5, 2: 2, 3: 3}
        assert len(lab.rows()) == 3

    def test_what_the_source_raises_is_raised_and_another_attempt_gives_the_rows(self, lab: Lab, tmp_path: Path) -> None:
        lab.play(FIRST)
        one = worker_load(lab)
        with pytest.raises(BrokenError):
            one.run(blocks({7: 7}, {8: 8}, then=BrokenError()), at(LOW), tmp_path / "kept")
        assert not one.has_written()
        load(lab, {7: 7}, {8: 8})
        assert one.has_written()
        assert lab.amounts() == {1: 1, 2: 2, 3: 3, 7: 7, 8: 8}

    @pytest.mark.parametrize("point", [f"{side} {step}" for step in ("load", "replace_older") for side in ("before", "after")])
    def test_a_crash_around_a_load(self, lab: Lab, point: str, tmp_path: Path) -> None:
        lab.play(FIRST)
        faults = Faults()
        faults.crash_at(point)
        one = worker_load(lab, sink=lab.open(faults))

        def attempt() -> None:
            assert one.run(blocks({1: 10, 7: 70}), at(LOW), tmp_path / "kept").older == 1
            one.replace_older(tmp_path / "kept")

        with pytest.raises(InjectedCrashError):
            attempt()
        load(lab, {1: 10, 7: 70})
        assert lab.amounts() == {1: 10, 2: 2, 3: 3, 7: 70}

    def test_rows_of_a_load_are_deleted_by_the_log_and_by_floors(self, lab: Lab) -> None:
        load(lab, {1: 1, 2: 2, 3: 3})
        record = lab.play(Batch(2, [delete(1, 300), change(2, 300, 9)], floor=200), TargetRecord(last_commit=1))
        assert lab.amounts() == {2: 9}
        assert record.last_commit == 2

