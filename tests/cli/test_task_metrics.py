"""The metrics of a task, made from its figures."""

from __future__ import annotations

from collections import Counter

from spark_jobs.replicate.apply.components import Conflicts
from spark_jobs.replicate.task_figures import SourceProgress, TaskFigures
from tidemark.api.task_metrics import task_metrics


def figures_of(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def test_a_task_that_has_not_begun_says_only_that():
    figures = figures_of(task_metrics(None, "it is starting"))
    assert figures.pop("tidemark_task_ready") == figures.pop("tidemark_task_paused") == 0
    assert [name.partition("{")[0] for name in figures] == ["tidemark_build_info"]


def test_unknown_figures_are_left_out_and_the_source_that_others_wait_for_is_named():
    sources = {"shop": SourceProgress(read_us=1_000_000, lifted=2), "stock": SourceProgress()}
    text = task_metrics(TaskFigures(sources, Counter({("shop", "u"): 3}), 1.5, 500_000, "stock"), None)
    figures = figures_of(text)
    assert figures["tidemark_task_ready"] == 1
    assert figures['tidemark_apply_rows_total{op="update",source="shop"}'] == 3
    assert figures["tidemark_frontier_us"] == 500_000
    assert figures['tidemark_merge_blocked_by{source="stock"}'] == 1
    assert figures['tidemark_merge_blocked_by{source="shop"}'] == 0
    assert "tidemark_conflict_groups" not in figures
    assert figures['tidemark_order_lifted_total{source="shop"}'] == 2
    assert figures['tidemark_heartbeat_age_seconds{source="shop"}'] > 1_700_000_000
    assert 'tidemark_heartbeat_age_seconds{source="stock"}' not in figures
    assert 'tidemark_checkpoint_lag_seconds{source="shop"}' not in figures


def test_the_conflicts_of_the_last_batch_of_workers_are_shown():
    figures = figures_of(task_metrics(TaskFigures(conflicts=Conflicts(40, 7)), None))
    assert figures["tidemark_conflict_groups"] == 40
    assert figures["tidemark_largest_group_rows"] == 7
