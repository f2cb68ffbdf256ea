"""The delay of a replication task: transactions of one row at a fixed rate, from the statement to the row in the target.

With one source, or with two, of which one has no changes: with `order: global` a transaction waits until the other source has
promised no earlier one. Producer and task have their default settings.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from bench.bench_figures import OURS, Figure, Found
from bench.benched_task import SERVER_NAME, FollowingTask, TargetServer, task_document
from bench.cost import cost_of
from bench.lake_feed import Feed
from bench.lake_merge import say
from bench.log_lag import InServer, LagReader
from bench.paced_load import PacedLoad
from bench.scene import DATABASE as TABLE
from bench.stage import Stage
from bench.workload_context import Context
from devservers import start_database

_PER_S: Final = 100
_SECONDS: Final = 30.0
_WARM_UP_S: Final = 5.0
_GROUP: Final = "delay"


def one_source(context: Context) -> Found:
    """Measure one source."""
    return _measure(context, "delay_one", 1, {"order": "source"})


def one_of_two(context: Context) -> Found:
    """Measure one of two sources, the other without changes."""
    return _measure(context, "delay_two", 2, {"order": "global", "group": _GROUP})


def _measure(context: Context, name: str, sources: int, order: dict[str, Any]) -> Found:
    with ExitStack() as stack:
        stages = [Stage(context.scene, context.folder, name)]
        for number in range(1, sources):
            scene, folder = copy.copy(context.scene), context.folder / f"{name}-{number}"
            folder.mkdir()
            scene.database = stack.enter_context(start_database(SERVER_NAME, folder))
            stages.append(Stage(scene, folder, f"{name}_{number}"))
        feeds = [Feed(stage, (TABLE,), {"order": {"group": _GROUP}}) for stage in stages]
        for feed in feeds:
            stack.callback(feed.stop)
            feed.start()
        target = TargetServer(stack, stages[0].folder)
        for stage in stages:
            target.create(stage, (TABLE,))
        task = FollowingTask(stack, stages[0].folder, task_document(name, feeds, target.settings()) | order)
        return {OURS: _rounds(context.repeat, stages[0], target, task)}


def _rounds(repeat: int, stage: Stage, target: TargetServer, task: FollowingTask) -> Sequence[Figure]:
    return [_round(stage, target, task, 1 + number * 10 * round(_PER_S * _SECONDS)) for number in range(repeat)]


def _round(stage: Stage, target: TargetServer, task: FollowingTask, first: int) -> Figure:
    with LagReader(stage, TABLE, InServer(target.database, f"{stage.name}.{TABLE}")) as reader:
        reader.wait_until_current()
        with PacedLoad(stage, TABLE, first, _PER_S, 1, _SECONDS + _WARM_UP_S) as load:
            time.sleep(_WARM_UP_S)
            begun, before = time.time(), cost_of(task.pid)
            time.sleep(_SECONDS)
            ended, after = time.time(), cost_of(task.pid)
            load.wait()
        extra = reader.lags(first, begun, ended)
    figure = Figure(round(extra.pop("lag_rows")), ended - begun, after.cpu_s - before.cpu_s, after.peak_mib, extra)
    say(OURS, figure)
    return figure
