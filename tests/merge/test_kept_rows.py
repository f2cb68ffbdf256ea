"""Rows of a table that was emptied by a statement that its sink leaves out: they stay, and nothing else does."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from schemas.markers import CompleteMarker, FloorMarker, Marker, Sweep
from schemas.memory_table import Batch, MemoryTable, Progress
from schemas.merge_rule import DueSweep, Entry, TableState
from tests.merge.history import TABLE, History, Shape, batches
from tests.merge.lake import at

CHANGES_AND_TRUNCATES = Shape(truncates=0.05)


def marked(kind: type[Marker], position: int, **more: object) -> Marker:
    common = {"position": at(position), "horizon": at(position), "partitions": 1, "table": TABLE, "change_offsets": {0: 10}}
    return kind(**common, **more)  # type: ignore[arg-type]


def truncated(position: int, cause: str = "truncate") -> Marker:
    return marked(FloorMarker, position, reason="emptied", cause=cause, empty=True)


def read_again(bound: int, end: int) -> Marker:
    return marked(CompleteMarker, end, request="again", first_bound=at(bound), whole_table=True, rows=0)


def put(key: str, position: int) -> Entry:
    return Entry(key, at(position, 1).text, row=position)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 600), marks=pytest.mark.slow)], ids=["some", "more"])
def test_random_histories_leave_the_source_and_rows_of_before_a_truncate(seeds: range) -> None:
    kept_rows = 0
    for seed in seeds:
        history, table, progress = History(seed, CHANGES_AND_TRUNCATES).run(), MemoryTable(keeps={"truncate"}), Progress()
        rng = random.Random(seed)
        for batch in batches(history, seed):
            applied = table.apply(batch, progress)
            while rng.random() < 0.15:
                applied = table.apply(batch, progress)
            progress = applied
        rows = {key: entry.row for key, entry in table.rows.items()}
        assert rows | history.source == rows, f"seed {seed}: a row of the source is missing, or another"
        extra = {entry.version for key, entry in table.rows.items() if key not in history.source}
        assert all(version < progress.state.kept for version in extra), f"seed {seed}: a row that nothing keeps"
        kept_rows += len(extra)
    assert kept_rows > len(seeds)


STREAM = [
    (put("a", 100), None), (put("b", 110), None), (None, truncated(200)), (put("a", 300), None), (put("c", 310), None),
    (Entry("a", at(350).text, row=300, partition=0), None), (None, read_again(350, 400)), (put("d", 500), None),
    (None, truncated(600)), (put("e", 700), None),
]  # fmt: skip


def test_the_rows_that_stay_do_not_depend_on_where_batches_end() -> None:
    for ends in itertools.combinations(range(1, len(STREAM)), 2):
        table, progress = MemoryTable(keeps={"truncate"}), Progress()
        for first, end in itertools.pairwise((0, *ends, len(STREAM))):
            part = STREAM[first:end]
            entries, markers = tuple(one for one, _ in part if one), tuple(one for _, one in part if one)
            progress = table.apply(Batch(entries, markers, {0: 10}), progress)
        found = {key: entry.row for key, entry in table.rows.items()}
        assert found.pop("c", 310) == 310, "swept in a batch that ends before the second truncate, else kept"
        assert found == {"a": 300, "b": 110, "d": 500, "e": 700}, ends


@pytest.mark.parametrize(
    ("keeps", "causes", "rows"),
    [
        ((), ("truncate",), set()),
        (("truncate",), ("truncate",), {"a"}),
        (("truncate",), ("drop",), set()),
        (("truncate",), ("",), set()),
        (("drop", "rename", "create"), ("drop", "create"), {"a"}),
        (("drop", "rename", "create"), ("rename", "truncate"), {"a"}),
    ],
)
def test_floors_of_other_causes_take_rows_but_for_those_that_are_kept(
    keeps: tuple[str, ...], causes: tuple[str, ...], rows: set[str]
) -> None:
    table, progress = MemoryTable(keeps), Progress()
    progress = table.apply(Batch((put("a", 100),), (), {0: 10}), progress)
    for number, cause in enumerate(causes):
        progress = table.apply(Batch((), (truncated(200 + number, cause),), {0: 10}), progress)
    assert set(table.rows) == rows
    assert progress.state.is_consistent, "the table of the source is empty here"
    assert TableState.from_json(progress.state.to_json()) == progress.state


def test_a_sweep_of_some_rows_takes_none_that_are_kept() -> None:
    due = DueSweep(Sweep(("parent",), frozenset({("1",)})), at(500).text, at(200).text)
    row = {"parent": 1}
    assert [due.takes(row, at(position).text) for position in (100, 200, 499, 500)] == [False, True, True, False]
    assert replace(due, above="").takes(row, at(100).text)
