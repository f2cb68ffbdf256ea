"""What a worker does with the records that Spark hands it: by table, and within the memory that it may take."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pytest

from kafkaio.slices import NUMBER, SNAPSHOT
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.merge import worker_records
from spark_jobs.merge.worker_records import (
    Decoded,
    Join,
    TooManyRowsError,
    by_table,
    decoded,
    one_of,
    packed,
    parts_by_table,
)
from spark_jobs.merge.worker_run import attempted, outcome
from spark_jobs.merge.worker_task import Admission, MergeTask, TaskFailure
from spark_jobs.sinks.worker_writes import PutDeclinedError
from tests.arrow.test_arrow_decoder import decoder, record

TASK = cast("MergeTask", None)
OBSERVED = Observed(0, 0, 0, None, None, None, None)


def batch(*numbers: int, size: int = 100) -> pa.RecordBatch:
    values = pa.array([b"x" * size] * len(numbers))
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), values], [NUMBER, "value"])


def as_they_are(_: int, records: pa.Table) -> Decoded:
    return Decoded(records, OBSERVED, [])


def as_one(_: int, records: pa.Table) -> Decoded:
    return Decoded(records.slice(0, 1), OBSERVED, [])


def counted(batches: list[pa.RecordBatch], limit: int | None, decode: Any = as_they_are) -> dict[int, int | str]:
    """How many rows there are of each table, or why there are none."""

    def join(_: int, parts: list[Decoded]) -> Decoded:
        return Decoded(pa.concat_tables([part.rows for part in parts]), OBSERVED, [])

    found: dict[int, int | str] = {}
    for number, records in by_table(iter(batches), dict.fromkeys(range(9), limit), decode):
        try:
            found[number] = records.newest_rows(number, join).rows.num_rows
        except TooManyRowsError as error:
            found[number] = str(error)
    return found


@pytest.mark.parametrize("limit", [None, 10_000])
def test_the_records_of_each_table_come_together(limit: int | None) -> None:
    assert counted([batch(1, 0), batch(1), batch(2)], limit) == {0: 1, 1: 2, 2: 1}


def test_the_largest_table_of_more_bytes_than_a_worker_may_have_is_let_go_and_the_others_are_not() -> None:
    found = counted([batch(0, 0), batch(1), batch(2), batch(0, 1), batch(0)], 600)
    assert "merge_memory_bytes" in str(found.pop(0))
    assert found == {1: 2, 2: 1}


def test_records_that_are_many_of_few_keys_are_decoded_as_they_come() -> None:
    assert isinstance(counted([batch(7, 7) for _ in range(8)], 900)[7], str)
    assert isinstance(counted([batch(7, 7) for _ in range(8)], 900, as_one)[7], int)


@pytest.mark.parametrize("part_rows", [1, 2, 3])
def test_what_was_decoded_while_others_came_counts_as_well(part_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_records, "_PART_ROWS", part_rows)
    many = [batch(7, 7) for _ in range(8)]
    assert counted(many, None)[7] == 16
    assert isinstance(counted(many, 900)[7], str), "16 rows of 100 bytes are more than 900, decoded or not"
    assert isinstance(counted(many, 1_200, as_one)[7], int)
    assert counted([batch(3), *many, batch(5, 3)], 900) == {3: 2, 5: 1, 7: counted(many, 900)[7]}


def test_a_part_that_cannot_be_decoded_fails_its_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_records, "_PART_ROWS", 2)

    def fails(number: int, records: pa.Table) -> Decoded:
        if number == 7:
            raise TooManyRowsError("of 7")
        return as_they_are(number, records)

    assert counted([batch(7, 7), batch(3, 3), batch(7, 7), batch(3)], None, fails) == {3: 3, 7: "of 7"}


def test_the_newest_schema_of_parts_is_that_of_the_highest_position_and_then_of_the_highest_id() -> None:
    whole = decoded(decoder(), Admission({}, "", ""), [raw([record(1, "c", 5, text="x")])])
    parts = [replace(whole, observed=replace(OBSERVED, newest=one)) for one in ((7, "b"), (9, "a"), (8, "b"), None)]
    assert one_of(decoder(), Admission({}, "", ""), parts).observed.newest == (8, "b")


def raw(records: list[tuple[bytes | None, bytes | None]]) -> pa.Table:
    keys, values = zip(*records, strict=True)
    count = len(records)
    return pa.table(
        {
            NUMBER: pa.array([0] * count, pa.int32()),
            SNAPSHOT: pa.array([False] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


@pytest.mark.parametrize("seed", range(8))
def test_records_decoded_in_parts_give_what_they_give_at_once(seed: int) -> None:
    rng, one = random.Random(seed), decoder()
    admission = Admission({}, "", record_position(150))
    records: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(200):
        op, ident, at = rng.choice("cudd"), rng.randrange(40), rng.randrange(100, 200)
        key, value = record(ident, op, at) if op == "d" else record(ident, op, at, text=f"of {at} {op}")
        records.append((key, value if rng.random() < 0.97 else b"bad"))
    whole = decoded(one, admission, [raw(records)])
    ends = sorted(rng.sample(range(1, 200), 3))
    edges = list(zip([0, *ends], [*ends, 200], strict=True))
    parts = [decoded(one, admission, [raw(records[first:last])]) for first, last in edges]
    names = ["id", "text", POSITION, DELETED]
    for both in (one_of(one, admission, parts), carried(parts, lambda _, found: one_of(one, admission, found))):
        assert both.observed == whole.observed
        assert live(both.rows, names) == live(whole.rows, names)


def carried(parts: list[Decoded | TaskFailure], join: Join, limit: int | None = None) -> Decoded:
    """What a worker makes of the parts of table 3, which others have sent."""
    sent = (one for part in parts for one in packed(3, part))
    ((number, records),) = parts_by_table(sent, {3: limit})
    assert number == 3
    return records.newest_rows(number, join)


def test_parts_of_other_keys_are_joined_as_they_are_and_large_ones_are_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    one, admission = decoder(), Admission({}, "", "")
    halves = [[record(key, "c", key, text=f"of {key}") for key in range(first, first + 50)] for first in (100, 200)]
    whole = decoded(one, admission, [raw([*halves[0], (b"key", b"bad"), *halves[1]])])
    monkeypatch.setattr(worker_records, "_PACKED_ROWS", 16)
    parts: list[Decoded | TaskFailure] = [decoded(one, admission, [raw(half)]) for half in ([*halves[0], (b"key", b"bad")], halves[1])]
    assert sum(1 for part in parts for _ in packed(3, part)) == 8
    both = carried(parts, lambda _, found: one_of(one, admission, found))
    assert both.observed == whole.observed
    assert both.rows.equals(whole.rows)


def test_what_one_worker_cannot_decode_is_a_failure_of_the_table_whatever_others_have() -> None:
    part = decoded(decoder(), Admission({}, "", ""), [raw([record(1, "c", 5, text="x")])])
    failure = TaskFailure("too odd", is_refused=True)
    for parts in ([part, failure], [failure, part]):
        assert attempted(partial(carried, parts, cast("Join", None))) == failure


def test_parts_of_more_bytes_than_a_worker_may_have_are_let_go() -> None:
    parts: list[Decoded | TaskFailure] = [decoded(decoder(), Admission({}, "", ""), [raw([record(1, "c", 5, text="x" * 500)])])] * 3
    with pytest.raises(TooManyRowsError):
        carried(parts, cast("Join", None), 1000)


def record_position(offset: int) -> str:
    return f"0001.0000000001.{offset:012}.0000000000"


def live(rows: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    return sorted(rows.select(names).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("error", "declined", "refused"),
    [(PutDeclinedError("dear"), True, False), (ValueError("dear"), False, False), (TooManyRowsError("dear"), False, False)],
)
def test_a_put_that_is_declined_is_no_failure(error: Exception, declined: bool, refused: bool) -> None:
    def fails() -> Any:
        raise error

    found = outcome(TASK, cast("Callable[[], Decoded]", fails))
    assert isinstance(found, TaskFailure)
    assert "dear" in found.reason
    assert (found.is_declined, found.is_refused) == (declined, refused)
