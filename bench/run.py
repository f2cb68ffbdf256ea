"""Rows per second and CPU per row: log catch-up to Kafka, chunk snapshot to Kafka, merge to Delta.

The table is that of the figures we compare with (ten columns, about 200 bytes a row), written in transactions of a
thousand rows, and a tenth as many rows in transactions of one. All servers run on
this machine beside what is measured, so rates are lower bounds; CPU per row is the steadier figure. It is
that of the process that does the work and its children, from the first row on: start-up is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cost import Cost, cost_of
from bench.scene import BenchError, Round, Scene
from tidemark.status.status_tree import Status

CATCH_UP = "log to Kafka"
ONE_BY_ONE = "log to Kafka, a row a transaction"
SNAPSHOT = "chunks to Kafka"
MERGE_CHANGES = "merge of changes into an empty table"
MERGE_SNAPSHOT = "merge of snapshot rows into the full table"
PATHS = (CATCH_UP, ONE_BY_ONE, SNAPSHOT, MERGE_CHANGES, MERGE_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of one path."""

    rows: int
    seconds: float
    cpu_s: float
    peak_mib: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per row."""
        return self.cpu_s / self.rows * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when every path was measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="rows of the table (default: %(default)s)"
    )
    parser.add_argument("--repeat", type=int, default=1, help="repetitions; medians are printed")
    parser.add_argument("--server", default="mysql80", help="database to run on (default: %(default)s)")
    parser.add_argument("--no-merge", action="store_true", help="measure the producer only")
    options = parser.parse_args(arguments)
    rows = max(1_000, options.rows // 1_000 * 1_000)
    found: dict[str, list[Figure]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        Scene(options.server, Path(folder)) as scene,
    ):
        for number in range(1, options.repeat + 1):
            with scene.round(number) as current:
                for path, figure in _measure(current, rows, merge=not options.no_merge):
                    found[path].append(figure)
                    print(
                        f"{path}: {figure.rate:,.0f} rows/s, {figure.cpu_us:.2f} µs of CPU a row", flush=True
                    )
    _print_table(found, options.repeat)
    summary = ", ".join(f"{path} {_median(found[path], 'cpu_us'):.1f} µs" for path in PATHS if path in found)
    print(f"bench: {rows:,} rows, CPU per row: {summary}")
    return 0


def _measure(current: Round, rows: int, *, merge: bool) -> list[tuple[str, Figure]]:
    """All paths on one table, in the order in which each leaves what the next one needs."""
    current.start("run")
    current.wait_for("the producer", lambda status: status.log is not None)
    current.stop("run")
    current.insert(rows)
    figures = [(CATCH_UP, _catch_up(current, rows))]
    if merge:
        figures.append((MERGE_CHANGES, _merge(current, rows)))
    figures.append((SNAPSHOT, _snapshot(current, rows)))
    current.stop("run")
    if merge:
        figures.append((MERGE_SNAPSHOT, _merge(current, rows)))
    current.insert_one_by_one(rows, rows // 10)
    figures.append((ONE_BY_ONE, _catch_up(current, rows // 10)))
    return figures


def _catch_up(current: Round, rows: int) -> Figure:
    """The producer starts behind; from its first commit to the end of the log."""
    begin, end = current.wait_for("the offset", lambda status: status.log is not None), current.end_of_log()
    assert begin.log is not None
    size = end[1] - begin.log.position.offset
    pid = current.start("run")
    first = _Watch(pid)
    start = begin.log.position.offset
    moved = current.wait_for("the first commit", lambda status: _offset(status) > start)
    first.mark()
    share = 1 - (_offset(moved) - start) / size
    current.wait_for("the end of the log", lambda status: _offset(status) >= end[1])
    if share < 0.2:
        # Too few rows left behind the first commit to measure: count from the start of the process.
        return first.figure(rows, from_start=True)
    return first.figure(int(rows * share))


def _snapshot(current: Round, rows: int) -> Figure:
    """The producer is idle; from the signal to the end of the snapshot."""
    pid = current.start("run") if not current.running("run") else current.pid("run")
    watch = _Watch(pid)
    current.request_snapshot()
    watch.mark()
    current.wait_for("the snapshot", lambda status: _states(status) == {"done"})
    return watch.figure(rows)


def _merge(current: Round, rows: int) -> Figure:
    """Everything is in Kafka; from the start of the query to the end of the job, which then has caught up."""
    pid = current.start("merge", "--until-caught-up")
    watch = _Watch(pid)
    _until(lambda: "merge.started" in current.tail("merge"), current)
    watch.mark()
    figure = watch.figure(rows)
    while current.running("merge"):  # its JVM outlives it: what was counted last may lack it, or all
        seen = watch.figure(rows)
        figure = seen if seen.cpu_s >= figure.cpu_s else figure
        time.sleep(0.1)
    current.finish("merge")
    return figure


class _Watch:
    """CPU and time of a process tree since a moment."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = self._marked = (time.monotonic(), cost_of(pid))

    def mark(self) -> None:
        """Count from now on."""
        self._marked = (time.monotonic(), cost_of(self._pid))

    def figure(self, rows: int, *, from_start: bool = False) -> Figure:
        """What it took since the mark, or since the start of the process."""
        then, before = self._start if from_start else self._marked
        now: Cost = cost_of(self._pid)
        return Figure(rows, time.monotonic() - then, now.cpu_s - before.cpu_s, now.peak_mib)


def _until(condition: Callable[[], bool], current: Round) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if not current.running("merge") or time.monotonic() > deadline:
            message = f"the merge job did not start:\n{current.tail('merge')}"
            raise BenchError(message)
        time.sleep(0.05)


def _offset(status: Status) -> int:
    return status.log.position.offset if status.log is not None else 0


def _states(status: Status) -> set[str | None]:
    return {table.snapshot for table in status.tables}


def _median(figures: Sequence[Figure], name: str) -> float:
    return float(statistics.median(getattr(figure, name) for figure in figures))


def _print_table(found: dict[str, list[Figure]], repeat: int) -> None:
    print(f"\n{'path':<44}{'rows/s':>12}{'CPU µs/row':>12}{'peak MiB':>10}  (median of {repeat})")
    for path in PATHS:
        if path in found:
            rate, cpu, peak = (_median(found[path], name) for name in ("rate", "cpu_us", "peak_mib"))
            print(f"{path:<44}{rate:>12,.0f}{cpu:>12.2f}{peak:>10,.0f}")


if __name__ == "__main__":
    sys.exit(main())
