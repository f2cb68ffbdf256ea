"""Components of ops that share entries."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from schemas.settings.task_section import task_from_mapping
from spark_jobs.replicate.apply.components import components
from spark_jobs.replicate.apply.parallel_apply import rules_of


def test_three_statements_and_an_insert_are_two_components() -> None:
    assert components([{3, 4}, {2, 5}, {3}, {3}]) == [0, 1, 0, 0]


def test_an_op_joins_components_that_were_apart() -> None:
    assert components([{1}, {2}, {3}, {2, 3}, {1, 9}, ()]) == [0, 1, 1, 1, 0, 5]
    assert components([{1}, {2}, {3}, {2, 3}, {1, 3}]) == [0] * 5


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_that_a_search_finds(seed: int) -> None:
    dice = Random(seed)
    entries = [{dice.randrange(60) for _ in range(dice.randrange(4))} for _ in range(50)]
    found = components(entries)
    for op, first in enumerate(found):
        reached, waiting = set[int](), [op]
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.add(one)
                waiting += [other for other, own in enumerate(entries) if own & entries[one]]
        assert first == min(reached)


def test_a_plan_that_was_made_without_safe_mode_is_not_divided_by_it() -> None:
    """Rows in safe mode have other entries."""
    task = task_from_mapping({
        "task": "copy", "sources": [{"name": "shop"}], "kafka": {"bootstrap_servers": "k:1"}, "format": {"registry": "http://r"},
        "target": {"type": "mysql", "host": "h"},
    })  # fmt: skip
    assert rules_of(task) == rules_of(replace(task, apply=replace(task.apply, txn_rows=5)))
    assert rules_of(task) != rules_of(replace(task, apply=replace(task.apply, safe_mode=True)))
