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
from dataclasses import replace
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from spark_jobs.decode.record_columns import (
    AFTER,
    BEFORE,
    CHANGE,
    COMMITTED,
    DELETED,
    KEYS,
    OFFSET,
    ORIGIN,
    PARTITION,
    POSITION,
    TOPIC,
)
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge import rule
from spark_jobs.merge.group_batch import (
    GroupBatch,
    GroupRecords,
    GroupWork,
    Member,
    leave_out_failed,
    why_it_fails,
    without_failing_rows,
)
from spark_jobs.merge.mirror_batch import run_mirror
from spark_jobs.merge.rule import ObservedRows
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.pipeline.row_images import Image
from spark_jobs.pipeline.table_plan import Group
from spark_jobs.pipeline.target_layout import target_layout
from spark_jobs.sinks.changelog_events import Appended, Events

log = structlog.get_logger()

Seen = Mapping[str, Mapping[int, int]]
_EVENTS: Final = "events"


class ChangelogBatch(GroupBatch):
    """The steps of a batch for the changelogs of a group."""

    @override
    def run(self) -> GroupRecords:
        self._begin()
        for target in self._targets:
            self._require_same_keys(target)
        with ExitStack() as computed:
            counts = {member.table: self._compute(member, computed) for member in self._members}
            self._settle()
            for target in self._targets:
                self._append(target, counts)
        return self._end()

    # ── source tables ────────────────────

    @override
    def _begin_member(self, member: Member) -> None:
        if self._context.settings.sink.mode == "both":
            member.part.image_step = "changes"  # the mirror has its own, of the newest rows alone
        super()._begin_member(member)

    def _require_same_keys(self, target: Target) -> None:
        """Raise `TransformError` for tables of one target whose identities have different columns."""
        images = [image for _, image in self._fed(target)]
        taking_part = {member.table.text for member, _ in self._fed(target)}
        known = self._targets[target].record.fed_by
        others = {name: one.keys for name, one in known.items() if name not in taking_part}
        if images:
            target_layout(target, images, (), others, is_shared=self._is_shared(target))

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
        counts = observed.counts
        part.count(counts, layout)
        if self._isolates:

            def why(number: int, row: DataFrame) -> str:
                return why_it_fails(images[number], row_after(row, layout), layout, {})

            leave_out_failed(part, member.rows, [failed_of(number) for number in range(len(images))], why)
        member.winners, member.times_ms = counts.winners, tuple(observed.times_ms)
        return {number: observed.events(number) for number in range(len(images))}

    # ── targets ────────────────────

    def _append(self, target: Target, counts: Mapping[SourceTable, Mapping[int, int]]) -> None:
        """Append in one commit what the tables have for a target that it does not have."""
        batch = self._targets[target]
        if batch.exists:
            batch.trust()
        members = self._members_into(target)
        found = [events for member in members if (events := self._events(member, target, counts[member.table])) is not None]
        if found:
            batch.append(self._stamp(target), found)

    def _events(self, member: Member, target: Target, counts: Mapping[int, int]) -> Events | None:
        """Return what a table has for a target; None where the target has it all."""
        batch, part, image = self._targets[target], member.part, member.images.get(target)
        exists = batch.exists
        had = batch.appended(member.table)
        until = self._ends(part.input)
        seen = {self._topic_of(name): ends for name, ends in had.ends.items() if name in until}
        number = tuple(member.images).index(target) if image is not None else 0
        count = counts.get(number, 0)
        rows = events_of(member.rows, number, seen) if member.rows is not None and count else None
        if rows is not None and _overlap(seen, part.input):
            count = rows.count()
        is_first = not exists and image is not None
        due = self._sweeps(member, target) if exists or is_first else []
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

    def _end(self) -> GroupRecords:
        for member in self._members:
            exist = all(self._targets[feed.target].exists for feed in self._group.feeds_of(member.table))
            member.part.record = replace(member.part.record, floors={} if exist else _floors(member.part))
        for target, batch in self._targets.items():
            if self._context.naming.routes.are_given:
                self._note_fed(target)
            batch.note_commit()
        return self._records()


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


def run_changelog(work: GroupWork) -> GroupRecords:
    """Append the events of a group, without the changes on which an expression fails. They are looked for only after an error."""
    try:
        return ChangelogBatch(work).run()
    except (PySparkException, Py4JError) as error:
        if work.context.sink.passing(error) is not None or not any(feed.transform for feed in work.group.feeds):
            raise
        return without_failing_rows(work, error, ChangelogBatch)


def run_both(work: GroupWork) -> GroupRecords:
    """Merge a group into its mirrors and append it to its changelogs. What is remembered of the tables is what the mirror needs.

    Each of the two is repeated without effect, so an error of the second repeats both.
    """
    context = work.context
    mirrors, changelogs = (Group(tuple(one for one in work.group.feeds if one.is_changelog is which)) for which in (False, True))
    done = run_mirror(replace(work, group=mirrors))
    context.fed_by.update({target: record.fed_by for target, record in done.targets.items()})  # kept if the next step fails
    appended = run_changelog(replace(work, group=changelogs))
    for target in done.targets:
        context.fed_by.pop(target, None)
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


# ── rows ────────────────────


_GONE: Final = "_tm_gone "
_CARRIED: Final = (*ORIGIN, POSITION, COMMITTED, CHANGE, KEYS, BEFORE, AFTER)


def change_of(number: int) -> str:
    """Return the name of the column that says what a change is in the target of a number; NULL where it is nothing there."""
    return f"_tm_change_{number} "


def failed_of(number: int) -> str:
    """Return the name of the column that says whether an expression fails on the row after a change."""
    return f"_tm_failed_{number} "


def _before_of(number: int) -> str:
    return f"_tm_before_{number} "


def _after_of(number: int) -> str:
    return f"_tm_after_{number} "


def with_images(changes: DataFrame, layout: TableLayout, images: Sequence[Image], *, isolates: bool) -> DataFrame:
    """Return changes with their images in each target: `change_of`, and images that `events_of` reads.

    `changes` is what `decoded_changes` gives. With `isolates` no expression fails: `failed_of` is true for a change on whose row
    after it one does, and that change is nothing in the target. A row before a change on which one fails counts as not known.
    """
    rows = changes.select(*_CARRIED)
    for number, image in enumerate(images):
        rows = _with_image(rows, layout, image, number, isolates=isolates)
    return rows


def opened(rows: DataFrame, side: str, names: Sequence[str], kept: Sequence[str]) -> DataFrame:
    """Return rows with the columns of one side, `DELETED` where there is no such row, and the columns `kept`."""
    columns = [F.col(side).getField(name).alias(name) for name in names]
    return rows.select(*kept, *columns, F.col(side).isNull().alias(DELETED))


def events_of(rows: DataFrame, number: int, seen: Mapping[str, Mapping[int, int]]) -> DataFrame:
    """Return the events of one target: `POSITION`, `COMMITTED`, `CHANGE`, `BEFORE`, `AFTER`, without those that `seen` has.

    `seen` are offsets, exclusive, by topic and partition.
    """
    events = rows.where(F.col(change_of(number)).isNotNull())
    if seen:
        events = events.where(~_is_seen(seen))
    return events.select(
        POSITION,
        COMMITTED,
        F.col(change_of(number)).alias(CHANGE),
        F.col(_before_of(number)).alias(BEFORE),
        F.col(_after_of(number)).alias(AFTER),
    )


def _is_seen(seen: Mapping[str, Mapping[int, int]]) -> Column:
    found = F.lit(False)
    for topic, ends in seen.items():
        for partition, end in ends.items():
            same = (F.col(TOPIC) == F.lit(topic)) & (F.col(PARTITION) == F.lit(partition))
            found |= same & (F.col(OFFSET) < F.lit(end))
    return found


def _with_image(rows: DataFrame, layout: TableLayout, image: Image, number: int, *, isolates: bool) -> DataFrame:
    """Add the images of one target, and what the change is there."""
    carried = list(rows.columns)
    if image.feed.transform is None:
        rows = rows.withColumns({_before_of(number): F.col(BEFORE), _after_of(number): F.col(AFTER)})
        if isolates:
            rows = rows.withColumn(failed_of(number), F.lit(False))
        is_known = F.col(BEFORE).isNotNull()
    else:
        rows = _side(rows, layout, image, (AFTER, _after_of(number), failed_of(number)), carried, isolates=isolates)
        failed = f"_tm_failed_before_{number} "
        rows = _side(rows, layout, image, (BEFORE, _before_of(number), failed), list(rows.columns), isolates=isolates)
        is_known = F.col(BEFORE).isNotNull() & (~F.col(failed) if isolates else F.lit(True))
    before, after, change = F.col(_before_of(number)), F.col(_after_of(number)), F.col(CHANGE)
    # What may be in the target under this key, though no change that was read has put it there, is deleted.
    retracts = after.isNull() & ~is_known & (change != F.lit("c"))
    what = (
        F.when(after.isNotNull() & before.isNotNull(), F.lit("u"))
        .when(after.isNotNull() & (change == F.lit("u")) & is_known, F.lit("c"))
        .when(after.isNotNull(), change)
        .when(before.isNotNull() | retracts, F.lit("d"))
    )
    if isolates:
        what = F.when(~F.col(failed_of(number)), what)
    alone = image.keys_alone(F.col(KEYS), layout.keys)
    kept = [*carried, *((failed_of(number),) if isolates else ())]
    return rows.select(
        *kept,
        what.alias(change_of(number)),
        F.when(retracts, alone).otherwise(before).alias(_before_of(number)),
        after.alias(_after_of(number)),
    )


def _side(
    rows: DataFrame, layout: TableLayout, image: Image, names: tuple[str, str, str], kept: Sequence[str], *, isolates: bool
) -> DataFrame:
    """Add the image of one side of the changes; with `isolates` also whether an expression fails on it."""
    side, name, failed = names
    asked = opened(rows, side, layout.names, kept)
    if isolates:
        asked = image.failing(asked, layout.names, failed)
        asked = image.judged(asked, layout.names, _GONE, unless=failed).withColumn(_GONE, F.col(_GONE) | F.col(failed))
        return image.packed(asked, _GONE, name, [*kept, failed])
    return image.packed(image.judged(asked, layout.names, _GONE), _GONE, name, kept)


def row_after(rows: DataFrame, layout: TableLayout) -> DataFrame:
    """Return changes as rows of the source table, as `Image.judged` takes them: the row after each."""
    return opened(rows, AFTER, layout.names, [POSITION, COMMITTED, CHANGE]).where(~F.col(DELETED)).select(
        *[F.col(quoted(name)) for name in layout.names], DELETED, POSITION, COMMITTED, CHANGE
    )
