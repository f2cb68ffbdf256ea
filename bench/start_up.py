"""How long a start takes: until the first record is in Kafka, and until the first commit is in the lake.

    python -m bench.start_up [--repeat N] [--server NAME]

The clock starts with the process. A start of the producer ends when a consumer of committed records has a row: one that was written
while it was stopped (`restart`), or one of a table of 1,000 rows (`first start`, `snapshot.mode: initial`). A start
of the merge job ends when the batch with 1,000 rows that were in Kafka already is done: its commit in the Delta table, and then its
progress. A restart finds its table and its checkpoint. Kernels are compiled already, as by the installation.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition

from bench.bench_tools import Tidemark, bring_to_end
from bench.lake_feed import Ends, Feed, tail
from bench.lake_jobs import MergeJob
from bench.scene import DATABASE as TABLE
from bench.scene import BenchError, Scene
from bench.stage import Stage
from schemas.markers import is_marker

_ROWS = 1_000
_LONGEST_S = 120.0
_EVERY_S = 0.02


def _seconds_until(is_done: Callable[[], bool], began: float, log: Path) -> float:
    while not is_done():  # it waits a moment itself
        if time.monotonic() > began + _LONGEST_S:
            message = f"nothing arrived in {_LONGEST_S:g} s:\n{tail(log)}"
            raise BenchError(message)
    return time.monotonic() - began


def _started(tool: Tidemark, servers: str) -> float:
    """Start the producer; return the seconds until a consumer has a row of its topics."""
    ends = tool.arrivals.ends()
    settings = {"bootstrap.servers": servers, "group.id": "bench-start-up", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(topic, number, end) for (topic, number), end in ends.items()])
    try:
        began = time.monotonic()
        tool.resume()
        return _seconds_until(lambda: _is_row(consumer.poll(_EVERY_S)), began, tool.log("run"))
    finally:
        tool.pause()
        consumer.close()


def _is_row(message: Message | None) -> bool:
    return message is not None and message.error() is None and message.value() is not None and not is_marker(message.key())


def producer_starts(scene: Scene, folder: Path, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of first starts and of restarts."""
    stage = Stage(scene, folder, "start_run")
    stage.insert(_ROWS)
    found: dict[str, list[float]] = {"run, first start": [], "run, restart": []}
    with ExitStack() as stack:
        for number in range(repeat):
            tool = Tidemark(stage, f"first_{number}", options={"snapshot": {"mode": "initial", "readers": 2}})
            stack.callback(tool.close)
            found["run, first start"].append(_started(tool, scene.kafka.bootstrap_servers))
        tool = Tidemark(stage, "again")
        stack.callback(tool.close)
        bring_to_end(tool, stage)
        for _ in range(repeat):
            stage.probe()
            found["run, restart"].append(_started(tool, scene.kafka.bootstrap_servers))
    return found


def merge_starts(scene: Scene, folder: Path, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of first starts and of restarts."""
    stage = Stage(scene, folder, "start_merge")
    feed = Feed(stage, [TABLE])
    found: dict[str, list[float]] = {"merge, first start": [], "merge, restart": []}
    with ExitStack() as stack:
        stack.callback(feed.stop)
        ends = feed.fill(lambda: stage.insert(_ROWS))
        for number in range(repeat):
            job = MergeJob(feed, f"first {number}")
            found["merge, first start"].append(_merged(job, ends))
        for _ in range(repeat):
            ends = feed.fill(lambda: stage.insert(_ROWS))
            found["merge, restart"].append(_merged(job, ends))
    return found


def _merged(job: MergeJob, ends: Ends) -> float:
    """Start the merge job; return the seconds until everything before these ends is in its lake."""

    def has_reached() -> bool:
        time.sleep(_EVERY_S)
        return job.has_reached(ends)

    began = time.monotonic()
    job.start()
    try:
        return _seconds_until(has_reached, began, job.log())
    finally:
        job.close()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.start_up", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="starts of each kind (default: %(default)s)")
    parser.add_argument("--server", default="mysql80", help="database to run on (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as name, Scene(options.server, Path(name)) as scene:
        found = producer_starts(scene, Path(name), options.repeat) | merge_starts(scene, Path(name), options.repeat)
    for kind, seconds in found.items():
        each = ", ".join(f"{one:.2f}" for one in seconds)
        print(f"start-up: {kind}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s ({each})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
