"""Tables that share targets, or are changed on their way, in one batch: newest rows become images, put target by target.

The steps are those of `TableBatch`, in another order: first each source table is read up to its newest rows and its tombstones,
then each target is written, with the rows of all tables that go into it in one step.

A table that fails is left out, and the others are merged without it. A batch that is run again may have other tables then, so the
name of its transaction has those that take part: what was put with fewer of them is put again, which only adds the rest.
"""

from __future__ import annotations

import hashlib
import operator
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import (
    CHANGED,
    DELETED,
    OFFSET,
    ORIGIN,
    PARTITION,
    REASON,
    SNAPSHOT,
    SOURCE,
    TOPIC,
)
from spark_jobs.decode.table_layout import TableLayout, fill_value
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_members import Member, as_target, failed, gone, why_it_fails
from spark_jobs.merge.group_workers import TargetPut, put_by_workers
from spark_jobs.merge.job_state import JobState, SourceRecord
from spark_jobs.merge.progress_report import table_progress
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.pipeline.row_images import Image
from spark_jobs.pipeline.table_plan import Group
from spark_jobs.pipeline.target_layout import target_layout
from spark_jobs.sinks.contract import Evolution, Stamp, TargetRecord, Writer
from spark_jobs.spark_errors import expression_error

log = structlog.get_logger()

_MOST_FAILURES: Final = 3
MOST_FAILED: Final = 100
"""Rows of a batch on which expressions may fail: more are no accident of single rows."""

FAILED_ROW: Final = f"`{TOPIC}` string, `{PARTITION}` int, `{OFFSET}` bigint, `{SNAPSHOT}` boolean, `{REASON}` string"
NOT_SWEPT: Final = (
    "rows that went with a row of a parent table are not found in {}, which has no column {}: it has them until the table is "
    "snapshotted again"
)


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """What is to be remembered of the tables and the targets of a group; and how long changes were on their way."""

    sources: Mapping[SourceTable, SourceRecord]
    targets: Mapping[Target, TargetRecord]
    delays: Mapping[SourceTable, DelayHistogram] = field(default_factory=dict)


class GroupBatch:
    """The steps of a batch for a group, on a session that no other thread uses. `inputs` are those of its tables that take part.

    With `isolates` rows on which an expression fails are left out, and quarantined. With `uses_workers` Python workers read and put
    the rows, where they can; else Spark does.
    """

    def __init__(
        self,
        context: JobContext,
        spark: SparkSession,
        group: Group,
        inputs: Sequence[TableInput],
        before: JobState,
        batch_id: int,
        *,
        isolates: bool = False,
        uses_workers: bool = False,
    ) -> None:
        self._context = context
        self._spark = spark
        self._group = group
        self._isolates = isolates
        self._uses_workers = uses_workers and context.sink.can.worker_put
        self._members = [
            Member(SourcePart(context, spark, one, before.source(one.table), batch_id))
            for one in sorted(inputs, key=lambda one: one.table)
        ]
        self._batch_id = batch_id
        taking_part = {member.table for member in self._members}
        self._targets = {
            target: TargetBatch(
                context.sink.target(spark, target, group.tables_into(target), group.shape(target)), before.target(target), batch_id
            )
            for target in group.targets
            if not taking_part.isdisjoint(group.tables_into(target))
        }

    def run(self) -> GroupRecords:
        """Merge the records of all tables, and return what is to be remembered."""
        for batch in self._targets.values():
            batch.require_not_gone()
        for member in self._members:
            self._begin(member)
        layouts = {target: self._layout(target) for target in self._targets}
        had_rows = {target for target, batch in self._targets.items() if batch.exists}
        for target, layout in layouts.items():
            if target in had_rows and layout is not None:
                self._prepare(target, layout)
        with ExitStack() as computed:
            put = self._put_by_workers(layouts)
            for member in self._members:
                if not put:
                    self._compute(member, computed)
            for member in self._members:
                if member.layout is not None or member.part.left_out is not None or not member.needs_plan:
                    member.part.settle()
            for target, layout in layouts.items():
                self._write(target, layout, had_rows=target in had_rows, is_put=target in put)
        return self._end(layouts)

    # ── source tables ────────────────────

    def _begin(self, member: Member) -> None:
        part, feeds = member.part, self._group.feeds_of(member.table)
        part.quarantine_markers()
        member.needs_plan = part.needs_plan(target_exists=any(self._targets[feed.target].exists for feed in feeds))
        member.layout = part.plan(()) if member.needs_plan else None
        if member.layout is not None:
            member.images = {feed.target: self._context.image(self._spark, feed, member.layout) for feed in feeds}
            part.keeps_deleted = any(image.keeps_deleted for image in member.images.values())

    def _compute(self, member: Member, computed: ExitStack) -> None:
        """Compute the newest rows of a table once, and write the tombstones that they leave."""
        part, layout = member.part, member.layout
        if not part.raw:
            return
        if layout is None:
            part.leave_out_all()
            return
        images = tuple(member.images.values())

        def judged(rows: DataFrame) -> DataFrame:
            for number, image in enumerate(images):
                if self._isolates:
                    rows = image.failing(rows, layout.names, failed(number))
                    rows = image.judged(rows, layout.names, gone(number), unless=failed(number))
                else:
                    rows = image.judged(rows, layout.names, gone(number))
            return rows

        found = computed.enter_context(part.judged_winners(layout, judged))
        part.count(found.observed, layout)
        if self._isolates:
            self._leave_out_failed(part, found.rows, layout, images)
        member.rows, member.winners, member.times_ms = found.rows, found.observed.winners, tuple(found.observed.times_ms)
        part.oldest = found.observed.oldest
        if found.observed.winners:
            names = [gone(number) for number in range(len(images))]
            names += [failed(number) for number in range(len(images))] if self._isolates else []
            lost = reduce(operator.or_, [F.col(name) for name in names])
            leaves = F.col(DELETED) | (F.col(CHANGED) & lost)
            part.keep_tombstones(found.rows.withColumn(DELETED, leaves), layout)

    def _leave_out_failed(
        self, part: SourcePart, rows: DataFrame, layout: TableLayout, images: Sequence[Image]
    ) -> None:
        """Quarantine the rows on which an expression failed, each with the reason. `SinkError` if there are many."""
        is_failed = reduce(operator.or_, [F.col(failed(number)) for number in range(len(images))])
        bad = rows.where(is_failed)
        found = bad.select(*ORIGIN, *[failed(number) for number in range(len(images))]).limit(MOST_FAILED + 1).collect()
        if not found:
            return
        reasons: list[tuple[Any, ...]] = []
        for row in found:
            number = next(number for number in range(len(images)) if row[failed(number)])
            alone = bad.where(reduce(operator.and_, [F.col(name) == F.lit(row[name]) for name in ORIGIN]))
            reasons.append((*(row[name] for name in ORIGIN), why_it_fails(images[number], alone, layout)))
            if len(found) > MOST_FAILED:
                message = f"an expression fails on more than {MOST_FAILED} rows of a batch, the first: {reasons[0][-1]}"
                raise SinkError(message)
        part.leave_out(self._spark.createDataFrame(reasons, FAILED_ROW), len(reasons))

    def _put_by_workers(self, layouts: Mapping[Target, TableLayout | None]) -> frozenset[Target]:
        """Have workers read the tables and put their images; return the targets, none of them where Spark has to do it."""
        if not self._uses_workers or any(member.part.keeps_deleted for member in self._members):
            return frozenset()  # workers decode no row that was deleted
        pairs = {
            target: TargetPut(batch, layouts[target], self._fed(target), self._stamp(target))
            for target, batch in self._targets.items()
        }
        done = put_by_workers(self._context, self._members, tuple(pairs.values()))
        return frozenset(pairs) if done else frozenset()

    # ── targets ────────────────────

    def _fed(self, target: Target) -> list[tuple[Member, Image]]:
        """Return the tables whose image in a target is known, with it."""
        return [(member, member.images[target]) for member in self._members if target in member.images]

    def _is_shared(self, target: Target) -> bool:
        return len(self._group.tables_into(target)) > 1

    def _layout(self, target: Target) -> TableLayout | None:
        """Return the columns and the key of a target in this batch; None while nothing is known of its tables."""
        fed, batch = self._fed(target), self._targets[target]
        if not fed:
            return None
        taking_part = {member.table.text for member, _ in fed}
        others = {
            name: tuple(key for key in one.keys if key != SOURCE)
            for name, one in batch.record.fed_by.items()
            if name not in taking_part
        }
        images = [image for _, image in fed]
        return target_layout(target, images, batch.columns, others, is_shared=self._is_shared(target))

    def _prepare(self, target: Target, layout: TableLayout) -> None:
        """Trust a target, and give it the columns of this batch."""
        batch = self._targets[target]
        batch.trust()
        batch.evolve(self._evolution(target, layout), self._stamp(target))

    def _evolution(self, target: Target, layout: TableLayout) -> Evolution:
        """Return what leads from the columns of a target to those of this batch.

        A column that a table has for the first time is filled with the table's default, in its own rows only.
        """
        batch, have = self._targets[target], dict(self._targets[target].columns)
        fills: dict[str, list[tuple[str, Any]]] = {}
        for member, image in self._fed(target):
            known = batch.record.fed_by.get(member.table.text)
            if known is None or member.layout is None:
                continue  # it has no rows there
            had = {name.lower() for name in known.columns}
            for item in image.items:
                if item.source is not None and item.name.lower() not in had:
                    value = fill_value(member.layout.versions, None, item.source, item.kind)
                    if value is not None:
                        fills.setdefault(item.name.lower(), []).append((member.table.text, value))
        added: list[tuple[str, T.DataType, Any]] = []
        for name, kind in layout.columns:
            if name in have:
                continue
            value = None
            if name == SOURCE:
                value = self._first_source(target)
            elif not self._is_shared(target) and name.lower() in fills:
                value = fills[name.lower()][0][1]
            added.append((name, kind, value))
        retyped = tuple((name, kind) for name, kind in layout.columns if name in have and have[name] != kind)
        if not self._is_shared(target):
            return Evolution(tuple(added), retyped)
        filled = [(name, source, value) for name in layout.names for source, value in fills.get(name.lower(), ())]
        return Evolution(tuple(added), retyped, tuple(filled))

    def _first_source(self, target: Target) -> str:
        """Return the one table that the rows of a target are from, before it has a second."""
        fed_by = tuple(self._targets[target].record.fed_by)
        if len(fed_by) != 1:
            message = f"it is not known from which table the rows of {target.name} are: tidemark rebuild {target.name}"
            raise SinkError(message)
        return fed_by[0]

    def _write(self, target: Target, layout: TableLayout | None, *, had_rows: bool, is_put: bool) -> None:
        batch = self._targets[target]
        with batch.commit(self._stamp(target)) as writer:
            if is_put and layout is not None:
                batch.note_put(writer, layout)
            parts = [
                self._aligned(member, image, layout)
                for member, image in self._fed(target)
                if member.rows is not None and member.winners and layout is not None
            ]
            if parts and layout is not None:
                batch.put_rows(writer, reduce(DataFrame.unionByName, parts), layout)
            elif not had_rows and not is_put and layout is not None:
                batch.make_empty(writer, layout, self._spark)
            if batch.exists:
                self._delete_what_is_gone(target, writer, had_rows=had_rows)

    def _aligned(self, member: Member, image: Image, layout: TableLayout) -> DataFrame:
        """Return the rows of a table as those of a target, with all its columns."""
        assert member.rows is not None
        number = tuple(member.images).index(image.feed.target)
        kept = member.rows.where(~F.col(failed(number))) if self._isolates else member.rows
        return as_target(image, image.of(kept, gone(number)), layout)

    def _delete_what_is_gone(self, target: Target, writer: Writer, *, had_rows: bool) -> None:
        """Delete below the floors that have risen, and sweep."""
        batch = self._targets[target]
        members = [member for member in self._members if member.table in self._group.tables_into(target)]
        floors = {
            member.table: member.part.record.state.floor
            for member in members
            if member.part.has_risen and (had_rows or _is_older(member.part.oldest, member.part.record.state.floor))
        }
        if floors:
            if had_rows:
                batch.trust()
            batch.delete_below(writer, floors)
        for member in members:
            due = self._mapped(member, target, member.part.record.state.due)
            if due:
                batch.sweep(writer, member.table, due)

    def _mapped(self, member: Member, target: Target, due: Sequence[DueSweep]) -> list[DueSweep]:
        """Return sweeps with the names of the target's columns; a table with one that cannot be made is not complete."""
        image = member.images.get(target)
        names = {} if image is None else image.by_source
        found: list[DueSweep] = []
        for one in due:
            missing = [name for name in one.sweep.columns if name.lower() not in names]
            if missing:
                reason = NOT_SWEPT.format(target.name, ", ".join(missing))
                log.warning("merge.not_swept", table=member.table.name.plain, reason=reason)
                member.part.record = replace(member.part.record, incomplete=reason)
                continue
            columns = tuple(names[name.lower()] for name in one.sweep.columns)
            found.append(replace(one, sweep=replace(one.sweep, columns=columns)))
        return found

    def _stamp(self, target: Target) -> Stamp:
        """Return what the steps of a target carry: the tables that take part are in the name of the transaction."""
        members = [member for member in self._members if member.table in self._group.tables_into(target)]
        texts = [member.table.text for member in members]
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
        progress = {"sources": {text: table_progress(member.part.record) for text, member in zip(texts, members, strict=True)}}
        return Stamp(self._context.query_id, self._batch_id, f"{target.name}@{digest}", progress)

    def _end(self, layouts: Mapping[Target, TableLayout | None]) -> GroupRecords:
        for target, layout in layouts.items():
            batch = self._targets[target]
            if layout is not None:
                for member, image in self._fed(target):
                    batch.note_fed_by(member.table, TableLayout((), (), (), image.columns, image.keys))
            batch.forget_keys()
            batch.note_commit()
            batch.compact_if_due(self._stamp(target))
        sources = {member.table: member.part.record for member in self._members}
        return GroupRecords(sources, {target: batch.record for target, batch in self._targets.items()}, self._delays())

    def _delays(self) -> dict[SourceTable, DelayHistogram]:
        now_s = time.time()
        return {
            member.table: DelayHistogram.of(now_s - at_ms / 1000 for at_ms in member.times_ms)
            for member in self._members
            if member.times_ms
        }


def run_group(
    context: JobContext, spark: SparkSession, group: Group, inputs: Sequence[TableInput], before: JobState, batch_id: int
) -> GroupRecords:
    """Merge a group, without the rows on which an expression fails.

    They are looked for only after an error, since that costs more. Steps that were done before it are skipped. Workers do what they
    can; where they failed several times in a row, this run of the job uses none for the group.
    """
    names = tuple(target.name for target in group.targets)
    failures = context.worker_failures.get(names, 0)
    by_workers = failures < _MOST_FAILURES
    try:
        done = GroupBatch(context, spark, group, inputs, before, batch_id, uses_workers=by_workers).run()
    except (PySparkException, Py4JError) as error:
        if context.sink.passing(error) is not None or not (by_workers or any(feed.transform for feed in group.feeds)):
            raise
        context.worker_failures[names] = failures + by_workers
        log.warning("merge.rows_looked_through", targets=names, reason=expression_error(error))
        for target in group.targets:
            context.sink.forget(target)
        return GroupBatch(context, spark, group, inputs, before, batch_id, isolates=True).run()
    context.worker_failures.pop(names, None)
    return done


def _is_older(oldest: str | None, floor: str) -> bool:
    return oldest is not None and oldest < floor
