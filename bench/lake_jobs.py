"""The jobs that merge the same topics into lakes of their own: ours, and Spark's MERGE as a user would write it.

Each is measured from the moment when it may begin until it says that the offsets of its lake are the ends of the topics. CPU
is counted two seconds longer: what a job puts off behind its batch is in the figure. It is that of the whole process tree, the
JVM and Python workers included. Between its turns a job is stopped (`process_tree.freeze`): it stays warm, and costs the others
nothing.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench import process_tree
from bench.bench_figures import OURS, Figure
from bench.cost import CostMeter
from bench.lake_feed import ROOT, Ends, Feed, spawned, tail
from bench.scene import BenchError
from devservers.processes import GuardedProcess
from schemas.names import folder_name
from schemas.overriding import override

SPARK = "spark merge"
COLD = "first batch of a process, its start included"
_SETTLES_S = 2.0
_EVERY_S, _PEAK_EVERY_S = 0.02, 1.0


class LakeJob(Protocol):
    """What a workload does with a job."""

    name: str

    @property
    def pid(self) -> int:
        """The process whose tree is measured."""

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""

    def table(self, name: str) -> Path:
        """Return the Delta table of a table."""

    def start(self) -> None:
        """Start the process."""

    def has_reached(self, ends: Ends) -> bool:
        """Return whether everything before these ends is in the lake."""

    def log(self) -> Path:
        """Return the path of its log."""

    def close(self) -> None:
        """End its process."""


class _Job(LakeJob):
    """What both jobs have in common: a process, its log, and a document that says how far it is."""

    def __init__(self, feed: Feed, name: str) -> None:
        self.name, self._feed = name, feed
        self._folder = feed.stage.folder / name.replace(" ", "-")
        self._folder.mkdir()
        self._child: GuardedProcess | None = None
        self._read: tuple[int, Any] = (0, {})

    @property
    @override
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    @override
    def is_running(self) -> bool:
        return self._child is not None and self._child.status is None

    @override
    def log(self) -> Path:
        return self._folder / "job.log"

    @override
    def close(self) -> None:
        if self._child is not None:
            if self.is_running:
                process_tree.thaw(self.pid)
            self._child.signal(signal.SIGTERM)
            if not self._child.wait(30):
                self._child.kill()
            self._child = None

    def _document(self, path: Path) -> Any:
        """Return a JSON document that another process replaces; what was read before if it is as it was."""
        try:
            changed = path.stat().st_mtime_ns
            if changed != self._read[0]:
                self._read = changed, json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            pass
        return self._read[1]


class MergeJob(_Job):
    """`tidemark merge` of this checkout, or of another one. `sink` and `udfs` are further settings.

    `lake` is the folder of its sink, and `config` the file of its settings.
    """

    def __init__(
        self,
        feed: Feed,
        name: str = OURS,
        root: Path = ROOT,
        sink: Mapping[str, Any] | None = None,
        udfs: Sequence[Any] = (),
    ) -> None:
        super().__init__(feed, name)
        self._root = root
        self.lake = self._folder / "lake"
        self.config = feed.config(name, self.lake, sink, udfs)

    @override
    def table(self, name: str) -> Path:
        return self.lake / folder_name(self._feed.stage.name) / folder_name(name)

    @override
    def start(self) -> None:
        self._child = spawned(["merge", "--config", str(self.config)], self.log(), self._root)

    def merge_all(self) -> None:
        """Merge what Kafka has now, in a process that ends then."""
        arguments = ["merge", "--config", str(self.config), "--until-caught-up"]
        child = spawned(arguments, self.log(), self._root)
        if not child.wait(600) or child.status:
            child.kill()
            message = f"the merge job of {self.name} did not end well:\n{tail(self.log())}"
            raise BenchError(message)

    @override
    def has_reached(self, ends: Ends) -> bool:
        tables: Mapping[str, Any] = self._document(self.lake / "_tidemark" / "progress.json").get("tables", {})
        known = {table: tables.get(f"{self._feed.stage.name}.{table}", {}).get("change_offsets", {}) for table in ends}
        return _covers(known, ends)

    def batches(self) -> list[float]:
        """Return the seconds of the batches so far, as the job logs them."""
        lines = self.log().read_text(encoding="utf-8", errors="replace").splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [float(event["seconds"]) for event in events if event["event"] == "merge.batch"]


class SparkMerge(_Job):
    """A user's own job (`lake_spark_job`): it reads from where the topics end now on, into tables that exist."""

    def __init__(self, feed: Feed, tables: Sequence[str], begins: Ends) -> None:
        super().__init__(feed, SPARK)
        self._tables, self._begins = tables, begins

    @override
    def table(self, name: str) -> Path:
        return self._folder / "lake" / name

    @override
    def start(self) -> None:
        topics = {self._feed.topic(table): str(self.table(table)) for table in self._tables}
        begins = {self._feed.topic(table): dict(self._begins[table]) for table in self._tables}
        document = {
            "servers": self._feed.servers,
            "registry": self._feed.registry,
            "topics": topics,
            "begins": begins,
            "checkpoint": str(self._folder / "checkpoint"),
            "progress": str(self._folder / "progress.json"),
        }
        path = self._folder / "job.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        self._child = spawned([str(path)], self.log(), ROOT, "bench.lake_spark_job")

    @override
    def has_reached(self, ends: Ends) -> bool:
        topics = self._document(self._folder / "progress.json")
        return _covers({table: topics.get(self._feed.topic(table), {}) for table in ends}, ends)


def _covers(known: Mapping[str, Mapping[str, int]], ends: Ends) -> bool:
    return all(known[table].get(str(number), 0) >= end for table in ends for number, end in ends[table].items())


def measured(job: LakeJob, ends: Ends, rows: int, seconds: float = 900.0, settles_s: float = _SETTLES_S) -> Figure:
    """Let a job continue, or start it, and return what it takes until its lake has everything; then it is stopped again."""
    is_cold = not job.is_running
    began = time.monotonic()
    if is_cold:
        job.start()
    meter = CostMeter(job.pid)
    if not is_cold:
        process_tree.thaw(job.pid)
    ended, peak = _wait(job, lambda: job.has_reached(ends), began + seconds, meter)
    time.sleep(settles_s)
    process_tree.freeze(job.pid)
    cost = meter.cost()
    worker = max(peak, process_tree.worker_peak_mib(job.pid))
    extra = {"worker MiB": worker} if worker else {}
    note = COLD if is_cold else ""
    return Figure(rows, ended - began, cost.cpu_s, cost.peak_mib, extra, note)


def _wait(job: LakeJob, is_done: Callable[[], bool], deadline: float, meter: CostMeter) -> tuple[float, float]:
    """Wait, and return when it was done, and the peak of a worker's memory, which may have ended by then."""
    peak, looked = 0.0, time.monotonic()
    while not is_done():
        now = time.monotonic()
        if now - looked > _PEAK_EVERY_S:
            peak, looked = max(peak, process_tree.worker_peak_mib(job.pid)), now
            meter.look()
        if not job.is_running or now > deadline:
            message = f"{job.name} did not merge everything:\n{tail(job.log())}"
            raise BenchError(message)
        time.sleep(_EVERY_S)
    return time.monotonic(), peak
