"""`make bench`: named workloads, each beside its peers on the same servers and rows, A B A B.

All servers run on this machine beside what is measured, so rates are lower bounds; CPU per row is the steadier figure.
It is that of all processes of the tool (a JVM and Python workers included), from the first row on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import (
    catch_up,
    lake_first_load,
    lake_freshness,
    lake_merge,
    lake_tables,
    snapshot_workloads,
    stored_result,
)
from bench.bench_figures import Found, line, table
from bench.lake_jobs import SPARK
from bench.scene import Scene
from bench.workload_context import Context, Workload

_DEBEZIUM = "debezium"
WORKLOADS: dict[str, Workload] = {
    "catchup-batched": Workload(catch_up.batched, _DEBEZIUM),
    "catchup-single": Workload(catch_up.single, _DEBEZIUM),
    "catchup-wide": Workload(catch_up.wide, _DEBEZIUM),
    "catchup-json": Workload(catch_up.as_json, _DEBEZIUM),
    "snapshot-incremental": Workload(snapshot_workloads.incremental, _DEBEZIUM),
    "merge-insert": Workload(lake_merge.insert, SPARK),
    "merge-hot": Workload(lake_merge.hot, SPARK),
    "merge-uniform-1m": Workload(lake_merge.uniform_1m, SPARK),
    "merge-uniform-5m": Workload(lake_merge.uniform_5m, SPARK),
    "merge-uniform-20m": Workload(lake_merge.uniform_20m, SPARK, short=False),
    "merge-200-tables": Workload(lake_tables.many, SPARK),
    "first-load-lake": Workload(lake_first_load.first_load, lake_first_load.JDBC),
    "freshness-20": Workload(lake_freshness.freshness, None),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store; 0 when every workload was measured."""
    options = _options(arguments)
    names = options.workloads or [name for name, workload in WORKLOADS.items() if workload.short]
    rows = max(1_000, options.rows // 1_000 * 1_000)
    results: dict[str, Found] = {}
    lines = []
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder, Scene(options.server, Path(folder)) as scene:
        context = Context(scene, Path(folder), rows, options.repeat, options.peers, options.old)
        for name in names:
            print(f"{name}:", flush=True)
            found = results[name] = WORKLOADS[name].run(context)
            print("\n".join(table(found)), flush=True)
            peer = WORKLOADS[name].peer
            lines.append(line(name, found, peer if options.peers else "old"))
    if options.store is not None:
        stored_result.store(options.store, results, {name: WORKLOADS[name].peer for name in results}, rows, options.server)
    print("\n".join(lines))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)} (default: all short ones)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a workload (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each tool; medians are printed (default: %(default)s)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peers, too")
    parser.add_argument("--old", type=Path, metavar="PATH", help="another checkout of Tidemark to measure beside this one")
    parser.add_argument("--server", default="mysql80", help="database to run on (default: %(default)s)")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="write result.json and result.svg there")
    options = parser.parse_args(arguments)
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"no workload is called {', '.join(sorted(unknown))}")
    options.old = options.old and options.old.resolve()
    return options
