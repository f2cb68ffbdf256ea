"""Latency: transactions of one row at a fixed rate, from the statement to a consumer that reads committed records.

Each tool is measured with its defaults, and as its users set it where rows are wanted soon: `kafka.commit_interval_ms` 5 here,
`poll.interval.ms` 5 and `linger.ms` 0 there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack

from bench.bench_figures import OURS, Figure, Found
from bench.bench_tools import Debezium, Tidemark, Tool, bring_to_end
from bench.cost import cost_of
from bench.log_lag import InTopic, LagReader
from bench.paced_load import PacedLoad
from bench.scene import DATABASE as TABLE
from bench.stage import Stage
from bench.workload_context import Context

SECONDS = 30.0
_WARM_UP_S = 3.0
OURS_DEFAULT = "tidemark (default settings)"
DEBEZIUM_DEFAULT = "debezium (default settings)"
_AS_CONNECT = {"linger.ms": "0", "batch.size": "16384"}
_AS_DEBEZIUM = {"poll.interval.ms": "500", "max.batch.size": "2048", "max.queue.size": "8192"}


def at_200(context: Context) -> Found:
    """Measure 200 transactions a second."""
    return _measure(context, 200)


def at_5000(context: Context) -> Found:
    """Measure 5,000 transactions a second."""
    return _measure(context, 5000)


def _measure(context: Context, per_s: int) -> Found:
    stage = Stage(context.scene, context.folder, f"latency_{per_s}")
    found: Found = defaultdict(list)
    first = 1
    with ExitStack() as stack:
        tools = _tools(context, stage, stack)
        for tool in tools:
            bring_to_end(tool, stage)
        for _ in range(context.repeat):
            for tool in tools:
                figure = _round(stage, tool, first, per_s)
                first += 10 * round(per_s * SECONDS)
                found[tool.name].append(figure)
                times = f"p50 {figure.extra['p50_ms']:.1f} ms, p99 {figure.extra['p99_ms']:.1f} ms"
                print(f"  {tool.name}: {times}, {figure.cpu_us:.1f} µs of CPU a row", flush=True)
    return found


def _tools(context: Context, stage: Stage, stack: ExitStack) -> list[Tool]:
    servers = context.scene.kafka.bootstrap_servers
    soon = {"kafka": {"bootstrap_servers": servers, "commit_interval_ms": 5}}
    tools: list[Tool] = [Tidemark(stage, OURS, options=soon), Tidemark(stage, "default")]
    tools[1].name = OURS_DEFAULT
    if context.old is not None:
        tools.append(Tidemark(stage, "old", context.old, soon))
    if context.peers:
        tuned = {"poll.interval.ms": "5"}
        tools.append(Debezium(stage, tuned, {"linger.ms": "0"}))
        tools.append(Debezium(stage, _AS_DEBEZIUM, _AS_CONNECT, name=DEBEZIUM_DEFAULT, slug="plain"))
    for tool in tools:
        stack.callback(tool.close)
    return tools


def _round(stage: Stage, tool: Tool, first: int, per_s: int) -> Figure:
    """Run the load beside one tool that is up to date; what is sent in the first seconds does not count."""
    pid = tool.resume()
    try:
        with LagReader(stage, TABLE, InTopic(stage, tool.topic)) as reader:
            reader.wait_until_current()
            with PacedLoad(stage, TABLE, first, per_s, 1, SECONDS + _WARM_UP_S) as load:
                time.sleep(_WARM_UP_S)
                begun, before = time.time(), cost_of(pid)
                time.sleep(SECONDS)
                ended, after = time.time(), cost_of(pid)
                load.wait()
            extra = reader.lags(first, begun, ended)
    finally:
        tool.pause()
    return Figure(round(extra.pop("lag_rows")), ended - begun, after.cpu_s - before.cpu_s, after.peak_mib, extra)
