"""Random histories of several tables through random filters into shared targets: each holds the image of the final source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

from schemas.memory_table import Batch, Progress
from schemas.merge_rule import Entry
from schemas.overriding import override
from tests.merge.history import History, Shape, batches
from tests.pipeline.pipeline_twin import Pipeline, Rule, View

SEEDS = range(40)
MORE_SEEDS = range(40, 1200)
TABLES = ("s1.orders", "s2.orders", "crm.people")


def keeps(part: int) -> Rule:
    """Rows whose value leaves a remainder have an image."""
    return lambda value: value * 10 if value % 3 != part else None


def views(rng: random.Random) -> tuple[View, ...]:
    """Two shards in one target, each by a filter of its own; a table alone; one of them in a second target, unfiltered."""
    return (
        View(TABLES[0], "ods.orders", keeps(rng.randrange(3))),
        View(TABLES[1], "ods.orders", keeps(rng.randrange(3))),
        View(TABLES[2], "crm.people", keeps(rng.randrange(3))),
        View(TABLES[0], "all.orders", lambda value: value),
    )


def histories(seed: int) -> dict[str, History]:
    return {name: History(1000 * seed + number, Shape(steps=90)).run() for number, name in enumerate(TABLES)}


def played(pipeline: Pipeline, worlds: dict[str, History], seed: int) -> None:
    """Merge all that was written, tables at their own pace, some batches twice: a crash before the progress was recorded."""
    rng = random.Random(seed + 7)
    streams: dict[str, Iterator[Batch]] = {name: batches(world, seed) for name, world in worlds.items()}
    progress: dict[str, Progress] = {}
    while streams:
        taken: dict[str, Batch] = {}
        for name in list(streams):
            if rng.random() < 0.7:
                found = next(streams[name], None)
                if found is None:
                    del streams[name]
                else:
                    taken[name] = found
        applied = pipeline.apply(taken, progress)
        while rng.random() < 0.15:
            applied = pipeline.apply(taken, progress)
        progress |= applied
    assert not any(one.tombstones for one in progress.values())


def expected(pipeline: Pipeline, worlds: dict[str, History], target: str) -> dict[tuple[str, Hashable], Any]:
    return {
        (view.table, key): view.rule(value)
        for view in pipeline.views
        if view.target == target
        for key, value in worlds[view.table].source.items()
        if view.rule(value) is not None
    }


def is_image(pipeline: Pipeline, worlds: dict[str, History]) -> bool:
    names = {view.target for view in pipeline.views}
    return all(pipeline.rows(name) == expected(pipeline, worlds, name) for name in names)


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=["some", "more"])
def test_targets_hold_the_image_of_the_source(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        worlds = histories(seed)
        pipeline = Pipeline(views(random.Random(seed)))
        played(pipeline, worlds, seed)
        assert is_image(pipeline, worlds), f"seed {seed}"
        counts += pipeline.counts + sum((world.counts for world in worlds.values()), Counter())
        counts["keys held by two shards"] += len(worlds[TABLES[0]].source.keys() & worlds[TABLES[1]].source.keys())
    for happening in (
        "rows that stopped matching",
        "rows of other tables below a floor",
        "keys held by two shards",
        "truncates",
        "late rows",
        "deletes in windows",
    ):
        assert counts[happening] > len(seeds) / 20, (happening, counts)


class WithoutSource(Pipeline):
    """The source table is no part of the identity."""

    @override
    def identity(self, table: str, key: Hashable) -> tuple[str, Hashable]:
        return "", key


class WithoutTombstoneOfChange(Pipeline):
    """A row that stopped matching leaves no tombstone."""

    @override
    def leaves_tombstone(self, entry: Entry, changed: set[Hashable]) -> bool:
        return False


class WithoutTombstoneOfSnapshotRow(Pipeline):
    """A snapshot row without an image that won over a change leaves no tombstone."""

    @override
    def leaves_tombstone(self, entry: Entry, changed: set[Hashable]) -> bool:
        return entry.partition is None


class FloorOfAll(Pipeline):
    """A floor takes the rows of all tables of a target."""

    @override
    def is_of(self, table: str, entry: Entry) -> bool:
        return True


@pytest.mark.parametrize(
    ("mutant", "seeds"),
    [
        (WithoutSource, SEEDS),
        (FloorOfAll, SEEDS),
        (WithoutTombstoneOfChange, range(600)),
        pytest.param(WithoutTombstoneOfSnapshotRow, range(6000), marks=pytest.mark.slow),
    ],
)
def test_each_part_of_the_rule_is_needed(mutant: type[Pipeline], seeds: range) -> None:
    for seed in seeds:
        worlds = histories(seed)
        pipeline = mutant(views(random.Random(seed)))
        played(pipeline, worlds, seed)
        if not is_image(pipeline, worlds):
            return
    pytest.fail(f"no history in {len(seeds)} needs it")
