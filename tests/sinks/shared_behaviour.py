"""What every sink does with a target that several source tables go into: a part of the suite, as `behaviour`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from schemas.identity import SourceId, SourceTable
from schemas.merge_rule import NOTHING, DueSweep
from spark_jobs.decode.record_columns import DELETED, POSITION, SOURCE
from spark_jobs.sinks.contract import Columns, Evolution, TargetRecord, Winners
from tests.sinks.behaviour import AMOUNT, FIRST, ID, NAME, SWEEP_TWO, TABLE, Batch, Lab, at

OTHER = SourceTable.of(SourceId("shop"), "it's \\ here", "more")
"""A table whose name must be quoted in every language."""

SHARED: Columns = ((SOURCE, T.StringType()), ID, AMOUNT)


def put_shared(
    lab: Lab,
    number: int,
    rows: Sequence[tuple[Any, ...]],
    record: TargetRecord = TargetRecord(),  # noqa: B008
    *,
    floors: Mapping[SourceTable, str] | None = None,
    due: Mapping[SourceTable, Sequence[DueSweep]] | None = None,
    evolution: Evolution | None = None,
    columns: Columns = SHARED,
    named: str = NAME.name,
) -> TargetRecord:
    """Run a batch of a target that two tables go into. A row is its table, key, position and amount (None for a delete), and more."""
    sink = lab.open()
    target, stamp = sink.target(lab.spark, NAME, (TABLE, OTHER)), replace(Batch(number).stamp, table=named)
    typed = (*columns, (DELETED, T.BooleanType()), (POSITION, T.StringType()))
    found = [(table.text, key, amount, *more, amount is None, at(position)) for table, key, position, amount, *more in rows]
    if target.exists():
        target.trust(record, number)
        if evolution is not None:
            target.evolve(evolution, stamp)
    with target.commit(stamp) as writer:
        if rows:
            writer.put(Winners(lab.frame(found, typed), (SOURCE, "id"), columns))
        writer.delete_between({table: (NOTHING, floor) for table, floor in (floors or {}).items()})
        writer.sweep(due or {})
    return replace(record, last_commit=number) if target.has_commit(number) else record


def by_source(lab: Lab) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a target that two tables go into, by table and key."""
    return {(SourceTable.parse(row[SOURCE]).name.table, row["id"]): row for row in lab.rows()}


def shared_rows(lab: Lab) -> dict[tuple[str, int], int]:
    return {name: row["Amount"] for name, row in by_source(lab).items()}


class SharedTargetBehaviour:
    """The suite."""

    def test_rows_of_several_tables_with_one_key_stay_two(self, lab: Lab) -> None:
        both = ((TABLE, 1, 100, 1), (OTHER, 1, 100, 10), (OTHER, 2, 100, 20))
        record = put_shared(lab, 0, both)
        assert shared_rows(lab) == {("orders", 1): 1, ("more", 1): 10, ("more", 2): 20}
        put_shared(lab, 1, ((OTHER, 1, 200, None), (TABLE, 1, 50, 7), (TABLE, 2, 200, 2)), record)
        assert shared_rows(lab) == {("orders", 1): 1, ("orders", 2): 2, ("more", 2): 20}

    def test_a_batch_that_is_repeated_with_one_more_table_puts_its_rows_as_well(self, lab: Lab) -> None:
        record = put_shared(lab, 0, ((TABLE, 1, 100, 1),))
        put_shared(lab, 1, ((OTHER, 1, 200, 10),), record, named=f"{NAME.name}@one")  # the other table could not be merged
        put_shared(lab, 1, ((OTHER, 1, 200, 10), (TABLE, 2, 200, 2)), record, named=f"{NAME.name}@both")
        assert shared_rows(lab) == {("orders", 1): 1, ("more", 1): 10, ("orders", 2): 2}

    def test_floors_and_sweeps_concern_the_rows_of_their_own_table(self, lab: Lab) -> None:
        rows = [(table, key, 100 * key, 20) for table in (TABLE, OTHER) for key in (1, 2, 3)]
        record = put_shared(lab, 0, rows)
        record = put_shared(lab, 1, (), record, floors={TABLE: at(200)})
        assert set(shared_rows(lab)) == {("orders", 2), ("orders", 3), ("more", 1), ("more", 2), ("more", 3)}
        record = put_shared(lab, 2, (), record, due={OTHER: [SWEEP_TWO]})
        assert set(shared_rows(lab)) == {("orders", 2), ("orders", 3), ("more", 3)}
        put_shared(lab, 3, (), record, floors={TABLE: at(300), OTHER: at(999)}, due={TABLE: [replace(SWEEP_TWO, below=at(301))]})
        assert shared_rows(lab) == {}

    def test_a_second_table_gives_the_rows_that_are_there_the_name_of_the_first(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        change_of_both = Evolution(((SOURCE, T.StringType(), TABLE.text),), ())
        put_shared(lab, 1, ((OTHER, 1, 50, 10),), record, evolution=change_of_both)
        assert shared_rows(lab) == {("orders", 1): 1, ("orders", 2): 2, ("orders", 3): 3, ("more", 1): 10}

    def test_a_column_is_filled_in_the_rows_of_one_table_once(self, lab: Lab) -> None:
        record = put_shared(lab, 0, [(table, key, 100, 1) for table in (TABLE, OTHER) for key in (1, 2)])
        filled = Evolution((("five", T.IntegerType(), None),), (), (("five", OTHER.text, 5),))
        wider = (*SHARED, ("five", T.IntegerType()))
        for _ in range(2):  # run again after a crash: the row that the batch put is not filled
            put_shared(lab, 1, ((OTHER, 1, 200, 9, None),), record, evolution=filled, columns=wider)
            assert {key: row["five"] for key, row in by_source(lab).items()} == {
                ("orders", 1): None, ("orders", 2): None, ("more", 1): None, ("more", 2): 5,
            }  # fmt: skip
