"""The figures of a replication task as metrics, at `/metrics`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from tidemark.status.metrics import Family, build_info, counter, exposition, gauge

if TYPE_CHECKING:
    from spark_jobs.replicate.task_figures import TaskFigures
    from tidemark.status.task_status import TaskStatus

_OPS: Final = {"c": "insert", "u": "update", "d": "delete", "r": "load"}


def task_metrics(
    figures: TaskFigures | None, not_ready: str | None, status: TaskStatus | None = None, *, is_paused: bool = False
) -> str:
    """Return the metrics; of a task that has not begun only its readiness. Figures that are unknown are left out.

    `status` is as the target and Kafka reported it some time ago. A task that is paused reads nothing: how old the promises of its
    sources are is unknown.
    """
    ready = gauge("tidemark_task_ready", "1 if /readyz says that changes can be applied, else 0", ({}, not_ready is None))
    paused = gauge("tidemark_task_paused", "1 if the task is paused, by an error or a person, else 0", ({}, is_paused))
    families = [] if figures is None else _families(figures, time.time(), is_paused=is_paused)
    return exposition([build_info("task"), ready, paused, *families, *([] if status is None else [_head_room(status)])])


def _head_room(status: TaskStatus) -> Family:
    rooms = (
        ({"reader": status.task, "source": one.name}, math.inf if one.is_kept else one.head_room_s) for one in status.sources
    )
    text = "Seconds until Kafka may remove records that the task needs next, at least; unknown if size limits a topic"
    return gauge("tidemark_retention_head_room_seconds", text, *rooms)


def _families(figures: TaskFigures, now_s: float, *, is_paused: bool) -> list[Family]:
    def age(us: int | None) -> float | None:
        return None if us is None else now_s - us / 1_000_000

    sources = [({"source": name}, one) for name, one in sorted(figures.sources.items())]
    rows = [({"source": name, "op": _OPS[op]}, count) for (name, op), count in sorted(figures.rows.items())]
    blocked = [] if figures.frontier_us is None else [(labels, labels["source"] == figures.blocked_by) for labels, _ in sources]
    conflicts = figures.conflicts
    groups, largest = (None, None) if conflicts is None else (conflicts.groups, conflicts.largest)
    return [
        counter("tidemark_apply_rows_total", "Rows applied since the attempt began", *rows),
        counter("tidemark_apply_seconds_total", "How long they took together", ({}, figures.apply_s)),
        gauge(
            "tidemark_heartbeat_age_seconds",
            "Age of the last time that the source has promised in Kafka, by its own clock",
            *((labels, None if is_paused else age(one.read_us)) for labels, one in sources),
        ),
        gauge(
            "tidemark_checkpoint_lag_seconds",
            "Age of the time up to which the source is applied, by its own clock",
            *((labels, age(one.applied_us)) for labels, one in sources),
        ),
        counter(
            "tidemark_order_lifted_total",
            "Times that were raised within a commit record, since an earlier transaction of the source has a later one",
            *((labels, one.lifted) for labels, one in sources),
        ),
        counter(
            "tidemark_apply_skipped_transactions_total",
            "Transactions of apply.skip_transactions that were read, and not applied",
            *((labels, one.skipped) for labels, one in sources),
        ),
        gauge("tidemark_frontier_us", "The time up to which all sources are applied, in order: global", ({}, figures.frontier_us)),
        gauge("tidemark_conflict_groups", "Parts of the last batch of workers that depend on nothing else in it", ({}, groups)),
        gauge("tidemark_largest_group_rows", "Rows of the largest of them, which one worker applies", ({}, largest)),
        gauge("tidemark_merge_blocked_by", "1 for the source that the others wait for, in order: global, else 0", *blocked),
    ]
