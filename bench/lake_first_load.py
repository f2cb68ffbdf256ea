"""First loads: a table of 1,000,000 rows from SELECT to Delta, into a lake that does not have it yet.

Producer and merge job run and have loaded a small table and a large one before, so both are warm. The clock runs from the signal
that asks for the snapshot until the Delta log, read beside the job, has all rows; CPU is that of both process trees, counted
four seconds longer. Where the settings know `snapshot.via`, it is `spark`: executors read the chunks themselves. Else the rows
take the way through Kafka. The note says which it was. Peer: Spark reads by JDBC in eight ranges of the key and appends to Delta,
in a session that has loaded these two before. Limit: the server's answer to a SELECT of all rows, read to nothing. Afterwards
each table is compared with the source by the sums over all rows.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from bench import lake_rows, lake_source, limits, process_tree
from bench.bench_figures import OURS, Figure, Found
from bench.cost import CostMeter, cost_of
from bench.lake_feed import ROOT, Feed, spawned, tail
from bench.lake_jobs import MergeJob
from bench.lake_merge import say
from bench.scene import BenchError
from bench.stage import Stage
from bench.workload_context import Context
from devservers.processes import GuardedProcess
from schemas.settings.snapshot_section import SnapshotSettings

JDBC = "spark jdbc append"
_SMALL = 20_000
_WARM_UPS = ("a small table first", "a large table first")
_SETTLES_S = 4.0
_DEADLINE_S = 900.0


def first_load(context: Context) -> Found:
    """Measure the load of as many tables as there are runs, after those that warm both jobs up."""
    stage = Stage(context.scene, context.folder, "first_load")
    lake_source.insert_range(stage, context.rows)
    names = [f"bench_{number}" for number in range(context.repeat + len(_WARM_UPS))]
    for number, name in enumerate(names):
        most = f"WHERE id < {_SMALL}" if number == 0 else ""
        stage.execute(f"CREATE TABLE {name} LIKE bench", f"INSERT INTO {name} SELECT * FROM bench {most}")
    direct = any(field.name == "via" for field in fields(SnapshotSettings))
    feed = Feed(stage, names, {"snapshot": {"via": "spark"}} if direct else None)
    note = "snapshot.via: spark" if direct else "through Kafka"
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        stack.callback(feed.stop)
        job = MergeJob(feed)
        stack.callback(job.close)
        feed.start()
        job.start()
        peer = _Jdbc(stage) if context.peers else None
        if peer is not None:
            stack.callback(peer.close)
        for number, name in enumerate(names):
            truth = lake_source.sums_of(stage, name)
            figures = {OURS: _ours(feed, job, name, truth.rows, note)}
            lake_rows.require_sums(job.table(name), truth)
            if peer is not None:
                figures[JDBC] = peer.load(name, truth.rows)
                lake_rows.require_sums(peer.table(name), truth)
            for tool, figure in figures.items():
                if number < len(_WARM_UPS):
                    say(f"{tool} ({_WARM_UPS[number]})", figure)
                else:
                    say(tool, figure)
                    found[tool].append(figure)
    if context.peers:
        found["limit: SELECT read to nothing"].append(limits.select(stage, context.rows))
    return found


def _ours(feed: Feed, job: MergeJob, table: str, rows: int, note: str) -> Figure:
    """Signal a snapshot of a table, and return what it took until the lake has its rows."""
    producer, merge = CostMeter(feed.pid), CostMeter(job.pid)
    process_tree.thaw(job.pid)
    began = time.monotonic()
    data = json.dumps({"data-collections": [rf"{feed.stage.name}\.{table}"], "type": "INCREMENTAL"})
    with feed.stage.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO tidemark_signal VALUES (%s, 'execute-snapshot', %s)", (f"load-{table}", data))
    while lake_rows.rows_in_log(job.table(table)) < rows:
        if not job.is_running or time.monotonic() - began > _DEADLINE_S:
            message = f"the lake does not have all rows of {table}:\n{tail(job.log())}"
            raise BenchError(message)
        time.sleep(0.1)
        merge.look(every_s=1.0)
    ended = time.monotonic()
    time.sleep(_SETTLES_S)
    costs = producer.cost(), merge.cost()
    extra = {"worker MiB": process_tree.worker_peak_mib(job.pid)}
    process_tree.freeze(job.pid)
    cpu_s, peak = sum(cost.cpu_s for cost in costs), max(cost.peak_mib for cost in costs)
    return Figure(rows, ended - began, cpu_s, peak, extra, note)


class _Jdbc:
    """A session of Spark that loads a table when a file asks for it (`lake_jdbc_job`)."""

    def __init__(self, stage: Stage) -> None:
        self._folder = stage.folder / "jdbc"
        self._folder.mkdir()
        database = stage.scene.database
        options = "useCursorFetch=true&sslMode=DISABLED&allowPublicKeyRetrieval=true"
        document = {
            "url": f"jdbc:mysql://{database.host}:{database.port}/{stage.name}?{options}",
            "user": database.user,
            "password": database.password,
            "folder": str(self._folder),
        }
        path = self._folder / "job.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        self._log = self._folder / "job.log"
        self._child: GuardedProcess = spawned([str(path)], self._log, ROOT, "bench.lake_jdbc_job")
        self._wait(self._folder / "ready")

    def table(self, name: str) -> Path:
        """Return the Delta table of a table."""
        return self._folder / "lake" / name

    def load(self, table: str, rows: int) -> Figure:
        """Load a table, and return what it took."""
        process_tree.thaw(self._child.pid)
        before, began = cost_of(self._child.pid), time.monotonic()
        asked, done = self._folder / "asked", self._folder / f"{table}.done"
        request: dict[str, Any] = {"table": table, "rows": rows, "path": str(self.table(table))}
        asked.with_suffix(".new").write_text(json.dumps(request), encoding="utf-8")
        asked.with_suffix(".new").replace(asked)
        self._wait(done)
        seconds = time.monotonic() - began
        after = cost_of(self._child.pid)
        process_tree.freeze(self._child.pid)
        return Figure(rows, seconds, after.cpu_s - before.cpu_s, after.peak_mib)

    def close(self) -> None:
        """End the session."""
        process_tree.thaw(self._child.pid)
        self._child.terminate(10)

    def _wait(self, path: Path) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not path.exists():
            if self._child.status is not None or time.monotonic() > deadline:
                message = f"Spark's load by JDBC did not end:\n{tail(self._log)}"
                raise BenchError(message)
            time.sleep(0.02)
