"""`make bench`: named workloads, each beside its peers on the same servers and rows, A B A B.

All servers run on this machine beside what is measured, so rates are lower bounds; CPU per row is the steadier figure.
It is that of all processes of the tool (a JVM and Python workers included), from the first row on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import (
    catch_up,
    lake_first_load,
    lake_freshness,
    lake_merge,
    lake_tables,
    latency,
    merge_sinks,
    snapshot_workloads,
    soak,
    stored_result,
    task_apply,
    task_delay,
    task_memory,
)
from bench.bench_figures import OURS, Found, table
from bench.benched_sinks import BASE, SINKS
from bench.lake_jobs import SPARK
from bench.scene import Scene
from bench.workload_context import Context, Workload

_DEBEZIUM = "debezium"
WORKLOADS: dict[str, Workload] = {
    "catchup-batched": Workload(catch_up.batched, _DEBEZIUM),
    "catchup-single": Workload(catch_up.single, _DEBEZIUM),
    "catchup-wide": Workload(catch_up.wide, _DEBEZIUM),
    "catchup-json": Workload(catch_up.as_json, _DEBEZIUM),
    "snapshot-initial": Workload(snapshot_workloads.initial, _DEBEZIUM),
    "snapshot-incremental": Workload(snapshot_workloads.incremental, _DEBEZIUM),
    "snapshot-incremental-load": Workload(snapshot_workloads.incremental_load, _DEBEZIUM),
    "latency-200": Workload(latency.at_200, _DEBEZIUM),
    "latency-5000": Workload(latency.at_5000, _DEBEZIUM),
    "merge-insert": Workload(lake_merge.insert, SPARK),
    "merge-sinks": Workload(merge_sinks.sinks, None, base=BASE),
    "merge-routed": Workload(lake_merge.routed, None, base=lake_merge.PLAIN),
    "merge-hot": Workload(lake_merge.hot, SPARK),
    "merge-uniform-1m": Workload(lake_merge.uniform_1m, SPARK),
    "merge-uniform-5m": Workload(lake_merge.uniform_5m, SPARK),
    "merge-uniform-20m": Workload(lake_merge.uniform_20m, SPARK, short=False),
    "merge-200-tables": Workload(lake_tables.many, SPARK),
    "first-load-lake": Workload(lake_first_load.first_load, lake_first_load.JDBC),
    "freshness-20": Workload(lake_freshness.freshness, None),
    "apply-batched": Workload(task_apply.batched, None),
    "apply-single": Workload(task_apply.single, None),
    "apply-files": Workload(task_apply.files, None),
    "apply-delay": Workload(task_delay.one_source, None),
    "apply-delay-global": Workload(task_delay.one_of_two, None),
    "apply-memory": Workload(task_memory.memory, None, short=False, base=task_memory.LONG),
    "soak-30m": Workload(soak.soak, None, short=False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, compare and store; 0 when every workload was measured and none is worse than the stored result."""
    options = _options(arguments)
    names = options.workloads or [name for name, workload in WORKLOADS.items() if workload.short]
    rows = max(1_000, options.rows // 1_000 * 1_000)
    stored = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare is not None else {}
    measured: dict[str, stored_result.Document] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder, Scene(options.server, Path(folder)) as scene:
        asked = {name: getattr(options, name) for name in ("repeat", "peers", "old", "minutes", "flink", "sinks")}
        context = Context(scene, Path(folder), rows, failures=failures, **asked)
        for name in names:
            print(f"{name}:", flush=True)
            found = WORKLOADS[name].run(context)
            print("\n".join(table(found)), flush=True)
            workload = WORKLOADS[name]
            peer = workload.peer if options.peers else "old"
            moved = rows_of(found, rows, workload.base or OURS)
            measured[name] = stored_result.measured_workload(name, found, peer, moved, workload.base)
            if options.store is not None:  # at once: what a later workload breaks is not lost
                stored_result.store(options.store, {name: measured[name]}, options.server)
    failures += stored_result.worse(stored, measured, options.tolerance)
    print("\n".join([workload["line"] for workload in measured.values()] + [f"bench: failed: {words}" for words in failures]))
    return 1 if failures else 0


def rows_of(found: Found, asked: int, tool: str = OURS) -> int:
    """Return the rows that a tool of ours moved in a run, where they are known, else those that were asked for."""
    figures = found.get(tool, [])
    most = max((figure.rows for figure in figures), default=asked)
    return -(-most // 1_000) * 1_000  # a few rows came with the first sample, which the figure leaves out


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)} (default: all short ones)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a workload (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each tool; medians are printed (default: %(default)s)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peers, too")
    parser.add_argument("--flink", action="store_true", help="measure Flink CDC, too: catching up and first starts")
    parser.add_argument("--sinks", default="", metavar="NAMES", help=f"merge-sinks: only these of {','.join(SINKS)}")
    parser.add_argument("--old", type=Path, metavar="PATH", help="another checkout of Tidemark to measure beside this one")
    parser.add_argument("--server", default="mysql80", help="database to run on (default: %(default)s)")
    parser.add_argument(
        "--store", type=Path, metavar="FOLDER", help="write result.json and result.svg there; workloads that are not run stay"
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="length of the soak, and of the stop in apply-memory (default: %(default)s)"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="a stored result: fail where CPU per row is worse, relative to peer and limits"
    )
    parser.add_argument(
        "--tolerance", type=float, default=stored_result.TOLERANCE, help="how much worse it may be (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"no workload is called {', '.join(sorted(unknown))}")
    options.sinks = tuple(filter(None, options.sinks.split(",")))
    if unknown := set(options.sinks) - set(SINKS):
        parser.error(f"--sinks: no sink is called {', '.join(sorted(unknown))}")
    options.old = options.old and options.old.resolve()
    return options
