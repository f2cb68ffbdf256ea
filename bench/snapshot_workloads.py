"""Snapshots of a table into Kafka: each tool reads the same rows, one after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from bench import limits
from bench.arrivals import Arrivals
from bench.bench_figures import OURS, Figure, Found
from bench.bench_tools import Debezium, Tidemark, Tool, Worker, bring_to_end, noted, properties_of
from bench.catch_up import COLD, tools_of
from bench.flink_cdc import FlinkCdc
from bench.log_lag import InTopic, LagReader
from bench.paced_load import PacedLoad
from bench.scene import DATABASE as TABLE
from bench.stage import LOAD_TABLE, Stage
from bench.workload_context import Context

LOAD_PER_S = 2_000
LOAD_ROWS = 5
_LOAD_S = 1_800.0
_BEFORE_S = 1.0


def incremental(context: Context) -> Found:
    """Measure incremental snapshots from the signal on, nothing else being written."""
    return _incremental(context, "snapshot_incremental", _round)


def incremental_load(context: Context) -> Found:
    """Measure them beside a load of 2,000 rows/s into another table, and how late its rows are meanwhile."""
    return _incremental(context, "snapshot_load", _round_with_load)


def _incremental(context: Context, name: str, measured: Callable[[Tool, Stage, int, int], Figure]) -> Found:
    stage = Stage(context.scene, context.folder, name)
    stage.add_load_table()
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        tools = tools_of(context, stage, stack)
        stage.insert(context.rows)
        for tool in tools:
            bring_to_end(tool, stage)
        for number in range(context.repeat + (1 if context.peers else 0)):
            for tool in tools:
                warm = number > 0 or not context.peers
                _keep(found, tool.name, measured(tool, stage, context.rows, number), warm=warm)
        if context.peers:
            found["limit: SELECT read to nothing"].append(limits.select(stage, context.rows))
    return found


def _keep(found: Found, name: str, figure: Figure, *, warm: bool) -> None:
    """Keep a figure; the first pass is stated as cold for Debezium only."""
    lag = f", log lag p99 {figure.extra['p99_ms']:,.0f} ms" if "p99_ms" in figure.extra else ""
    print(f"  {name}: {figure.rate:,.0f} rows/s, {figure.cpu_us:.2f} µs of CPU a row{lag}", flush=True)
    if warm:
        found[name].append(figure)
    elif name == Debezium.name:
        found[COLD].append(noted(figure, "cold"))


def _round(tool: Tool, stage: Stage, rows: int, number: int) -> Figure:
    """Let a tool that follows the log read the table."""
    before = tool.arrivals.total()
    pid = tool.resume()
    tool.arrivals.wait_for_more(before, stage.probe)
    figure = tool.arrivals.measure(rows, _signal(tool, stage, number, pid))
    tool.pause()
    return figure


def _round_with_load(tool: Tool, stage: Stage, rows: int, number: int) -> Figure:
    """Let it read the table while rows of another one arrive; CPU of both counts, for each row of the snapshot."""
    pid = tool.resume()
    first = int(time.time()) * 5 * LOAD_PER_S  # above all keys of earlier rounds
    with LagReader(stage, LOAD_TABLE, InTopic(stage, tool.load_topic)) as reader:
        reader.wait_until_current()
        with PacedLoad(stage, LOAD_TABLE, first, LOAD_PER_S, LOAD_ROWS, _LOAD_S):
            time.sleep(_BEFORE_S)
            begun = time.time()
            figure = tool.arrivals.measure(rows, _signal(tool, stage, number, pid))
            ended = begun + figure.extra["from_start_s"]
        extra = reader.lags(first, begun, ended)
    tool.pause()
    return replace(figure, extra={**figure.extra, **extra})


def _signal(tool: Tool, stage: Stage, number: int, pid: int) -> Callable[[], int]:
    def signal() -> int:
        stage.request_snapshot(tool.signal_table, number)
        return pid

    return signal


def initial(context: Context) -> Found:
    """Measure first starts, which read the table: a new producer each time, a new connector of a JVM that is cold only once."""
    stage = Stage(context.scene, context.folder, "snapshot_initial")
    stage.insert(context.rows)
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        worker = Worker(stage, "worker") if context.peers else None
        if worker is not None:
            stack.callback(worker.close)
            stack.callback(worker.kill)
            worker.start()
        flink = FlinkCdc(stage) if context.flink else None
        if flink is not None:
            stack.callback(flink.close)
        for number in range(context.repeat + (1 if context.peers else 0)):
            warm = number > 0 or not context.peers
            _keep(found, OURS, _first_start(stage, context, f"{OURS}_{number}", old=False), warm=warm)
            if context.old is not None:
                _keep(found, "old", _first_start(stage, context, f"old_{number}", old=True), warm=warm)
            if worker is not None:
                _keep(found, Debezium.name, _first_connector(stage, worker, context.rows, number), warm=warm)
            if flink is not None:
                _keep(found, FlinkCdc.name, _first_job(stage, flink, context.rows, number), warm=warm)
        if context.peers:
            found["limit: SELECT read to nothing"].append(limits.select(stage, context.rows))
    return found


def _first_job(stage: Stage, flink: FlinkCdc, rows: int, number: int) -> Figure:
    topic = f"{flink.topic}-{number}"
    arrivals = Arrivals(stage.scene.kafka.bootstrap_servers, [topic])
    try:
        return arrivals.measure(rows, lambda: flink.start({"scan.startup.mode": "initial"}, topic))
    finally:
        flink.pause()


def _first_start(stage: Stage, context: Context, name: str, *, old: bool) -> Figure:
    options = {"snapshot": {"mode": "initial", "readers": 2}}
    root = {"root": context.old} if old and context.old is not None else {}
    tool = Tidemark(stage, name, options=options, **root)
    try:
        figure = tool.arrivals.measure(context.rows, tool.resume)
        tool.pause()
    finally:
        tool.close()
    return figure


def _first_connector(stage: Stage, worker: Worker, rows: int, number: int) -> Figure:
    prefix, table = f"{stage.name}-dbz{number}", f"signal_dbz{number}"
    stage.add_signal_table(table)
    arrivals = Arrivals(stage.scene.kafka.bootstrap_servers, [f"{prefix}.{stage.name}.{TABLE}"])
    properties = properties_of(stage, table) | {"snapshot.mode": "initial"}

    def start() -> int:
        worker.create(prefix, properties)
        return worker.pid

    try:
        return arrivals.measure(rows, start)
    finally:
        worker.delete(prefix)
