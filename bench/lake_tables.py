"""Many tables in one batch: 200 tables, 250 changes in each, complete in Kafka before a warm job begins with them.

As `lake_merge`: the seconds of a batch as the job logs them, and the time from the moment when the job continues until every
table is current, which is what the rate is of. Each table has 1,000 rows before, through Kafka. Topics have one partition each.
The user's job merges one table after the other, so it is given a tenth of the tables, and the figure per change is compared.
After each step every table of each lake is compared with the source by sums over all rows.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

from bench import lake_rows, lake_source
from bench.bench_figures import Figure, Found
from bench.lake_feed import Feed
from bench.lake_jobs import LakeJob, MergeJob, SparkMerge, measured
from bench.lake_merge import say
from bench.stage import Stage
from bench.workload_context import Context

_MILLION = 1_000_000
_TABLES, _ROWS, _CHANGES = 200, 1_000, 250
_SHARE = 10  # a user's job needs more than five seconds a table


def many(context: Context) -> Found:
    """Measure 250 updates of each of 200 tables; fewer tables with fewer `--rows`."""
    count = max(_SHARE, min(_TABLES, _TABLES * context.rows // _MILLION))
    stage = Stage(context.scene, context.folder, "merge_many")
    tables = [f"bench_{number:03}" for number in range(count)]
    stage.execute(*(f"CREATE TABLE {table} LIKE bench" for table in tables))
    feed = Feed(stage, tables, {"kafka": {"partitions": 1}})
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        stack.callback(feed.stop)
        jobs = _jobs(context, feed)
        for job, _ in jobs:
            stack.callback(job.close)
        for number in range(context.repeat + 1):
            _step(jobs, feed, found, number)
    return found


def _jobs(context: Context, feed: Feed) -> list[tuple[LakeJob, list[str]]]:
    """Return the jobs with their tables, ours first; every table has its rows, and nothing runs."""

    def insert() -> None:
        for table in feed.tables:
            lake_source.insert_range(feed.stage, _ROWS, table)

    begins = feed.fill(insert)
    ours = [MergeJob(feed)]
    if context.old is not None:
        ours.append(MergeJob(feed, "old", context.old))
    for job in ours:
        job.merge_all()
    jobs: list[tuple[LakeJob, list[str]]] = [(job, list(feed.tables)) for job in ours]
    if context.peers:
        some = list(feed.tables[: len(feed.tables) // _SHARE])
        peer = SparkMerge(feed, some, begins)
        for table in some:
            lake_rows.append_base(peer.table(table), 0, _ROWS)
        jobs.append((peer, some))
    return jobs


def _step(jobs: list[tuple[LakeJob, list[str]]], feed: Feed, found: Found, number: int) -> None:
    """Change rows of every table, and let each job merge them in turn."""
    stage, first = feed.stage, number * _CHANGES
    begin = first % _ROWS
    change = f"SET a = {lake_source.FIRST_CHANGE} + {first} + id, b = CONCAT('change ', {first} + id), c = id % 8 / 4"
    where = f"WHERE id >= {begin} AND id < {begin + _CHANGES}"
    ends = feed.fill(lambda: stage.execute(*(f"UPDATE {table} {change} {where}" for table in feed.tables)))
    truths = {table: lake_source.sums_of(stage, table) for table in feed.tables}
    for job, tables in jobs:
        batches = len(job.batches()) if isinstance(job, MergeJob) else 0
        figure = measured(job, {table: ends[table] for table in tables}, _CHANGES * len(tables))
        figure = _with_batches(job, figure, batches, len(tables), len(feed.tables))
        say(job.name, figure)
        for table in tables:
            lake_rows.require_sums(job.table(table), truths[table])
        found[f"{job.name} (cold)" if number == 0 else job.name].append(figure)


def _with_batches(job: LakeJob, figure: Figure, before: int, tables: int, of: int) -> Figure:
    """Return the figure with the seconds of the batches, and a note where a job had a part of the tables."""
    extra = {"current s": figure.seconds, **figure.extra}
    if isinstance(job, MergeJob):
        seconds = job.batches()[before:]
        extra = {"batches": float(len(seconds)), "longest batch s": max(seconds, default=0.0), **extra}
    notes = [figure.note, f"{tables} of {of} tables" if tables < of else ""]
    return Figure(figure.rows, figure.seconds, figure.cpu_s, figure.peak_mib, extra, ", ".join(filter(None, notes)))
