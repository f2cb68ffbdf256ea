"""How fresh the lake is: 20 tables, 1,000 changes/s, from the commit at the source to a Delta table that can be read.

Two measure independently: our own histograms, read from the metrics of both jobs before and after, and a reader that looks for new
versions of the Delta tables and finds out afterwards in which version each marker row came. Both must agree::

    python -m bench.freshness --tables 20 --rate 1000 --seconds 60
"""

from __future__ import annotations

import argparse
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from bench.scene import Round, Scene
from schemas.delay_histogram import DelayHistogram

ROWS: Final = 5
"""Rows of a transaction."""
KEYS: Final = 10_000
FIRST_MARKER: Final = 1 << 40
_WARM_UP_S: Final = 60.0
_POLL_S: Final = 0.05


@dataclass(slots=True)
class Load:
    """Transactions of `ROWS` rows on one table after the other, and a marker row in a table ten times a second."""

    round: Round
    tables: list[str]
    rate: float
    markers: dict[tuple[str, int], float] = field(default_factory=dict)
    changes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write while it is entered."""
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _write(self) -> None:
        began, number, next_marker = time.monotonic(), 0, 0.0
        with self.round.connect() as connection, connection.cursor() as cursor:
            while not self._stop.is_set():
                now = time.monotonic() - began
                if now >= next_marker:
                    self._mark(cursor, self.tables[len(self.markers) % len(self.tables)])
                    next_marker += 0.1
                if number * ROWS >= now * self.rate:
                    self._stop.wait(0.002)
                    continue
                table = self.tables[number % len(self.tables)]
                rows = ", ".join(f"({(number * 7 + row * 1_013) % KEYS}, 'value {number}')" for row in range(ROWS))
                cursor.execute(f"INSERT INTO {table} VALUES {rows} ON DUPLICATE KEY UPDATE text = VALUES(text)")
                number += 1
                self.changes = number * ROWS

    def _mark(self, cursor: Any, table: str) -> None:
        marker = FIRST_MARKER + len(self.markers)
        cursor.execute(f"INSERT INTO {table} VALUES ({marker}, 'marker')")
        self.markers[table, marker] = time.time()


@dataclass(slots=True)
class Versions:
    """When each version of the tables could be read first."""

    folders: dict[str, Path]
    seen: dict[tuple[str, int], float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look while it is entered."""
        self._look(float("nan"))
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_S):
            self._look(time.time())

    def _look(self, now: float) -> None:
        for table, folder in self.folders.items():
            for path in (folder / "_delta_log").glob("*.json"):
                if path.stem.isdigit():
                    self.seen.setdefault((table, int(path.stem)), now)

    def arrivals(self, markers: set[tuple[str, int]]) -> dict[tuple[str, int], float]:
        """Return when each marker could be read first, as far as it could."""
        found: dict[tuple[str, int], float] = {}
        for (table, version), at in sorted(self.seen.items()):
            if isnan(at):
                continue
            rows = DeltaTable(str(self.folders[table]), version=version).to_pyarrow_table(
                columns=["id"], filters=[("id", ">=", FIRST_MARKER)]
            )
            for marker in rows["id"].to_pylist():
                if (table, marker) in markers:
                    found.setdefault((table, marker), at)
        return found


def histogram(port: int, name: str) -> DelayHistogram:
    """Return a histogram of a job's metrics, of all tables together."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    counts: dict[float, float] = {}
    total = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"{name}_bucket":
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
            elif sample.name == f"{name}_sum":
                total += sample.value
    bounds = sorted(counts)
    plain = [int(counts[bound] - (counts[bounds[at - 1]] if at else 0)) for at, bound in enumerate(bounds)]
    return DelayHistogram(tuple(plain), total, tuple(bounds[:-1])) if bounds else DelayHistogram.of([])


def between(before: DelayHistogram, after: DelayHistogram) -> DelayHistogram:
    """Return what was counted after `before`."""
    counts = tuple(late - early for early, late in zip(before.counts, after.counts, strict=True))
    return DelayHistogram(counts, after.sum_s - before.sum_s, after.at_most_s)


def share_of(delays: list[float], share: float) -> float:
    """Return the value that this share of the delays kept; not a number without any."""
    if not delays:
        return float("nan")
    return sorted(delays)[min(len(delays) - 1, int(share * len(delays)))]


def run(scene: Scene, count: int, rate: float, seconds: float, settings: dict[str, Any]) -> list[str]:
    """Measure once, and return the lines of the report."""
    ports = _free_ports()
    with scene.round(0, more={"service": {"port": ports[0], "merge_port": ports[1]}, **settings}) as one:
        tables = [f"bench_{number:02}" for number in range(count)]
        with one.connect() as connection, connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, text VARCHAR(64))")
                cursor.execute(f"INSERT INTO {table} VALUES (-1, 'first')")
        one.start("merge")
        one.start("run")
        one.wait_for("the producer", lambda status: status.log is not None)
        with one.connect() as connection, connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"INSERT INTO {table} VALUES (-2, 'second')")
        wanted = {f"{one.table.partition('.')[0]}.{table}" for table in tables}
        one.wait_for("all tables", lambda status: wanted <= {t.table for t in status.tables if t.sink_rows}, 200)
        folders = {table: Path(one.settings.sink.table_path(one.table.partition(".")[0], table)) for table in tables}
        load, versions = Load(one, tables, rate), Versions(folders)
        with versions.watched(), load.running():
            time.sleep(_WARM_UP_S)
            began, changes = time.time(), load.changes
            names = ("tidemark_commit_to_kafka_seconds", "tidemark_commit_to_lake_seconds")
            before = [histogram(port, name) for port, name in zip(ports, names, strict=True)]
            time.sleep(seconds)
            after = [histogram(port, name) for port, name in zip(ports, names, strict=True)]
            ended, done = time.time(), load.changes - changes
            time.sleep(15)  # the last markers arrive under the same load
        markers = {key: at for key, at in load.markers.items() if began <= at < ended}
        arrived = versions.arrivals(set(markers))
        delays = [arrived[key] - at for key, at in markers.items() if key in arrived]
        kafka, lake = (between(early, late) for early, late in zip(before, after, strict=True))
        log = Path(one.settings.sink.path).with_name("merge.log").read_text(encoding="utf-8", errors="replace")
        mean = sum(delays) / max(1, len(delays))
        reader = f"p50 {share_of(delays, 0.5):.2f} s, p99 {share_of(delays, 0.99):.2f} s, mean {mean:.3f} s"
        return [
            f"load: {done / (ended - began):,.0f} changes/s on {count} tables",
            f"kafka: {_figures(kafka)}",
            f"lake: {_figures(lake)}",
            f"reader: {reader}, {len(delays)} of {len(markers)} markers",
            f"batches: {_batches(log)}",
        ]


def _figures(one: DelayHistogram) -> str:
    mean = one.sum_s / one.count if one.count else float("nan")
    return f"p50 <= {one.at_most(0.5)} s, p99 <= {one.at_most(0.99)} s, mean {mean:.3f} s, {one.count:,} changes"


def _batches(log: str) -> str:
    """Return what batches took, from the log of the merge job."""
    found = [float(text) for text in re.findall(r'"seconds": ([\d.]+), "event": "merge\.batch"', log)]
    late = sorted(found[len(found) // 3 :])
    return f"{len(found)}; the later ones took {late[0]} to {late[-1]} s, median {late[len(late) // 2]} s" if late else "none"


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="mysql80")
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trigger", type=int, default=None, help="spark.trigger_s")
    parser.add_argument("--keep-log", type=Path, default=None)
    arguments = parser.parse_args()
    spark = {"master": "local[2]"} | ({} if arguments.trigger is None else {"trigger_s": arguments.trigger})
    with tempfile.TemporaryDirectory() as folder, Scene(arguments.server, Path(folder)) as scene:
        try:
            report = run(scene, arguments.tables, arguments.rate, arguments.seconds, {"spark": spark})
            print("\n".join(report), flush=True)
        finally:
            log = next(Path(folder).glob("round-0/merge.log"), None)
            if arguments.keep_log is not None and log is not None:
                arguments.keep_log.write_bytes(log.read_bytes())


if __name__ == "__main__":
    main()
