"""What a sink does with rows that stay when they are deleted (`TargetShape.soft_delete`): a part of the suite, as `behaviour`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from schemas.identity import SourceTable
from schemas.merge_rule import NOTHING, DueSweep
from spark_jobs.decode.record_columns import DELETED, POSITION, SOURCE
from spark_jobs.sinks.contract import Columns, TargetRecord, Winners
from spark_jobs.sinks.target_shape import TargetShape
from tests.sinks.behaviour import AMOUNT, ID, NAME, SWEEP_TWO, TABLE, Batch, Lab, at
from tests.sinks.shared_behaviour import OTHER

GONE = ("gone", T.BooleanType())
COLUMNS: Columns = (ID, AMOUNT, GONE)


def put_kept(
    lab: Lab,
    number: int,
    rows: Sequence[tuple[Any, ...]],
    record: TargetRecord = TargetRecord(),  # noqa: B008
    *,
    floor: int | None = None,
    due: Sequence[DueSweep] = (),
    tables: Sequence[SourceTable] = (TABLE,),
) -> TargetRecord:
    """Run a batch of a target that keeps rows. A row is its values, whether it was deleted, and its position."""
    sink, is_shared = lab.open(), len(tables) > 1
    target, stamp = sink.target(lab.spark, NAME, tables, TargetShape(soft_delete="gone")), Batch(number).stamp
    columns: Columns = ((SOURCE, T.StringType()), *COLUMNS) if is_shared else COLUMNS
    typed = (*columns, (DELETED, T.BooleanType()), (POSITION, T.StringType()))
    found = [(*values, False, at(position)) for *values, position in rows]
    if target.exists():
        target.trust(record, number)
    with target.commit(stamp) as writer:
        if rows:
            writer.put(Winners(lab.frame(found, typed), (SOURCE, "id") if is_shared else ("id",), columns))
        writer.delete_between({} if floor is None else {TABLE: (NOTHING, at(floor))})
        writer.sweep({TABLE: due} if due else {})
    return replace(record, last_commit=number) if target.has_commit(number) else record


def kept(lab: Lab) -> Mapping[int, tuple[int, bool]]:
    return {row["id"]: (row["Amount"], row["gone"]) for row in lab.rows()}


class KeptRowsBehaviour:
    """The suite."""

    def test_floors_and_sweeps_mark_rows_that_stay_and_may_come_back(self, lab: Lab) -> None:
        record = put_kept(lab, 0, [(key, 20, False, 100 * key) for key in (1, 2, 3)])
        for _ in range(2):  # run again after a crash
            after = put_kept(lab, 1, [], record, floor=200)
            assert kept(lab) == {1: (20, True), 2: (20, False), 3: (20, False)}
        record = put_kept(lab, 2, [], after, due=[SWEEP_TWO])
        assert kept(lab) == {1: (20, True), 2: (20, True), 3: (20, False)}
        put_kept(lab, 3, [(1, 7, False, 400), (3, 20, True, 500), (2, 9, False, 50)], record)
        assert kept(lab) == {1: (7, False), 2: (20, True), 3: (20, True)}

    def test_a_floor_marks_the_rows_of_its_own_table(self, lab: Lab) -> None:
        rows = [(table.text, 1, 20, False, 100) for table in (TABLE, OTHER)]
        record = put_kept(lab, 0, rows, tables=(TABLE, OTHER))
        put_kept(lab, 1, [], record, floor=200, tables=(TABLE, OTHER))
        assert {row[SOURCE]: row["gone"] for row in lab.rows()} == {TABLE.text: True, OTHER.text: False}
