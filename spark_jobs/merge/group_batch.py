"""What a batch does with the tables of a group alike, whether their rows are merged or appended as events.

A group has members, its source tables, and targets. Images of the members' rows become rows of the targets.
"""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.delay_histogram import DelayHistogram
from schemas.errors import SchemaMismatchError, SinkError, TidemarkError, TransformError, UnsupportedTypeError
from schemas.identity import SourceTable, Target
from schemas.json_codec import encode
from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import (
    DELETED,
    OFFSET,
    ORIGIN,
    PARTITION,
    POSITION,
    REASON,
    SNAPSHOT,
    SOURCE,
    TOPIC,
)
from spark_jobs.decode.spark_types import converted, literal, quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.progress_report import table_progress
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.pipeline.row_images import Image
from spark_jobs.pipeline.table_plan import Group
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.spark_errors import expression_error

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


@dataclass(frozen=True, slots=True)
class GroupWork:
    """A group in one batch: `inputs` are those of its tables that take part, `spark` is a session that no other thread uses."""

    context: JobContext
    spark: SparkSession
    group: Group
    inputs: Sequence[TableInput]
    before: MergeState
    batch_id: int


class MemberError(SinkError):
    """The error of a table of a group that cannot be merged; the others can. No target was written to by then."""

    def __init__(self, table: SourceTable, error: TidemarkError) -> None:
        super().__init__(str(error))
        self.table = table
        self.error = error


@contextmanager
def errors_of(table: SourceTable) -> Iterator[None]:
    """Raise `MemberError` for an error of the columns of a table, or of a transform that is bound to them."""
    try:
        yield
    except (TransformError, SchemaMismatchError, UnsupportedTypeError) as error:
        raise MemberError(table, error) from error


@dataclass(slots=True)
class Member:
    """A source table of the group: its part of the batch, its layout and its images (none while its schemas are not known).

    `rows` are the newest of its keys, of which there are `winners`, where Spark computes them. `times_ms` are when the source
    committed some of them.
    """

    part: SourcePart
    layout: TableLayout | None = None
    images: Mapping[Target, Image] = field(default_factory=dict)
    needs_plan: bool = True
    rows: DataFrame | None = None
    winners: int = 0
    times_ms: Sequence[int] = ()

    @property
    def table(self) -> SourceTable:
        """The table."""
        return self.part.input.table


class GroupBatch(ABC):
    """The steps of a batch for a group. With `isolates` rows on which an expression fails are left out, and quarantined."""

    def __init__(self, work: GroupWork, *, isolates: bool = False) -> None:
        context, spark, group, before, batch_id = work.context, work.spark, work.group, work.before, work.batch_id
        self._context = context
        self._spark = spark
        self._group = group
        self._isolates = isolates
        self._batch_id = batch_id
        ordered = sorted(work.inputs, key=lambda one: one.table)
        self._members = [Member(SourcePart(context, spark, one, before.source(one.table), batch_id)) for one in ordered]
        taking_part = {member.table for member in self._members}
        self._targets = {
            target: TargetBatch(
                context.sink.target(spark, target, group.tables_into(target), group.shape(target)), before.target(target), batch_id
            )
            for target in group.targets
            if not taking_part.isdisjoint(group.tables_into(target))
        }

    @abstractmethod
    def run(self) -> GroupRecords:
        """Carry out the batch of all tables, and return what is to be remembered."""

    def _begin(self) -> None:
        """Carry out the steps before the rows: markers, schemas and images. `MemberError` for a table that has no images."""
        for batch in self._targets.values():
            batch.require_not_gone()
        for member in self._members:
            with errors_of(member.table):
                self._begin_member(member)

    def _begin_member(self, member: Member) -> None:
        part, feeds = member.part, self._group.feeds_of(member.table)
        part.quarantine_markers()
        has_target = any(self._targets[feed.target].exists for feed in feeds)
        if has_target:
            part.require_allowed()
        member.needs_plan = part.needs_plan(target_exists=has_target)
        member.layout = part.plan((), has_target=has_target) if member.needs_plan else None
        if member.layout is not None:
            member.images = {feed.target: self._context.image(self._spark, feed, member.layout) for feed in feeds}

    def _settle(self) -> None:
        """Conclude what the rows of each table allow."""
        for member in self._members:
            if member.layout is not None or member.part.left_out is not None or not member.needs_plan:
                member.part.settle()

    def _members_into(self, target: Target) -> list[Member]:
        """Return the tables of this batch that go into a target."""
        return [member for member in self._members if member.table in self._group.tables_into(target)]

    def _fed(self, target: Target) -> list[tuple[Member, Image]]:
        """Return the tables whose image in a target is known, with it."""
        return [(member, member.images[target]) for member in self._members if target in member.images]

    def _is_shared(self, target: Target) -> bool:
        return len(self._group.tables_into(target)) > 1

    def _note_fed(self, target: Target, *, forgets: bool = False) -> None:
        """Remember the tables that go into a target, with their columns there."""
        for member, image in self._fed(target):
            fed = TableLayout((), (), (), image.columns, image.keys)
            self._targets[target].note_fed_by(member.table, fed, forgets=forgets)

    def _stamp(self, target: Target) -> Stamp:
        """Return what the steps of a target carry."""
        progress = {member.table.text: encode(table_progress(member.part.record)) for member in self._members_into(target)}
        return Stamp(self._context.query_id, self._batch_id, target.name, {"sources": progress})

    def _sweeps(self, member: Member, target: Target) -> list[DueSweep]:
        """Return the sweeps that are due with the names of the target's columns.

        A table with one that cannot be made is not complete. Its schemas are asked for where the batch did not need them.
        """
        due = member.part.record.state.due
        image = member.images.get(target)
        if due and image is None and member.layout is None:
            layout = member.part.plan(())
            if layout is not None:
                feed = next(feed for feed in self._group.feeds_of(member.table) if feed.target == target)
                image = self._context.image(self._spark, feed, layout)
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

    def _records(self) -> GroupRecords:
        """Return what is to be remembered, with the delays of the changes up to now."""
        now_s = time.time()
        delays = {
            member.table: DelayHistogram.of(now_s - at_ms / 1000 for at_ms in member.times_ms)
            for member in self._members
            if member.times_ms
        }
        sources = {member.table: member.part.record for member in self._members}
        return GroupRecords(sources, {target: batch.record for target, batch in self._targets.items()}, delays)


def without_failing_rows(work: GroupWork, error: PySparkException | Py4JError, batch: type[GroupBatch]) -> GroupRecords:
    """Return the result of a batch that leaves out the rows on which an expression fails, after one that did not look for them.

    Looking for them costs more. Steps that were done before the error are skipped.
    """
    names = tuple(target.name for target in work.group.targets)
    log.warning("merge.rows_looked_through", targets=names, reason=expression_error(error))
    for target in work.group.targets:
        work.context.sink.forget(target)
    return batch(work, isolates=True).run()


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


def gone(number: int) -> str:
    """Return the name of the column that says whether a row has no image in the target of a number."""
    return f"_tm_gone_{number} "


def failed(number: int) -> str:
    """Return the name of the column that says whether an expression of the image of a number fails on a row."""
    return f"_tm_failed_{number} "


def as_target(image: Image, rows: DataFrame, layout: TableLayout) -> DataFrame:
    """Return images of one table with all columns of their target, `DELETED` and `POSITION`."""
    given = {name.lower(): (name, kind) for name, kind in image.columns}

    def column(name: str, kind: T.DataType) -> Any:
        if name == SOURCE:
            return F.lit(image.feed.table.text).alias(name)
        if name.lower() not in given:
            return literal(None, kind).alias(name)
        own, had = given[name.lower()]
        value = F.col(quoted(own))
        return (value if had == kind else converted(value, had, kind)).alias(name)

    return rows.select(*[column(*one) for one in layout.columns], DELETED, POSITION)


def why_it_fails(image: Image, row: DataFrame, layout: TableLayout, types: Mapping[str, T.DataType]) -> str:
    """Return the reason of an expression that fails on a row, or of a value that the target does not have in its fixed types."""
    try:
        image.of(image.judged(row, layout.names, gone(0)), gone(0)).collect()
    except (PySparkException, Py4JError) as error:
        return f"{image.feed.target.name}: {expression_error(error)}"
    names = ", ".join(image.misfits(row, types))
    what = f"the value of {names} does not fit, and schema_changes keeps the types" if names else "an expression fails on it"
    return f"{image.feed.target.name}: {what}"
