"""Snapshots of a table into Kafka: each tool reads the same rows, one after the other."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

from bench import limits
from bench.bench_figures import Found
from bench.bench_tools import Debezium, Tool, bring_to_end, noted
from bench.catch_up import COLD, tools_of
from bench.stage import Stage
from bench.workload_context import Context


def incremental(context: Context) -> Found:
    """Measure incremental snapshots from the signal on, nothing else being written."""
    stage = Stage(context.scene, context.folder, "snapshot_incremental")
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        tools = tools_of(context, stage, stack)
        stage.insert(context.rows)
        for tool in tools:
            bring_to_end(tool, stage)
        for number in range(context.repeat + (1 if context.peers else 0)):
            for tool in tools:
                _round(tool, stage, found, context.rows, number, warm=number > 0 or not context.peers)
        if context.peers:
            found["limit: SELECT read to nothing"].append(limits.select(stage, context.rows))
    return found


def _round(tool: Tool, stage: Stage, found: Found, rows: int, number: int, *, warm: bool) -> None:
    """Let a tool that follows the log read the table; the first pass is stated as cold for Debezium only."""
    before = tool.arrivals.total()
    pid = tool.resume()
    tool.arrivals.wait_for_more(before, stage.probe)

    def signal() -> int:
        stage.request_snapshot(tool.signal_table, number)
        return pid

    figure = tool.arrivals.measure(rows, signal)
    tool.pause()
    if warm:
        found[tool.name].append(figure)
    elif tool.name == Debezium.name:
        found[COLD].append(noted(figure, "cold"))
