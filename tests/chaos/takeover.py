"""`python -m tests.chaos.takeover`: how long a standby takes to continue where a killed leader stopped."""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from devservers import start_database, start_kafka, start_registry
from devservers.processes import GuardedProcess
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.e2e.topics import RecordReader
from tidemark.status.status_tree import Status

PATIENCE_S = 180.0


class Writer(threading.Thread):
    """Inserts rows until stopped: 1, 2, 3 …"""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(daemon=True)
        self._pipeline = pipeline
        self.stopped = threading.Event()
        self.written = 0

    def run(self) -> None:
        with self._pipeline.connect() as connection, connection.cursor() as cursor:
            while not self.stopped.wait(0.01):
                cursor.execute("INSERT INTO t VALUES (%s)", (self.written + 1,))
                self.written += 1


class Pair:
    """Two producers of one name with `--standby`; which of them leads is in its log."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._number = 0
        self._running: dict[Path, GuardedProcess] = {}

    def add(self) -> None:
        """Start one more, and wait until it waits or leads."""
        self._number += 1
        log = self._pipeline.folder / f"run-{self._number}.log"
        self._running[log] = self._pipeline.spawn("run", log, "--standby")
        until(lambda: "standby.waits" in text(log), f"{log} to wait", log)

    def leader(self) -> Path:
        """The log of the one whose last word is that it leads."""
        found: list[Path] = []

        def led() -> bool:
            found[:] = [log for log in self._running if last_word(log) == "leads"]
            return len(found) == 1

        until(led, "one leader", *self._running)
        return found[0]

    def kill_leader(self) -> None:
        """kill -9."""
        child = self._running.pop(self.leader())
        child.signal(signal.SIGKILL)
        assert child.wait(30)

    def end(self) -> None:
        """SIGTERM to all; each must end well."""
        for child in self._running.values():
            child.signal(signal.SIGTERM)
        for log, child in self._running.items():
            assert child.wait(60), f"{log} does not end:\n{text(log)[-3000:]}"
            assert child.status == 0, f"{log} ended with {child.status}:\n{text(log)[-3000:]}"


def text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def last_word(log: Path) -> str:
    said = text(log)
    return max(("leads", "waits", "fenced"), key=lambda word: said.rfind(f"standby.{word}"))


def until(done: Callable[[], bool], what: str, *logs: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            tails = "".join(f"\n--- {log}\n{text(log)[-3000:]}" for log in logs)
            raise AssertionError(f"not within {PATIENCE_S} s: {what}{tails}")
        time.sleep(0.02)


def committed_after(moment_ms: int, status: Status) -> bool:
    return status.log is not None and status.log.committed_ms > moment_ms


def take_overs(pipeline: Pipeline, kills: int) -> list[float]:
    """Seconds from each kill of the leader to the next commit, while rows are written; each row comes once."""
    with pipeline.connect() as connection, connection.cursor() as cursor:
        create_signal_table(connection)
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        connection.commit()
    pair, seconds = Pair(pipeline), []
    pair.add()
    pair.leader()
    pipeline.wait("the leader", lambda status: status.log is not None)
    writer = Writer(pipeline)
    writer.start()
    for _ in range(kills):
        pair.add()
        time.sleep(1)
        pair.kill_leader()
        killed_ms = time.time_ns() // 1_000_000
        pipeline.wait("a commit", partial(committed_after, killed_ms))
        status = pipeline.status()
        assert status.log is not None
        seconds.append((status.log.committed_ms - killed_ms) / 1000)
    writer.stopped.set()
    writer.join()
    pipeline.wait_for_log()
    pair.end()
    found = [
        change.key["id"]
        for change in RecordReader(pipeline.settings).changes(pipeline.database, "t")
        if change.key
    ]
    assert sorted(found) == list(range(1, writer.written + 1)), (
        f"{len(found)} changes of {writer.written} rows"
    )
    return seconds


def main(arguments: list[str]) -> int:
    """Print the median and the worst."""
    parser = argparse.ArgumentParser(prog="standby", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-standby-")))
        server = stack.enter_context(start_database("mysql80", root))
        kafka = stack.enter_context(start_kafka(root))
        registry = stack.enter_context(start_registry(root))
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE standby CHARACTER SET utf8mb4")
        with Pipeline("standby", root / "pipeline", server, "standby", kafka, registry) as pipeline:
            seconds = take_overs(pipeline, options.kills)
    print(
        f"standby: {len(seconds)} kills, take-over in {statistics.median(seconds):.1f} s (median), "
        f"{max(seconds):.1f} s (worst)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
