"""Catching up with the log: every tool has the same position, the rows are inserted, one tool after the other reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from bench import limits
from bench.bench_figures import OURS, Found
from bench.bench_tools import Debezium, Tidemark, Tool, bring_to_end, noted
from bench.flink_cdc import FlinkCdc
from bench.stage import WIDE, Stage
from bench.workload_context import Context

COLD = "debezium (first pass of its JVM)"


def batched(context: Context) -> Found:
    """Measure transactions of 1,000 rows."""
    return _measure(context, "batched")


def single(context: Context) -> Found:
    """Measure transactions of one row, a fifth as many."""
    return _measure(context, "single", rows=max(1_000, context.rows // 5), one_by_one=True)


def wide(context: Context) -> Found:
    """Measure rows of 80 columns, a fifth as many."""
    return _measure(context, "wide", rows=max(1_000, context.rows // 5), columns=WIDE)


def as_json(context: Context) -> Found:
    """Measure records in JSON without schemas."""
    return _measure(context, "json", options={"format": {"type": "json"}})


def _measure(
    context: Context,
    name: str,
    *,
    rows: int | None = None,
    columns: int = 10,
    one_by_one: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Found:
    rows = rows or context.rows
    stage = Stage(context.scene, context.folder, f"catchup_{name}", columns)
    insert = stage.insert_one_by_one if one_by_one else stage.insert
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        tools = tools_of(context, stage, stack, options)
        if context.flink and columns == 10:
            tools.append(FlinkCdc(stage))
            stack.callback(tools[-1].close)
        for tool in tools:
            bring_to_end(tool, stage)
        for number in range(context.repeat + (1 if context.peers else 0)):
            _round(tools, found, rows, lambda: insert(rows), warm=number > 0 or not context.peers)
        if context.peers:
            _limits(stage, found, rows, lambda: insert(rows), tools[0].arrivals.ends(), one_by_one=one_by_one)
    return found


def tools_of(context: Context, stage: Stage, stack: ExitStack, options: Mapping[str, Any] | None = None) -> list[Tool]:
    """Return the tools of this run: ours first."""
    tools: list[Tool] = [Tidemark(stage, OURS, options=options)]
    stack.callback(tools[0].close)
    if context.old is not None:
        tools.append(Tidemark(stage, "old", context.old, options))
        stack.callback(tools[-1].close)
    if context.peers:
        tools.append(Debezium(stage))
        stack.callback(tools[-1].close)
    return tools


def _round(tools: list[Tool], found: Found, rows: int, insert: Callable[[], None], *, warm: bool) -> None:
    """Let each tool read the same rows; the first pass counts for no medians, Debezium's is stated as cold."""
    insert()
    for tool in tools:
        figure = tool.arrivals.measure(rows, tool.resume)
        tool.pause()
        name = tool.name if warm else f"{tool.name} (first pass)"
        print(f"  {name}: {figure.rate:,.0f} rows/s, {figure.cpu_us:.2f} µs of CPU a row", flush=True)
        if warm:
            found[tool.name].append(figure)
        elif tool.name == Debezium.name:
            found[COLD].append(noted(figure, "cold"))


def _limits(
    stage: Stage,
    found: Found,
    rows: int,
    insert: Callable[[], None],
    ends: Mapping[tuple[str, int], int],
    *,
    one_by_one: bool,
) -> None:
    """Measure what decodes or moves the same rows and does nothing else."""
    begin = stage.position()
    insert()
    end = stage.position()
    found["mysql-replication, decoding only"].append(limits.decode(stage, begin, rows))
    if begin.file == end.file:
        found["limit: binlog read to nothing"].append(limits.dump(stage, begin, end, rows))
    if not one_by_one:
        found["limit: SELECT read to nothing"].append(limits.select(stage, rows))
    found["limit: librdkafka, the same bytes"].append(limits.produce(stage, ends, rows))
