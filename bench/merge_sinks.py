"""Every type of sink on the same backlog, one after the other: half of the changes update rows, half insert new ones.

As in `lake_merge`: a backlog is complete in Kafka, jobs are warm, stopped between their turns (SIGSTOP), and the clock runs from
the moment when a job continues until its own offsets are the ends of the topics. Each job is a `tidemark merge` of its own with one
sink. CPU is that of the job's process tree. Beside a database it is stated, for the same time, what its server took.

The first step is stated as cold: there each process is started with half as many new rows waiting, which are all that its target
has then. In the step after it each of these rows is updated once and as many are inserted; in the next one every second row is
updated. The two kinds come in turns, in transactions of a thousand rows.

After each turn the sink is read back and compared with the source (`sink_outcomes`). A sink that fails, or that is not as the
source, is a failure of the run: it has no figure of that turn and no further one; the others have theirs. A step is begun only if
it should end within the budget.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from confluent_kafka import KafkaException

from bench import lake_source
from bench.bench_figures import COLD, OURS, SERVER, Figure, Found
from bench.benched_sinks import SINKS, BenchedSink
from bench.cost import cost_of
from bench.lake_feed import ROOT, Feed
from bench.lake_jobs import MergeJob, measured
from bench.lake_merge import SHARE_OF_BATCH, say
from bench.scene import DATABASE as TABLE
from bench.scene import TRANSACTION_ROWS, BenchError
from bench.sink_outcomes import Outcome, Step
from bench.stage import Stage
from schemas.errors import TidemarkError
from tidemark.verify.column_rule import IncomparableError

if TYPE_CHECKING:
    from bench.lake_feed import Ends
    from bench.workload_context import Context
    from devservers.processes import Server

BUDGET_S: Final = 840.0
"""No step is begun that is likely to end later than so many seconds after the workload began; for a million changes, or fewer."""
LIMIT_S: Final = 900.0
"""A job that has not merged everything so many seconds after the workload began has failed."""
_TURN_S: Final = 240.0
_LEAST_S: Final = 5.0
_MILLION: Final = 1_000_000
OLD: Final = "old into delta"
_FAILURES: Final = (TidemarkError, BenchError, IncomparableError, OSError, pa.ArrowException, KafkaException)


@dataclass(slots=True)
class _Entry:
    """A sink in this run: its job, the server that it writes to, if it has one, and what is read back."""

    job: MergeJob
    server: Server | None
    outcome: Outcome


class MergeSinks:
    """One run of the workload."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context, self._feed = context, feed
        self._began = time.monotonic()
        self._scale = max(1.0, context.rows / _MILLION)
        self._entries: list[_Entry] = []
        self._rows = self._next = 0
        self.found: Found = defaultdict(list)

    def run(self, stack: ExitStack) -> None:
        """Measure all that was asked for; what it starts ends with the stack."""
        half = max(TRANSACTION_ROWS, self._context.rows * SHARE_OF_BATCH // 200)
        self._open(stack)
        took_s = self._step(0, half)
        for number in range(1, self._context.repeat + 1):
            used_s, budget_s = time.monotonic() - self._began, BUDGET_S * self._scale
            expected_s = took_s if number > 1 else 0.0
            if used_s + expected_s > budget_s:
                print(f"  backlog {number} is left out: {used_s:.0f} s of {budget_s:.0f} are used, and it takes {expected_s:.0f}")
                return
            took_s = self._step(half, half)
            print(f"  backlog {number} of {self._context.repeat} took {took_s:.0f} s", flush=True)

    # --- inside ------------------------------------------------------------------------------------------

    def _open(self, stack: ExitStack) -> None:
        """Make the jobs, in the order of their turns; servers that they need are started."""
        for name in self._context.sinks or SINKS:
            try:
                self._add(stack, BenchedSink.tool(name), SINKS[name])
            except _FAILURES as error:
                self._fail(BenchedSink.tool(name), error)
        if self._context.old is not None:
            self._add(stack, OLD, SINKS["delta"])

    def _add(self, stack: ExitStack, tool: str, sink: BenchedSink) -> None:
        opened = sink.opened(stack, self._feed.stage.folder)
        root = self._context.old if tool == OLD else None
        job = MergeJob(self._feed, tool, root or ROOT, opened.settings)
        stack.callback(job.close)
        self._entries.append(_Entry(job, opened.server, sink.outcome(self._feed, job)))

    def _step(self, updates: int, inserts: int) -> float:
        """Write a backlog, let each job merge it in turn, and return how many seconds that took."""
        began = time.monotonic()
        ends, step = self._backlog(updates, inserts)
        changes = updates + inserts
        print(f"  {updates:,} updates and {inserts:,} inserts are in Kafka after {time.monotonic() - began:.0f} s", flush=True)
        for entry in self._entries.copy():
            try:
                figures = list(self._turn(entry, ends, changes))
                checked = time.monotonic()
                words = entry.outcome.require(step)
            except _FAILURES as error:
                self._entries.remove(entry)
                self._fail(entry.job.name, error)
                entry.job.close()
                continue
            print(f"    as the source: {words} ({time.monotonic() - checked:.1f} s)", flush=True)
            for name, figure in figures:
                self.found[name].append(figure)
        return time.monotonic() - began

    def _backlog(self, updates: int, inserts: int) -> tuple[Ends, Step]:
        """Have so many changes in Kafka; where the topics end then, and what the sinks must have."""
        stage, first, rows = self._feed.stage, self._next, self._rows
        changed = lake_source.uniform(max(1, rows), first, updates)
        new = lake_source.following(rows, first + updates, inserts)
        lake_source.prepare(stage, changed)
        ends = self._feed.fill(lambda: lake_source.make_in_turns(stage, changed, new))
        self._next, self._rows = first + updates + inserts, rows + inserts
        truth = lake_source.sums_of(stage)
        return ends, Step(first, updates, inserts, truth, self._rows, self._rows * (self._rows - 1) // 2)

    def _turn(self, entry: _Entry, ends: Ends, rows: int) -> Iterator[tuple[str, Figure]]:
        """Yield the figure of a job, and that of its server for the same time."""
        server = entry.server
        before = None if server is None else cost_of(server.pid)
        left_s = LIMIT_S * self._scale - (time.monotonic() - self._began)
        figure = measured(entry.job, ends, rows, max(_LEAST_S, min(_TURN_S * self._scale, left_s)))
        suffix = COLD if figure.note else ""
        say(f"{entry.job.name}{suffix}", figure)
        yield f"{entry.job.name}{suffix}", figure
        if server is not None and before is not None:
            after = cost_of(server.pid)
            beside = replace(figure, cpu_s=after.cpu_s - before.cpu_s, peak_mib=after.peak_mib, extra={})
            name = f"{SERVER}{entry.job.name.removeprefix(f'{OURS} into ')}{suffix}"
            say(name, beside)
            yield name, beside

    def _fail(self, tool: str, error: Exception) -> None:
        """Note that a tool has no figures, or no more of them; the whole reason is printed."""
        print(f"  {tool} FAILED and has no further turn: {error}", flush=True)
        self._context.failures.append(f"merge-sinks: {tool}: {str(error).partition(chr(10))[0]}")


def sinks(context: Context) -> Found:
    """Measure 1,000,000 changes, half updates and half inserts, into each type of sink."""
    feed = Feed(Stage(context.scene, context.folder, "merge_sinks"), [TABLE])
    with ExitStack() as stack:
        stack.callback(feed.stop)
        run = MergeSinks(context, feed)
        run.run(stack)
    return run.found
