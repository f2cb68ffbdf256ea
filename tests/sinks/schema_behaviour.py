"""What a sink does that can drop columns, and keep rows of a table that was emptied: a part of the suite, as `behaviour`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import types as T  # noqa: N812

from schemas.markers import Sweep
from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import SOURCE
from spark_jobs.sinks.contract import Columns, Evolution
from spark_jobs.sinks.faulty import Faults, InjectedCrashError
from tests.sinks.behaviour import AMOUNT, ID, NAME, TABLE, Batch, Lab, at, change, delete
from tests.sinks.shared_behaviour import OTHER, by_source, put_shared

BIG = ("Big_one", T.LongType())
WITH_BIG: Columns = (ID, AMOUNT, BIG)
NARROW: Columns = (ID, ("Big_one", T.IntegerType()), ("new", T.IntegerType()))
CHANGED = Evolution((("new", T.IntegerType(), 5),), (("Big_one", T.IntegerType()),), dropped=("Amount",))


class SchemaBehaviour:
    """The suite."""

    @pytest.mark.parametrize(
        "crash_at", ["after evolve", *(pytest.param(point, marks=pytest.mark.slow) for point in ("before evolve", "after put"))]
    )
    def test_a_column_is_dropped_once_with_what_else_changes(self, lab: Lab, crash_at: str) -> None:
        record = lab.play(Batch(0, [change(key, 100, key, Big_one=10 * key) for key in (1, 2, 3)], WITH_BIG))
        more = Batch(1, [replace(change(4, 200), values={"Big_one": 40, "new": 6}), delete(1, 200)], NARROW, CHANGED)
        faults = Faults()
        faults.crash_at(crash_at)
        with pytest.raises(InjectedCrashError):
            lab.play(more, record, lab.open(faults))
        record = lab.play(more, record)
        expected = {key: {"Big_one": 10 * key, "new": 5} for key in (2, 3)} | {4: {"Big_one": 40, "new": 6}}
        assert lab.values() == expected
        assert lab.play(more, record) == record
        assert lab.values() == expected
        assert list(lab.target(lab.open()).columns() or ()) == list(NARROW)

    def test_rows_below_a_position_are_kept_by_floors_and_sweeps(self, lab: Lab) -> None:
        record = lab.play(Batch(0, [change(key, 100 * key, 7) for key in (1, 2, 3, 4)]))
        target = lab.target(lab.open())
        target.trust(record, 1)
        with target.commit(Batch(1).stamp) as writer:
            writer.delete_between({TABLE: (at(200), at(300))})
        assert set(lab.amounts()) == {1, 3, 4}
        due = DueSweep(Sweep(("amount",), frozenset({("7",)})), at(999), at(300))
        lab.play(Batch(2, due=[due]), replace(record, last_commit=1))
        assert set(lab.amounts()) == {1}

    def test_a_column_that_one_table_lost_is_null_in_its_rows_alone(self, lab: Lab) -> None:
        columns: Columns = ((SOURCE, T.StringType()), ID, AMOUNT, ("c", T.IntegerType()), ("d", T.IntegerType()))
        rows = [(table, key, 100, key, 3, 4) for table in (TABLE, OTHER) for key in (1, 2)]
        record = put_shared(lab, 0, rows, columns=columns)
        lost = Evolution((), (), (("c", OTHER.text, None),), ("d",))
        for _ in range(2):  # run again after a crash: what the batch put stays
            put_shared(lab, 1, ((OTHER, 1, 200, 9, 8),), record, evolution=lost, columns=columns[:-1])
            assert {key: (row["c"], "d" in row) for key, row in by_source(lab).items()} == {
                ("orders", 1): (3, False), ("orders", 2): (3, False), ("more", 1): (8, False), ("more", 2): (None, False),
            }  # fmt: skip
        target = lab.open().target(lab.spark, NAME, (TABLE, OTHER))
        target.trust(replace(record, last_commit=1), 2)
        with target.commit(Batch(2).stamp) as writer:
            writer.delete_between({OTHER: (at(150), at(999))})
        assert set(by_source(lab)) == {("orders", 1), ("orders", 2), ("more", 2)}
