"""Merges of one table: ours, Spark's MERGE as a user would write it, and delta-rs alone, on the same records, A B A B.

What is measured: a backlog of changes is complete in Kafka, written by `tidemark run` from the log of a real server, and a job
that has merged batches before begins with it. The jobs are stopped (SIGSTOP) while the backlog is written, so each is warm,
finds all of it at once, and takes it in batches of its own size (at most `spark.max_batch_records`, which is the default, as is
the trigger). The clock runs from the moment when a job continues until its own offsets are the ends of the topics. The first
step is stated as cold: there the process is started with the backlog waiting, a quarter of a step's changes, and the clock runs
from its start. A step has 98 of 100 changes, so that a million is one batch of the default size.

What the tables have before: the merge job makes its table from 1,000 rows through Kafka, the smallest and the largest key among
them. The rest is appended to the Delta table by delta-rs, a file for each million rows in the order of the keys, in the job's
own schema and with positions below. Spark's table has the same files without our column, and Delta's default properties.

After each step each table is compared with the source: the sums over all changed rows (keys, values, a checksum), and number
and sum of all keys, each of them once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench import lake_rows, lake_source
from bench.bench_figures import COLD, OURS, Figure, Found
from bench.lake_delta_rs import DELTA_RS, merged
from bench.lake_feed import Ends, Feed
from bench.lake_jobs import LakeJob, MergeJob, SparkMerge, measured
from bench.lake_source import Changes
from bench.scene import DATABASE as TABLE
from bench.scene import TRANSACTION_ROWS
from bench.stage import Stage
from bench.workload_context import Context

PLAIN, COMPUTED, BY_FUNCTION = (f"{OURS} {words}" for words in ("without transforms", "filter and 3 columns", "python function"))
_MADE = 1_000
SHARE_OF_BATCH = 98
"""Ends of Kafka's transactions take offsets as well: of a step of 1,000,000 some would be left to a batch of their own."""


def insert(context: Context) -> Found:
    """Measure 1,000,000 new rows into a table of as many."""
    return _measure(context, "merge_insert", context.rows, context.rows, lake_source.inserts)


def hot(context: Context) -> Found:
    """Measure 1,000,000 updates of 10,000 hot keys (a hundredth as many) in a table of 1,000,000 rows."""

    def changes(rows: int, first: int, count: int) -> Changes:
        return lake_source.hot(rows, max(TRANSACTION_ROWS, context.rows // 100), first, count)

    return _measure(context, "merge_hot", context.rows, context.rows, changes)


def uniform_1m(context: Context) -> Found:
    """Measure 250,000 updates all over a table of 1,000,000 rows."""
    return _measure(context, "merge_uniform_1m", context.rows, context.rows // 4, lake_source.uniform)


def uniform_5m(context: Context) -> Found:
    """Measure 1,000,000 updates all over a table of 5,000,000 rows."""
    return _measure(context, "merge_uniform_5m", 5 * context.rows, context.rows, lake_source.uniform)


def uniform_20m(context: Context) -> Found:
    """Measure 1,000,000 updates all over a table of 20,000,000 rows."""
    return _measure(context, "merge_uniform_20m", 20 * context.rows, context.rows, lake_source.uniform)


def routed(context: Context) -> Found:
    """Measure 1,000,000 new rows as `insert`: as they are, filtered and with three computed columns, with one by a function."""
    return _measure(context, "merge_routed", context.rows, context.rows, lake_source.inserts, _routed_jobs)


@dataclass(slots=True)
class _Course:
    """How far a workload is: what every table of the lakes has, and the next change."""

    rows: int
    ids: int
    next_change: int = 0


def _measure(
    context: Context,
    name: str,
    rows: int,
    count: int,
    changes_of: Callable[[int, int, int], Changes],
    jobs_of: Callable[[Context, Feed, int], list[LakeJob]] | None = None,
) -> Found:
    stage = Stage(context.scene, context.folder, name)
    feed = Feed(stage, [TABLE])
    found: Found = defaultdict(list)
    course = _Course(rows, rows * (rows - 1) // 2)
    with ExitStack() as stack:
        stack.callback(feed.stop)
        jobs = (jobs_of or _jobs)(context, feed, rows)
        for job in jobs:
            stack.callback(job.close)
        for number in range(context.repeat + 1):
            step = max(_MADE, count // 4) if number == 0 else max(_MADE, count * SHARE_OF_BATCH // 100)
            changes = changes_of(rows, course.next_change, step)
            _step(jobs, feed, found, course, changes, with_delta_rs=context.peers and number > 0 and jobs_of is None)
    return found


def _jobs(context: Context, feed: Feed, rows: int) -> list[LakeJob]:
    """Return the jobs, ours first; every lake has the rows, and nothing runs."""
    stage, made = feed.stage, min(_MADE, rows) - 1
    begins = feed.fill(lambda: lake_source.insert_rows(stage, [*range(made), rows - 1]))
    ours = [MergeJob(feed)]
    if context.old is not None:
        ours.append(MergeJob(feed, "old", context.old))
    for job in ours:
        job.merge_all()
        lake_rows.append_base(job.table(TABLE), made, rows - 1)
    jobs: list[LakeJob] = list(ours)
    if context.peers:
        jobs.append(SparkMerge(feed, [TABLE], begins))
        lake_rows.append_base(jobs[-1].table(TABLE), 0, rows)
    return jobs


def _routed_jobs(_context: Context, feed: Feed, rows: int) -> list[LakeJob]:
    """Return the job without transforms and those with; every lake has the rows, and nothing runs. The filter leaves no row out."""
    stage, made = feed.stage, min(_MADE, rows) - 1
    feed.fill(lambda: lake_source.insert_rows(stage, [*range(made), rows - 1]))
    computed = ["*", "a * 2 AS computed_a", "upper(b) AS computed_b", "year(d) AS computed_d"]
    filtered = {"transforms": [{"tables": ".*", "select": computed, "where": "id >= 0"}]}
    by_function = {"transforms": [{"tables": ".*", "select": ["*", "masked(b) AS computed_mask"]}]}
    udf = {"name": "masked", "function": "bench.lake_udfs:masked", "returns": "string"}
    jobs = [
        MergeJob(feed, PLAIN), MergeJob(feed, COMPUTED, sink=filtered), MergeJob(feed, BY_FUNCTION, sink=by_function, udfs=[udf])
    ]  # fmt: skip
    for job in jobs:
        job.merge_all()
        lake_rows.append_base(job.table(TABLE), made, rows - 1)
    return list(jobs)


def _step(
    jobs: list[LakeJob], feed: Feed, found: Found, course: _Course, changes: Changes, *, with_delta_rs: bool
) -> None:
    """Write a backlog, and let each job merge it in turn."""
    lake_source.prepare(feed.stage, changes)
    ends = feed.fill(lambda: lake_source.make(feed.stage, changes))
    ours, copy = jobs[0].table(TABLE), feed.stage.folder / "delta-rs"
    if with_delta_rs:
        lake_rows.linked_copy(ours, copy)
    truth = lake_source.sums_of(feed.stage)
    if changes.inserts:
        course.rows, course.ids = course.rows + truth.rows, course.ids + truth.ids
    course.next_change += changes.count
    for job in jobs:
        figure = _turn(job, ends, changes.count)
        lake_rows.require_sums(job.table(TABLE), truth, lake_rows.changed_since(changes.first))
        lake_rows.require_computed(job.table(TABLE), changes.first)
        lake_rows.require_whole(job.table(TABLE), course.rows, course.ids)
        found[f"{job.name}{COLD}" if figure.note else job.name].append(figure)
    if with_delta_rs:
        figure = merged(copy, lake_rows.changed_rows(ours, changes.first))
        say(DELTA_RS, figure)
        found[DELTA_RS].append(figure)


def _turn(job: LakeJob, ends: Ends, rows: int) -> Figure:
    figure = measured(job, ends, rows)
    say(f"{job.name}{COLD}" if figure.note else job.name, figure)
    return figure


def say(name: str, figure: Figure) -> None:
    """Print a figure at once."""
    print(f"  {name}: {figure.rows:,} in {figure.seconds:.2f} s, {figure.cpu_us:.2f} µs of CPU each", flush=True)
