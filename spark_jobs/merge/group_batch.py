"""Tables that share targets, or are changed on their way, in one batch: newest rows become images, put target by target.

The steps are those of `TableBatch`, in another order: first each source table is read up to its newest rows and its tombstones,
then each target is written, with the rows of all tables that go into it in one step.

A table that fails is left out, and the others are merged without it. A batch that is run again may have other tables then, so the
name of its transaction has those that take part: what was put with fewer of them is put again, which only adds the rest.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.delay_histogram import DelayHistogram
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import CHANGED, DELETED, POSITION, SOURCE
from spark_jobs.decode.spark_types import literal, quoted, widened
from spark_jobs.decode.table_layout import TableLayout, fill_value
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.job_state import JobState, SourceRecord
from spark_jobs.merge.observed_rows import ObservedRows
from spark_jobs.merge.progress_report import table_progress
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.pipeline.row_images import Image
from spark_jobs.pipeline.table_plan import Group
from spark_jobs.pipeline.target_layout import target_layout
from spark_jobs.sinks.contract import Evolution, Stamp, TargetRecord, Writer

log = structlog.get_logger()

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


@dataclass(slots=True)
class _Member:
    """A source table of the group: its part of the batch, its layout and its images (none while its schemas are not known)."""

    part: SourcePart
    layout: TableLayout | None = None
    images: Mapping[Target, Image] = field(default_factory=dict)
    needs_plan: bool = True
    rows: DataFrame | None = None
    observed: ObservedRows | None = None

    @property
    def table(self) -> SourceTable:
        return self.part.input.table


class GroupBatch:
    """The steps of a batch for a group, on a session that no other thread uses. `inputs` are those of its tables that take part."""

    def __init__(
        self,
        context: JobContext,
        spark: SparkSession,
        group: Group,
        inputs: Sequence[TableInput],
        before: JobState,
        batch_id: int,
    ) -> None:
        self._context = context
        self._spark = spark
        self._group = group
        self._members = [
            _Member(SourcePart(context, spark, one, before.source(one.table), batch_id))
            for one in sorted(inputs, key=lambda one: one.table)
        ]
        self._batch_id = batch_id
        taking_part = {member.table for member in self._members}
        self._targets = {
            target: TargetBatch(context.sink.target(spark, target, group.tables_into(target)), before.target(target), batch_id)
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
            for member in self._members:
                self._compute(member, computed)
            for member in self._members:
                if member.layout is not None or member.part.left_out is not None or not member.needs_plan:
                    member.part.settle()
            for target, layout in layouts.items():
                self._write(target, layout, had_rows=target in had_rows)
        return self._end(layouts)

    # ── source tables ────────────────────

    def _begin(self, member: _Member) -> None:
        part, feeds = member.part, self._group.feeds_of(member.table)
        part.quarantine_markers()
        member.needs_plan = part.needs_plan(target_exists=any(self._targets[feed.target].exists for feed in feeds))
        member.layout = part.plan(()) if member.needs_plan else None
        if member.layout is not None:
            member.images = {feed.target: self._context.image(self._spark, feed, member.layout) for feed in feeds}

    def _compute(self, member: _Member, computed: ExitStack) -> None:
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
                rows = image.judged(rows, layout.names, _gone(number))
            return rows

        found = computed.enter_context(part.judged_winners(layout, judged))
        part.count(found.observed, layout)
        member.rows, member.observed = found.rows, found.observed
        part.oldest = found.observed.oldest
        if found.observed.winners:
            lost = reduce(lambda one, other: one | other, [F.col(_gone(number)) for number in range(len(images))])
            leaves = F.col(DELETED) | (F.col(CHANGED) & lost)
            part.keep_tombstones(found.rows.withColumn(DELETED, leaves), layout)

    # ── targets ────────────────────

    def _fed(self, target: Target) -> list[tuple[_Member, Image]]:
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
            message = f"it is not known from which table the rows of {target.name} are: rebuild the sink on another path"
            raise SinkError(message)
        return fed_by[0]

    def _write(self, target: Target, layout: TableLayout | None, *, had_rows: bool) -> None:
        batch = self._targets[target]
        with batch.commit(self._stamp(target)) as writer:
            parts = [
                self._aligned(member, image, layout)
                for member, image in self._fed(target)
                if member.rows is not None and member.observed is not None and member.observed.winners and layout is not None
            ]
            if parts and layout is not None:
                batch.put_rows(writer, reduce(DataFrame.unionByName, parts), layout)
            elif not had_rows and layout is not None:
                batch.make_empty(writer, layout, self._spark)
            if batch.exists:
                self._delete_what_is_gone(target, writer, had_rows=had_rows)

    def _aligned(self, member: _Member, image: Image, layout: TableLayout) -> DataFrame:
        """Return the rows of a table as those of a target, with all its columns."""
        assert member.rows is not None
        number = tuple(member.images).index(image.feed.target)
        rows = image.of(member.rows, _gone(number))
        given = {name.lower(): (name, kind) for name, kind in image.columns}

        def column(name: str, kind: T.DataType) -> Any:
            if name == SOURCE:
                return F.lit(member.table.text).alias(name)
            if name.lower() not in given:
                return literal(None, kind).alias(name)
            own, had = given[name.lower()]
            value = F.col(quoted(own))
            return (value if had == kind else widened(value, had, kind)).alias(name)

        return rows.select(*[column(*one) for one in layout.columns], DELETED, POSITION)

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

    def _mapped(self, member: _Member, target: Target, due: Sequence[DueSweep]) -> list[DueSweep]:
        """Return sweeps with the names of the target's columns; a table with one that cannot be made is not complete."""
        image = member.images.get(target)
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
            member.table: DelayHistogram.of(now_s - at_ms / 1000 for at_ms in member.observed.times_ms)
            for member in self._members
            if member.observed is not None
        }


def _gone(number: int) -> str:
    """Return the name of the column that says whether a row has no image in the target of a number."""
    return f"_tm_gone_{number} "


def _is_older(oldest: str | None, floor: str) -> bool:
    return oldest is not None and oldest < floor
