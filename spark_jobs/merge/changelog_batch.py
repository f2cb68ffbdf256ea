"""Tables of a group in one batch of a changelog: every admitted record becomes events, which are appended target by target.

Nothing is looked up in a target, so no tombstone is needed: a delete stays in the changelog, and its reader takes the highest
position of each identity. A floor and a sweep are events as well.

A batch that is run again, and one that reads again what a table had when it was set aside, append nothing twice: a target knows how
far each source table was appended, by offsets, and what it has is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.identity import SourceTable, Target
from schemas.json_codec import encode
from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, COMMITTED, POSITION
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge import rule
from spark_jobs.merge.changelog_rows import change_of, events_of, failed_of, row_after, with_images
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_batch import run_group
from spark_jobs.merge.group_members import Member, errors_of, why_it_fails
from spark_jobs.merge.group_steps import (
    GroupRecords,
    leave_out_failed,
    mapped_sweeps,
    members_of,
    records_of,
    targets_of,
)
from spark_jobs.merge.job_state import JobState
from spark_jobs.merge.observed_rows import ObservedRows
from spark_jobs.merge.progress_report import table_progress
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.pipeline.table_plan import Group
from spark_jobs.pipeline.target_layout import target_layout
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.contract import FedBy, SinkTarget, TargetRecord
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.spark_errors import expression_error

log = structlog.get_logger()

Seen = Mapping[str, Mapping[int, int]]
_EVENTS: Final = "events"


@dataclass(slots=True)
class _Target:
    """A target in one batch: what writes to it, and what is to be remembered."""

    sink: SinkTarget
    record: TargetRecord
    is_trusted: bool = False


class ChangelogBatch:
    """The steps of a batch for a group, on a session that no other thread uses. `inputs` are those of its tables that take part.

    With `isolates` changes on whose row an expression fails are left out, and quarantined.
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
    ) -> None:
        self._context = context
        self._spark = spark
        self._group = group
        self._isolates = isolates
        self._batch_id = batch_id
        self._members = members_of(context, spark, inputs, before, batch_id)
        if context.settings.sink.mode == "both":
            for member in self._members:
                member.part.image_step = "changes"  # the mirror has its own, of the newest rows alone
        self._targets = {
            target: _Target(
                context.sink.target(spark, target, group.tables_into(target), group.shape(target)), before.target(target)
            )
            for target in targets_of(group, self._members)
        }

    def run(self) -> GroupRecords:
        """Append the events of all tables, and return what is to be remembered."""
        for one in self._targets.values():
            one.sink.require_not_gone(one.record)
        for member in self._members:
            with errors_of(member.table):
                self._begin(member)
        for target in self._targets:
            self._require_same_keys(target)
        with ExitStack() as computed:
            counts = {member.table: self._compute(member, computed) for member in self._members}
            for member in self._members:
                if member.layout is not None or member.part.left_out is not None or not member.needs_plan:
                    member.part.settle()
            for target in self._targets:
                self._append(target, counts)
        return self._end()

    # ── source tables ────────────────────

    def _begin(self, member: Member) -> None:
        part, feeds = member.part, self._group.feeds_of(member.table)
        part.quarantine_markers()
        has_target = any(self._targets[feed.target].sink.exists() for feed in feeds)
        if has_target:
            part.require_allowed()
        member.needs_plan = part.needs_plan(target_exists=has_target)
        member.layout = part.plan((), has_target=has_target) if member.needs_plan else None
        if member.layout is not None:
            member.images = {feed.target: self._context.image(self._spark, feed, member.layout) for feed in feeds}

    def _require_same_keys(self, target: Target) -> None:
        """Raise `TransformError` for tables of one target whose identities have different columns."""
        images = [member.images[target] for member in self._members if target in member.images]
        taking_part = {member.table.text for member in self._members if target in member.images}
        known = self._targets[target].record.fed_by
        others = {name: one.keys for name, one in known.items() if name not in taking_part}
        if images:
            target_layout(target, images, (), others, is_shared=len(self._group.tables_into(target)) > 1)

    def _compute(self, member: Member, computed: ExitStack) -> Mapping[int, int]:
        """Compute the events of a table once for all its targets, and return how many each has, by the target's number."""
        part, layout = member.part, member.layout
        if not part.raw:
            return {}
        if layout is None:
            part.leave_out_all()
            return {}
        images = tuple(member.images.values())
        observed = ObservedEvents(layout, part.record.state.safe_horizon, part.input.size, len(images))
        rows = with_images(part.changes(layout, observed), layout, images, isolates=self._isolates)
        member.rows = computed.enter_context(rule.computed(rows.observe(observed.rows, *observed.measures)))
        part.count(observed, layout)
        if self._isolates:

            def why(number: int, row: DataFrame) -> str:
                return why_it_fails(images[number], row_after(row, layout), layout, {})

            leave_out_failed(part, member.rows, [failed_of(number) for number in range(len(images))], why)
        member.winners, member.times_ms = observed.winners, tuple(observed.times_ms)
        return {number: observed.events(number) for number in range(len(images))}

    # ── targets ────────────────────

    def _append(self, target: Target, counts: Mapping[SourceTable, Mapping[int, int]]) -> None:
        """Append in one commit what the tables have for a target that it does not have."""
        one = self._targets[target]
        if one.sink.exists():
            one.sink.trust(one.record, self._batch_id)
            one.is_trusted = True
        members = [member for member in self._members if member.table in self._group.tables_into(target)]
        found = [events for member in members if (events := self._events(member, target, counts[member.table])) is not None]
        if not found:
            return
        stamp = self._stamp(target, members)
        with one.sink.commit(stamp) as writer:
            for events in found:
                writer.append(events)
        one.is_trusted = True

    def _events(self, member: Member, target: Target, counts: Mapping[int, int]) -> Events | None:
        """Return what a table has for a target; None where the target has it all."""
        one, part, image = self._targets[target], member.part, member.images.get(target)
        exists = one.sink.exists()
        had = one.sink.appended(member.table) if exists else Appended()
        until = self._ends(part.input)
        seen = {self._topic_of(name): ends for name, ends in had.ends.items() if name in until}
        number = tuple(member.images).index(target) if image is not None else 0
        count = counts.get(number, 0)
        rows = events_of(member.rows, number, seen) if member.rows is not None and count else None
        if rows is not None and _overlap(seen, part.input):
            count = rows.count()
        is_first = not exists and image is not None
        due = mapped_sweeps(self._context, self._spark, self._group, member, target) if exists or is_first else []
        texts = tuple(text for text in map(_sweep_text, due) if text not in had.sweeps)
        floors = {name: floor for name, floor in _floors(part).items() if not had.has_floor(name, floor)}
        if not (is_first or (exists and (count or texts or floors))):
            return None
        columns = image.columns if image is not None else ()
        ends = {name: ends for name, ends in {**had.ends, **until}.items() if name in until}
        highest = max((had.floor, *floors.values()))
        after = Appended(ends, highest, texts or had.sweeps, tuple(_floors(part)) or had.floors)
        keys = image.record_keys if image is not None else ()
        frame = rows if rows is not None and count else self._no_rows(columns)
        return Events(member.table, frame, count, keys, columns, after, tuple(sorted(floors.values())), texts)

    def _no_rows(self, columns: Sequence[tuple[str, T.DataType]]) -> DataFrame:
        image = T.StructType([T.StructField(name, kind) for name, kind in columns])
        text = T.StringType()
        fields = ((POSITION, text), (COMMITTED, T.LongType()), (CHANGE, text), (BEFORE, image), (AFTER, image))
        return self._spark.createDataFrame([], T.StructType([T.StructField(name, kind) for name, kind in fields]))

    def _ends(self, one: TableInput) -> dict[str, dict[int, int]]:
        """Return how far a table is read after this batch, by its topics with their ids."""
        pairs = ((one.change_topic, one.change_ends), (one.snapshot_topic, one.snapshot_ends))
        ids = self._context.topic_ids
        return {f"{topic}@{ids.get(topic, '')}": dict(ends) for topic, ends in pairs if ends}

    @staticmethod
    def _topic_of(name: str) -> str:
        return name.rpartition("@")[0]

    def _stamp(self, target: Target, members: Sequence[Member]) -> Stamp:
        progress = {"sources": {member.table.text: encode(table_progress(member.part.record)) for member in members}}
        return Stamp(self._context.query_id, self._batch_id, target.name, progress)

    def _end(self) -> GroupRecords:
        for member in self._members:
            exist = all(self._targets[feed.target].sink.exists() for feed in self._group.feeds_of(member.table))
            member.part.record = replace(member.part.record, floors={} if exist else _floors(member.part))
        for target, one in self._targets.items():
            for member in self._members:
                image = member.images.get(target)
                if image is not None and self._context.naming.routes.are_given and one.sink.exists():
                    known = one.record.fed_by.get(member.table.text)
                    names = (*(known.columns if known else ()), *(name for name, _ in image.columns))
                    fed_by = {**one.record.fed_by, member.table.text: FedBy(image.keys, tuple(dict.fromkeys(names)))}
                    one.record = replace(one.record, fed_by=fed_by)
            if one.is_trusted and one.sink.has_commit(self._batch_id):
                one.record = replace(one.record, last_commit=self._batch_id, writes=one.record.writes + 1)
        return records_of(self._members, {target: one.record for target, one in self._targets.items()})


class ObservedEvents(ObservedRows):
    """What is counted of a batch: of all records, and of the events of each of `targets` targets."""

    def __init__(self, plan: TableLayout, safe_horizon: str, size: int, targets: int) -> None:
        super().__init__(plan, safe_horizon, size)
        self.measures = [
            F.count(F.lit(1)).alias("winners"),
            *[F.count_if(F.col(change_of(number)).isNotNull()).alias(f"{_EVENTS}{number}") for number in range(targets)],
        ]

    def events(self, number: int) -> int:
        """Return how many events a target has."""
        return int(self.rows.get.get(f"{_EVENTS}{number}", 0))


def run_changelog(
    context: JobContext, spark: SparkSession, group: Group, inputs: Sequence[TableInput], before: JobState, batch_id: int
) -> GroupRecords:
    """Append the events of a group, without the changes on which an expression fails. They are looked for only after an error."""
    try:
        return ChangelogBatch(context, spark, group, inputs, before, batch_id).run()
    except (PySparkException, Py4JError) as error:
        if context.sink.passing(error) is not None or not any(feed.transform for feed in group.feeds):
            raise
        names = tuple(target.name for target in group.targets)
        log.warning("merge.rows_looked_through", targets=names, reason=expression_error(error))
        for target in group.targets:
            context.sink.forget(target)
        return ChangelogBatch(context, spark, group, inputs, before, batch_id, isolates=True).run()


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


def _floors(part: SourcePart) -> dict[str, str]:
    """Return the floors that are due, by name: of the batch, and of those before it while a target did not exist.

    Each is due once, in whichever batch its first marker is read, or the last one that a complete snapshot needs.
    """
    read = part.before.state.floors_of(part.input.markers, part.rule.keeps)
    return {**part.before.floors, **{floor: floor for floor in read}, **part.record.state.completed}


def _sweep_text(one: DueSweep) -> str:
    document = {"columns": list(one.sweep.columns), "values": sorted(map(list, one.sweep.values)), "below": one.below}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _overlap(seen: Seen, one: TableInput) -> bool:
    """Return whether records that this batch reads were appended before."""
    return any(part.start < seen.get(part.topic, {}).get(part.partition, 0) for part in one.slices)
