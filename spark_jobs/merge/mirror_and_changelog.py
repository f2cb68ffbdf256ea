"""Tables of a group in one batch of a sink with `mode: both`: their rows are mirrored, then their events are appended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from spark_jobs.merge.changelog_batch import run_changelog
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_batch import run_group
from spark_jobs.merge.group_steps import GroupRecords
from spark_jobs.merge.job_state import JobState
from spark_jobs.merge.table_input import TableInput
from spark_jobs.pipeline.table_plan import Group


def run_both(
    context: JobContext, spark: SparkSession, group: Group, inputs: Sequence[TableInput], before: JobState, batch_id: int
) -> GroupRecords:
    """Merge a group into its mirrors and append it to its changelogs. What is remembered of the tables is what the mirror needs.

    Each of the two is repeated without effect, so an error of the second repeats both.
    """
    mirrors, changelogs = (Group(tuple(feed for feed in group.feeds if feed.is_changelog is which)) for which in (False, True))
    done = run_group(context, spark, mirrors, inputs, before, batch_id)
    try:
        appended = run_changelog(context, spark, changelogs, inputs, before, batch_id)
    except Exception:
        context.fed_by.update({target: record.fed_by for target, record in done.targets.items()})
        raise
    sources = {table: replace(record, floors=appended.sources[table].floors) for table, record in done.sources.items()}
    return replace(done, sources=sources, targets={**done.targets, **appended.targets})
