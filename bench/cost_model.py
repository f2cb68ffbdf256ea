"""What a load costs: a model of CPU, fitted from three measured sizes and checked against a fourth.

    python -m bench.cost_model [--rows N] [--merge]

CPU = fixed + per row * rows + per transaction * transactions. The producer stands still while each size is written, then reads it;
start-up is not in its figures. With `--merge` a merge job that is warm merges three sizes and a fourth, new rows of one table, each
in one batch: what is fixed is the cost of a batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench.bench_tools import Tidemark, bring_to_end
from bench.cost import tree_of
from bench.lake_feed import Feed
from bench.lake_jobs import MergeJob, measured
from bench.lake_merge import SHARE_OF_BATCH
from bench.scene import DATABASE as TABLE
from bench.scene import TRANSACTION_ROWS, Scene
from bench.stage import Stage

TODAY = (1_000, 250)
"""Rows and transactions a second from which `sizing` counts up."""
FACTORS = (1, 10, 100, 1_000)


@dataclass(frozen=True, slots=True)
class Point:
    """One measured size."""

    rows: int
    transactions: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Model:
    """Seconds and microseconds of CPU."""

    fixed_s: float
    row_us: float
    transaction_us: float

    def cpu_s(self, rows: float, transactions: float) -> float:
        """Return what the model predicts."""
        return self.fixed_s + (self.row_us * rows + self.transaction_us * transactions) / 1e6


def fitted(points: Sequence[Point]) -> Model:
    """Return the model through three points, or nearest to more; points with no transactions leave their cost at 0."""
    columns = [[1.0, point.rows / 1e6, point.transactions / 1e6] for point in points]
    used = [index for index in range(3) if any(column[index] for column in columns)]
    matrix = np.array([[column[index] for index in used] for column in columns])
    found, *_ = np.linalg.lstsq(matrix, np.array([point.cpu_s for point in points]), rcond=None)
    values = dict(zip(used, found.tolist(), strict=True))
    return Model(values.get(0, 0.0), values.get(1, 0.0), values.get(2, 0.0))


def report(what: str, points: Sequence[Point], check: Point) -> list[str]:
    """Return the lines that say what was measured, what follows from it, and how well the fourth size was predicted."""
    model = fitted(points)
    lines = [f"{what}: {point.rows:,} rows in {point.transactions:,} transactions: {point.cpu_s:.2f} s of CPU" for point in points]
    predicted = model.cpu_s(check.rows, check.transactions)
    error = predicted / check.cpu_s - 1 if check.cpu_s else 0.0
    found = f"{what}: {model.fixed_s:.2f} s + {model.row_us:.2f} µs a row + {model.transaction_us:.2f} µs a transaction"
    compared = f"predicted {predicted:.2f} s, measured {check.cpu_s:.2f} s ({error:+.0%})"
    return [*lines, found, f"{what}: {check.rows:,} rows in {check.transactions:,} transactions: {compared}"]


def sizing(model: Model) -> list[str]:
    """Return the share of a core that 1, 10, 100 and 1,000 times the load of today need."""
    rows, transactions = TODAY
    return [
        f"{rows * factor:,} rows/s in {transactions * factor:,} transactions/s: "
        f"{Model(0.0, model.row_us, model.transaction_us).cpu_s(rows * factor, transactions * factor):.3f} cores"
        for factor in FACTORS
    ]


# --- measuring


def _producer(scene: Scene, folder: Path, rows: int) -> Iterator[Point]:
    """Measure few rows and many, large transactions and small ones; the fourth size is between them."""
    stage = Stage(scene, folder, "cost_model")
    tool = Tidemark(stage, "tidemark")
    sizes = ((rows // 4, 1_000), (rows, 1_000), (rows // 5, 1), (rows // 2, 10))
    try:
        bring_to_end(tool, stage)
        pid = tool.resume()
        tool.arrivals.wait_for_more(tool.arrivals.total(), stage.probe)
        time.sleep(1.0)
        for size, each in ((1_000, 1_000), *sizes):  # the first is not counted: it maps what is compiled
            count = size // each * each
            _send(pid, signal.SIGSTOP)
            stage.insert_one_by_one(count, each)
            tool.arrivals.measure(count, _continued(pid))
            if size > 1_000:
                yield Point(count, count // each, tool.arrivals.cpu_from_start_s)
    finally:
        tool.close()


def _continued(pid: int) -> Callable[[], int]:
    def start() -> int:
        _send(pid, signal.SIGCONT)
        return pid

    return start


def _send(pid: int, number: signal.Signals) -> None:
    for one in tree_of(pid):
        os.kill(one, number)


def _merge(scene: Scene, folder: Path, rows: int) -> Iterator[Point]:
    """Measure batches of new rows in a merge job that runs; the first two sizes are not counted, in which its JVM becomes warm."""
    stage = Stage(scene, folder, "cost_model_merge")
    feed = Feed(stage, [TABLE])
    job = MergeJob(feed)
    full = rows * SHARE_OF_BATCH // 100
    sizes = (full // 4, full, full // 2, full * 3 // 4)
    try:
        for number, size in enumerate((full // 4, full, *sizes)):
            count = size // TRANSACTION_ROWS * TRANSACTION_ROWS
            figure = measured(job, feed.fill(partial(stage.insert, count)), count)
            if number > 1:
                yield Point(count, 0, figure.cpu_s)
    finally:
        job.close()
        feed.stop()


def main() -> None:
    """Measure, fit, check and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost_model", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest size (default: %(default)s)")
    parser.add_argument("--server", default="mysql80")
    parser.add_argument("--merge", action="store_true", help="the merge job, too")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-bench-")))
        scene = stack.enter_context(Scene(options.server, folder))
        *points, check = _producer(scene, folder, options.rows)
        print("\n".join([*report("producer", points, check), *sizing(fitted(points))]), flush=True)
        if options.merge:
            *points, check = _merge(scene, folder, options.rows)
            print("\n".join(report("merge", points, check)), flush=True)


if __name__ == "__main__":
    main()
