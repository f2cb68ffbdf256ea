"""A replication task that catches up: changes of two tables wait in Kafka, and are applied to another server, or kept in files.

Half of the rows are inserts, four tenths updates of rows all over the table, a tenth deletes. A task ends when it has caught up, so
its start-up is measured with nothing to apply, and subtracted; the start-up of Spark by the run that applies the first 2,000 rows.
Then the server compares the tables with the source; the changes in files are counted.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.bench_figures import OURS, SERVER, Figure, Found
from bench.benched_task import TargetServer, task_document
from bench.cost import Cost, CostMeter, cost_of
from bench.lake_feed import ROOT, Feed, spawned, tail
from bench.lake_merge import say
from bench.scene import DATABASE as TABLE
from bench.scene import BenchError
from bench.stage import LOAD_TABLE, Stage
from bench.workload_context import Context
from schemas.overriding import override
from spark_jobs.archive.archive_folder import ArchiveManifest
from spark_jobs.archive.segments import SegmentReader, segment_file

_TABLES: Final = (TABLE, LOAD_TABLE)
_BLOCK: Final = 250
"""Rows that a transaction inserts into each table; it updates 200 of an older block, and deletes the other 50 of the last one."""
_UPDATED: Final = 200
_FIRST_BLOCKS: Final = 4
_WORKERS: Final = (1, 2, 4, 8)
"""With `consistency: eventual`."""
_EXECUTORS: Final = (2, 4)
"""Workers that are tasks of Spark, as many at the same time."""
_SPARK_ROWS: Final = 1_000
"""Executors apply larger batches."""
_ONE_BY_ONE: Final = 1_000_000_000
"""The first key of rows in transactions of their own."""
_CHANGE: Final = "a = a + 1, c = c + 0.25, e = REPEAT(CHAR(97 + {salt} % 26), 80), d = '2025-01-02 03:04:05.6'"
_SUMS: Final = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', id, a, b, c, d, e, f, g, i))) FROM {}"


def batched(context: Context) -> Found:
    """Measure transactions of 1,000 rows."""
    return _measure(context, "apply_batched", context.rows // 1_000 * 1_000, _write_batched, _ServerTask, _WORKERS, _EXECUTORS)


def single(context: Context) -> Found:
    """Measure transactions of one row, a tenth as many."""
    return _measure(context, "apply_single", max(1_000, context.rows // 10), _write_single, _ServerTask, _WORKERS)


def files(context: Context) -> Found:
    """Measure transactions of 1,000 rows, which are kept in files."""
    return _measure(context, "apply_files", context.rows // 1_000 * 1_000, _write_batched, _FileTask)


def _measure(
    context: Context,
    name: str,
    rows: int,
    write: Callable[[Stage, int, int], None],
    kind: Callable[..., _Task],
    workers: Sequence[int] = (),
    executors: Sequence[int] = (),
) -> Found:
    stage = Stage(context.scene, context.folder, name)
    stage.add_load_table()
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        feed = Feed(stage, _TABLES, {"order": {"group": "bench"}})
        stack.callback(feed.stop)
        tools = {OURS: ROOT} | ({} if context.old is None else {"old": context.old})
        tasks = [kind(stack, feed, tool, root) for tool, root in tools.items()]
        tasks += [kind(stack, feed, f"{OURS}, {count} workers", ROOT, count) for count in workers]
        tasks += [kind(stack, feed, f"{OURS}, {count} executors", ROOT, count, by_spark=True) for count in executors]
        feed.fill(lambda: None)  # a task begins at the newest commit record
        for task in tasks:
            task.create_tables()
            task.run()
        feed.fill(lambda: _write_first(stage))
        for task in tasks:
            task.begin()
        for number in range(context.repeat):
            feed.fill(partial(write, stage, number, rows))
            for task in tasks:
                for tool, figure in task.measured(rows):
                    say(tool, figure)
                    found[tool].append(figure)
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a task: how long it took, its CPU, and the CPU of the server."""

    seconds: float
    own: Cost
    server_s: float


class _Task(ABC):
    """A task of a checkout."""

    def __init__(
        self, stack: ExitStack, feed: Feed, tool: str, root: Path, workers: int = 0, *, by_spark: bool = False
    ) -> None:
        self._feed, self._stage, self._tool, self._root = feed, feed.stage, tool, root
        self._workers, self._by_spark = workers, by_spark
        self._begun: _Run | None = None
        self._folder = feed.stage.folder / tool.replace(", ", "-").replace(" ", "-")
        self._folder.mkdir()
        self._config = self._folder / "task.yaml"
        self._config.write_text(json.dumps(self._document(self._target(stack))), encoding="utf-8")

    @abstractmethod
    def _target(self, stack: ExitStack) -> dict[str, Any]:
        """Make the target, and return its settings."""

    @abstractmethod
    def create_tables(self) -> None:
        """Create the tables at the target, without rows."""

    @abstractmethod
    def measured(self, rows: int) -> list[tuple[str, Figure]]:
        """Return the figures for the rows that wait in Kafka. `BenchError`: the target has other rows."""

    @property
    def server_pid(self) -> int | None:
        """The process of the target, if it has one."""
        return None

    def _measured(self, rows: int, server: int | None = None) -> tuple[Figure, Figure]:
        """Return the figures of the task, and of the server with that process."""
        busy = self.run(server)
        idle = self._begun or self.run(server)
        seconds = busy.seconds - idle.seconds
        own = Figure(rows, seconds, busy.own.cpu_s - idle.own.cpu_s, busy.own.peak_mib)
        return own, Figure(rows, seconds, busy.server_s - idle.server_s, 0.0)

    def begin(self) -> None:
        """Apply the first rows. Without rows a task starts no Spark: this run is its start-up."""
        begun = self.run(self.server_pid)
        if self._by_spark:
            self._begun = begun

    def run(self, server: int | None = None) -> _Run:
        """Run the task until it has caught up."""
        log = self._folder / "task.log"
        began, before = time.monotonic(), 0.0 if server is None else cost_of(server).cpu_s
        child = spawned(["task", "run", str(self._config), "--until-caught-up"], log, self._root)
        meter, own = CostMeter(child.pid), cost_of(child.pid)
        while child.status is None:
            seen = meter.cost()
            own = Cost(max(own.cpu_s, seen.cpu_s), max(own.peak_mib, seen.peak_mib))
            time.sleep(0.02)
        seconds, after = time.monotonic() - began, 0.0 if server is None else cost_of(server).cpu_s
        if child.status:
            message = f"the task of {self._tool} ended with {child.status}:\n{tail(log)}"
            raise BenchError(message)
        return _Run(seconds, own, after - before)

    def _document(self, target: dict[str, Any]) -> dict[str, Any]:
        document = task_document(f"apply-{self._folder.name}", [self._feed], target)
        if self._workers:
            document["target"]["consistency"] = "eventual"
            document["apply"] = {"workers": self._workers}
        if self._by_spark:
            document["apply"] |= {"driver_rows": _SPARK_ROWS, "executor_rows": _SPARK_ROWS}
            document["spark"] = {"master": f"local[{self._workers}]"}
        return document


class _ServerTask(_Task):
    """A task, and the server that it applies to."""

    @override
    def _target(self, stack: ExitStack) -> dict[str, Any]:
        self._server = TargetServer(stack, self._folder)
        return self._server.settings()

    @property
    @override
    def server_pid(self) -> int | None:
        return self._server.database.pid

    @override
    def create_tables(self) -> None:
        self._server.create(self._stage, _TABLES)

    @override
    def measured(self, rows: int) -> list[tuple[str, Figure]]:
        own, server = self._measured(rows, self.server_pid)
        self._require_equal()
        return [(self._tool, own), (f"{SERVER}{self._tool}", server)]

    def _require_equal(self) -> None:
        asked = " UNION ALL ".join(_SUMS.format(f"{self._stage.name}.{table}") for table in _TABLES)
        sums = []
        for server in (self._stage.scene.database, self._server.database):
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(asked)
                sums.append(cursor.fetchall())
        if sums[0] != sums[1]:
            message = f"{self._tool}: the tables of the target have {sums[1]} (rows, sum), at the source {sums[0]}"
            raise BenchError(message)


class _FileTask(_Task):
    """A task that keeps its changes in files."""

    @override
    def _target(self, stack: ExitStack) -> dict[str, Any]:
        self._files = self._folder / "files"
        return {"type": "file", "path": str(self._files)}

    @override
    def create_tables(self) -> None:
        """Files have none."""

    @override
    def measured(self, rows: int) -> list[tuple[str, Figure]]:
        before = self._kept()
        own, _ = self._measured(rows)
        if self._kept() - before != rows:
            message = f"{self._tool}: {self._kept() - before} changes were kept of {rows}"
            raise BenchError(message)
        return [(self._tool, own)]

    def _kept(self) -> int:
        """Return how many changes the files have."""
        manifest = ArchiveManifest.read(self._files)
        assert manifest is not None
        numbers = range(manifest.first, manifest.open.number)
        closed = [SegmentReader(segment_file(self._files, number), number).facts() for number in numbers]
        return sum(facts.records for facts in (*closed, manifest.open) if facts is not None)


def _write_first(stage: Stage) -> None:
    """Insert the rows that are updated first."""
    for block in range(_FIRST_BLOCKS):
        stage.execute(*(_insertion(stage, table, block) for table in _TABLES))


def _insertion(stage: Stage, table: str, block: int) -> str:
    return f"INSERT INTO {table} SELECT {stage.row_at(block * _BLOCK)} FROM thousand WHERE n < {_BLOCK}"


def _write_batched(stage: Stage, number: int, rows: int) -> None:
    transactions = rows // 1_000
    first = _FIRST_BLOCKS + number * transactions
    with stage.written_soon():
        for block in range(first, first + transactions):
            old = block * 7919 % (block - 1) * _BLOCK
            gone = (block - 1) * _BLOCK + _UPDATED
            statements = ["BEGIN"]
            for table in _TABLES:
                statements += [
                    _insertion(stage, table, block),
                    f"UPDATE {table} SET {_CHANGE.format(salt=block)} WHERE id >= {old} AND id < {old + _UPDATED}",
                    f"DELETE FROM {table} WHERE id >= {gone} AND id < {gone + _BLOCK - _UPDATED}",
                ]
            stage.execute(*statements, "COMMIT")


def _write_single(stage: Stage, number: int, rows: int) -> None:
    """Ten transactions into each table in turn: five inserts, four updates, and the delete of an older row."""
    first = _ONE_BY_ONE + number * rows
    change, old = _CHANGE.format(salt="at"), f"at * 7919 % {_FIRST_BLOCKS * _UPDATED}"
    body = "".join(
        f"IF at DIV 10 % 2 = {turn} THEN CASE"
        f" WHEN at % 10 < 5 THEN INSERT INTO {table} SELECT {stage.row_at('at')} FROM (SELECT 0 AS n) one;"
        f" WHEN at % 10 < 9 THEN UPDATE {table} SET {change} WHERE id = {old};"
        f" ELSE DELETE FROM {table} WHERE id = at - 29; END CASE; END IF; "
        for turn, table in enumerate(_TABLES)
    )
    with stage.written_soon():
        stage.execute(
            "DROP PROCEDURE IF EXISTS one_by_one",
            f"CREATE PROCEDURE one_by_one() BEGIN DECLARE at INT DEFAULT {first}; WHILE at < {first + rows} DO {body} "
            "SET at = at + 1; END WHILE; END",
            "CALL one_by_one()",
        )
