"""Freshness: 20 tables, 1,000 changes a second; from a commit at the source until its rows are read from Delta by somebody else.

The load and the reader are processes of their own (`lake_load`), which know nothing of producer and merge job. A transaction
has ten rows of one table; it counts as readable when the reader has read its rows from the files of a new commit of the Delta
log. The clock starts before its statement is sent. Each row is updated once, so every transaction shows in the lake. The first
20 s are not counted, in which everything warms up. CPU is that of producer and merge job, from then on until the last change is
read. The lake is compared with the source by sums over all rows of all tables. No peer is measured.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench import lake_rows, lake_source
from bench.bench_figures import OURS, Figure, Found
from bench.cost import CostMeter
from bench.lake_feed import ROOT, Feed, spawned, tail
from bench.lake_jobs import MergeJob
from bench.lake_load import TRANSACTION_ROWS
from bench.lake_merge import say
from bench.process_tree import worker_peak_mib
from bench.scene import BenchError
from bench.stage import Stage
from bench.workload_context import Context
from devservers.processes import GuardedProcess

_TABLES, _PER_S, _WARM_S = 20, 1_000, 20
_LONGEST_S, _SHORTEST_S = 60, 20


def freshness(context: Context) -> Found:
    """Measure 60 s of load, fewer with fewer `--rows`, but 20."""
    seconds = max(_SHORTEST_S, min(_LONGEST_S, _LONGEST_S * context.rows // 1_000_000))
    found: Found = defaultdict(list)
    for number in range(context.repeat):
        figure = _run(context, f"freshness_{number}", seconds)
        say(OURS, figure)
        found[OURS].append(figure)
    return found


def _run(context: Context, name: str, seconds: int) -> Figure:
    """Run the load once, on a database, topics and a lake of their own."""
    stage = Stage(context.scene, context.folder, name)
    tables = [f"bench_{number:02}" for number in range(_TABLES)]
    stage.execute(*(f"CREATE TABLE {table} LIKE bench" for table in tables))
    feed = Feed(stage, tables)
    rows = (seconds + _WARM_S) * _PER_S // _TABLES
    with ExitStack() as stack:
        stack.callback(feed.stop)
        job = MergeJob(feed)
        stack.callback(job.close)
        feed.start()
        for table in tables:
            lake_source.insert_range(stage, rows, table)
        feed.wait_until_read(feed.end_of_log())
        job.start()
        _until(lambda: job.has_reached(feed.ends()), job.log(), 300)
        reader, writer = _processes(stage, job, tables, seconds + _WARM_S)
        stack.callback(reader.kill)
        stack.callback(writer.kill)
        time.sleep(_WARM_S)
        meters = [CostMeter(pid) for pid in (feed.pid, job.pid)]

        def has_ended() -> bool:
            for meter in meters:
                meter.look(every_s=1.0)
            return reader.status is not None

        _until(has_ended, job.log(), seconds + 120)
        costs = [meter.cost() for meter in meters]
        delays, loaded_s = _delays(stage.folder)
        for table in tables:
            lake_rows.require_sums(job.table(table), lake_source.sums_of(stage, table))
        extra = {
            "p50 s": float(np.percentile(delays, 50)),
            "p99 s": float(np.percentile(delays, 99)),
            "most s": float(delays.max()),
            "worker MiB": worker_peak_mib(job.pid),
        }
    changes, peak = len(delays) * TRANSACTION_ROWS, max(cost.peak_mib for cost in costs)
    return Figure(changes, loaded_s, sum(cost.cpu_s for cost in costs), peak, extra)


def _processes(stage: Stage, job: MergeJob, tables: list[str], seconds: int) -> tuple[GuardedProcess, GuardedProcess]:
    """Start the reader, wait until it follows the logs, and start the load."""
    folder, database = stage.folder, stage.scene.database
    transactions = seconds * _PER_S // TRANSACTION_ROWS
    common = {"transactions": transactions, "first": lake_source.FIRST_CHANGE}
    reading = {
        "paths": [str(job.table(table)) for table in tables],
        "seconds": seconds + 90,
        "ready": str(folder / "reader-ready"),
        "result": str(folder / "read.json"),
    }
    source = {"host": database.host, "port": database.port, "user": database.user, "password": database.password}
    writing = {
        "source": source | {"database": stage.name},
        "tables": tables,
        "per_s": _PER_S / TRANSACTION_ROWS,
        "result": str(folder / "sent.json"),
    }
    reader = _process(folder, "read", common | reading)
    _until((folder / "reader-ready").exists, folder / "read.log", 60)
    return reader, _process(folder, "write", common | writing)


def _process(folder: Path, kind: str, document: Mapping[str, Any]) -> GuardedProcess:
    path = folder / f"{kind}-document.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return spawned([kind, str(path)], folder / f"{kind}.log", ROOT, "bench.lake_load")


def _delays(folder: Path) -> tuple[np.ndarray[Any, Any], float]:
    """Return the delay of each transaction behind the warm-up, and how long they took; `BenchError` if one was never read."""
    try:
        sent, read = (json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("sent", "read"))
    except OSError as error:
        message = f"the load or its reader failed:\n{tail(folder / 'write.log')}\n{tail(folder / 'read.log')}"
        raise BenchError(message) from error
    if missing := sent.keys() - read.keys():
        message = f"{len(missing)} of {len(sent)} transactions never became readable"
        raise BenchError(message)
    warm = min(sent.values()) + _WARM_S
    delays = [read[number] - at for number, at in sent.items() if at >= warm]
    return np.array(delays), max(sent.values()) - warm


def _until(condition: Any, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            message = f"waited for {seconds:.0f} s:\n{tail(log)}"
            raise BenchError(message)
        time.sleep(0.05)
