"""What a batch does with the tables of a group alike, whether their rows are merged or appended as events."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.delay_histogram import DelayHistogram
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import OFFSET, ORIGIN, PARTITION, REASON, SNAPSHOT, TOPIC
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_members import Member
from spark_jobs.merge.job_state import JobState, SourceRecord
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.pipeline.table_plan import Group
from spark_jobs.sinks.contract import TargetRecord

log = structlog.get_logger()

MOST_FAILED: Final = 100
"""Rows of a batch on which expressions may fail: more are no accident of single rows."""

_FAILED_ROW: Final = f"`{TOPIC}` string, `{PARTITION}` int, `{OFFSET}` bigint, `{SNAPSHOT}` boolean, `{REASON}` string"
_NOT_SWEPT: Final = (
    "rows that went with a row of a parent table are not found in {}, which has no column {}: it has them until the table is "
    "snapshotted again"
)


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """What is to be remembered of the tables and the targets of a group; and how long changes were on their way."""

    sources: Mapping[SourceTable, SourceRecord]
    targets: Mapping[Target, TargetRecord]
    delays: Mapping[SourceTable, DelayHistogram] = field(default_factory=dict)


def members_of(
    context: JobContext, spark: SparkSession, inputs: Sequence[TableInput], before: JobState, batch_id: int
) -> list[Member]:
    """Return the tables that take part, in their order."""
    ordered = sorted(inputs, key=lambda one: one.table)
    return [Member(SourcePart(context, spark, one, before.source(one.table), batch_id)) for one in ordered]


def targets_of(group: Group, members: Sequence[Member]) -> list[Target]:
    """Return the targets that some of these tables go into."""
    taking_part = {member.table for member in members}
    return [target for target in group.targets if not taking_part.isdisjoint(group.tables_into(target))]


def leave_out_failed(part: SourcePart, rows: DataFrame, flags: Sequence[str], why: Callable[[int, DataFrame], str]) -> None:
    """Quarantine the rows for which one of these columns is true, each with its reason. `SinkError` if there are many.

    `rows` has `ORIGIN` and the columns; `why` gets the number of the first true one, and a frame of the row.
    """
    bad = rows.where(reduce(operator.or_, map(F.col, flags)))
    found = bad.select(*ORIGIN, *flags).limit(MOST_FAILED + 1).collect()
    reasons: list[tuple[Any, ...]] = []
    for row in found:
        number = next(number for number, flag in enumerate(flags) if row[flag])
        alone = bad.where(reduce(operator.and_, [F.col(name) == F.lit(row[name]) for name in ORIGIN]))
        reasons.append((*(row[name] for name in ORIGIN), why(number, alone)))
        if len(found) > MOST_FAILED:
            first = reasons[0][-1]
            message = f"more than {MOST_FAILED} rows of a batch have a failing expression or an unfit value, the first: {first}"
            raise SinkError(message)
    if reasons:
        part.leave_out(rows.sparkSession.createDataFrame(reasons, _FAILED_ROW), len(reasons))


def mapped_sweeps(context: JobContext, spark: SparkSession, group: Group, member: Member, target: Target) -> list[DueSweep]:
    """Return the sweeps that are due with the names of the target's columns.

    A table with one that cannot be made is not complete. Its schemas are asked for where the batch did not need them.
    """
    due = member.part.record.state.due
    image = member.images.get(target)
    if due and image is None and member.layout is None:
        layout = member.part.plan(())
        if layout is not None:
            feed = next(feed for feed in group.feeds_of(member.table) if feed.target == target)
            image = context.image(spark, feed, layout)
    names = {} if image is None else image.by_source
    found: list[DueSweep] = []
    for one in due:
        missing = [name for name in one.sweep.columns if name.lower() not in names]
        if missing:
            reason = _NOT_SWEPT.format(target.name, ", ".join(missing))
            log.warning("merge.not_swept", table=member.table.name.plain, reason=reason)
            member.part.record = replace(member.part.record, incomplete=reason)
            continue
        columns = tuple(names[name.lower()] for name in one.sweep.columns)
        found.append(replace(one, sweep=replace(one.sweep, columns=columns)))
    return found


def records_of(members: Sequence[Member], targets: Mapping[Target, TargetRecord]) -> GroupRecords:
    """Return what is to be remembered, with the delays of the changes up to now."""
    now_s = time.time()
    delays = {
        member.table: DelayHistogram.of(now_s - at_ms / 1000 for at_ms in member.times_ms) for member in members if member.times_ms
    }
    return GroupRecords({member.table: member.part.record for member in members}, targets, delays)
