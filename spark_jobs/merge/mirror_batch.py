"""Tables that share targets, or are changed on their way, in one batch: newest rows become images, put target by target.

The steps are those of `TableBatch`, in another order: first each source table is read up to its newest rows and its tombstones,
then each target is written, with the rows of all tables that go into it in one step.

A table that fails is left out, and the others are merged without it. A batch that is run again may have other tables then, so the
name of its transaction has those that take part: what was put with fewer of them is put again, which only adds the rest.
"""

from __future__ import annotations

import hashlib
import operator
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from kafkaio.slices import SNAPSHOT
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.overriding import override
from spark_jobs.decode.record_columns import CHANGE, CHANGED, COMMITTED, DELETED, POSITION
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge import rule
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_batch import (
    GroupBatch,
    GroupRecords,
    GroupWork,
    Member,
    as_target,
    failed,
    gone,
    leave_out_failed,
    why_it_fails,
    without_failing_rows,
)
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.merge.worker_entries import decoding_member, putting
from spark_jobs.merge.worker_task import DECLINED, PUT_RESULT, MemberTask, TaskResult
from spark_jobs.pipeline.row_images import Image
from spark_jobs.pipeline.target_layout import TargetImages
from spark_jobs.sinks.arrival import NOT_SHARED
from spark_jobs.sinks.contract import MirrorWriter
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import WorkerPut, WorkerSink
from spark_jobs.store.sink_layout import LOADS

log = structlog.get_logger()

_MOST_FAILURES: Final = 3


class MirrorBatch(GroupBatch):
    """The steps of a batch for the mirrors of a group.

    With `uses_workers` Python workers read and put the rows, where they can; else Spark does.
    """

    _fixed: Mapping[Target, Mapping[str, T.DataType]] = MappingProxyType({})
    uses_workers = False

    @override
    def run(self) -> GroupRecords:
        """Merge the records of all tables, and return what is to be remembered.

        What a target was fed by until an error is left in the context: the record of a target that was half written needs it.
        """
        for target in self._targets:
            self._context.fed_by.pop(target, None)
        made = [target for target, batch in self._targets.items() if not batch.exists]
        with ExitStack() as half_written:
            half_written.callback(self._keep_fed_by, made)
            done = self._run()
            half_written.pop_all()
            return done

    def _keep_fed_by(self, made: Sequence[Target]) -> None:
        """Leave in the context what the targets are fed by, also those that were made: rows of any table may be there."""
        for target in made:
            self._note_fed(target, forgets=self._context.drops_columns)
        self._context.fed_by.update({target: batch.record.fed_by for target, batch in self._targets.items()})

    def _run(self) -> GroupRecords:
        self._begin()
        layouts = {target: self._layout(target) for target in self._targets}
        self._judge_values(layouts)
        had_rows = {target for target, batch in self._targets.items() if batch.exists}
        for target, layout in layouts.items():
            if target in had_rows and layout is not None:
                self._prepare(target, layout)
        with ExitStack() as computed:
            put = self._put_by_workers(layouts)
            for member in self._members:
                if not put:
                    self._compute(member, computed)
            self._settle()
            for target, layout in layouts.items():
                self._write(target, layout, had_rows=target in had_rows, is_put=target in put)
        return self._end(layouts)

    def _judge_values(self, layouts: Mapping[Target, TableLayout | None]) -> None:
        """Have the values of rows judged where targets keep the types of their columns, and some may not fit."""
        if self._context.schema_rule.retypes:
            return
        known = {target: layout.columns for target, layout in layouts.items() if layout is not None}
        fixed = {target: {name.lower(): kind for name, kind in columns} for target, columns in known.items()}
        if any(image.unfit(fixed[target]) for target in fixed for _, image in self._fed(target)):
            self._fixed = fixed
            self._isolates, self.uses_workers = True, False

    # ── source tables ────────────────────

    @override
    def _begin_member(self, member: Member) -> None:
        super()._begin_member(member)
        member.part.keeps_deleted = any(image.keeps_deleted for image in member.images.values())
        member.part.keeps_change = any(image.needs_change for image in member.images.values())

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
                    rows = image.failing(rows, layout.names, failed(number), self._fixed.get(image.feed.target, {}))
                    rows = image.judged(rows, layout.names, gone(number), unless=failed(number))
                else:
                    rows = image.judged(rows, layout.names, gone(number))
            return rows

        if self._is_decoded_by_worker(member, judged, computed):
            return
        names = [gone(number) for number in range(len(images))]
        names += [failed(number) for number in range(len(images))] if self._isolates else []
        leaves = F.col(DELETED) | (F.col(CHANGED) & reduce(operator.or_, [F.col(name) for name in names]))
        found = computed.enter_context(part.judged_winners(layout, judged, leaves))
        counts = found.observed.counts
        part.count(counts, layout)
        if self._isolates:

            def why(number: int, row: DataFrame) -> str:
                return why_it_fails(images[number], row, layout, self._fixed.get(images[number].feed.target, {}))

            leave_out_failed(part, found.rows, [failed(number) for number in range(len(images))], why)
        member.rows, member.winners, member.times_ms = found.rows, counts.winners, tuple(found.observed.times_ms)
        part.oldest = counts.oldest
        if found.observed.leaving:
            part.keep_tombstones(found.rows.withColumn(DELETED, leaves), layout)

    def _is_decoded_by_worker(self, member: Member, judge: Callable[[DataFrame], DataFrame], computed: ExitStack) -> bool:
        """Have a worker decode a table for a sink whose rows it does not put; return False where Spark has to do it."""
        if not self.uses_workers or isinstance(self._context.sink, WorkerSink) or member.part.keeps_deleted:
            return False
        return compute_by_worker(self._context, member, judge, [target.name for target in self._targets], computed)

    def _put_by_workers(self, layouts: Mapping[Target, TableLayout | None]) -> frozenset[Target]:
        """Have workers read the tables and put their images; return the targets, none of them where Spark has to do it."""
        if not self.uses_workers or not isinstance(self._context.sink, WorkerSink):
            return frozenset()
        if any(member.part.keeps_deleted for member in self._members):
            return frozenset()  # workers decode no row that was deleted
        pairs = {
            target: TargetPut(batch, layouts[target], self._fed(target), self._stamp(target))
            for target, batch in self._targets.items()
        }
        done = put_by_workers(self._context, self._members, tuple(pairs.values()))
        return frozenset(pairs) if done else frozenset()

    # ── targets ────────────────────

    def _images(self, target: Target) -> TargetImages | None:
        """Return a target with the images of this batch; None while nothing is known of its tables."""
        fed, batch = self._fed(target), self._targets[target]
        if not fed:
            return None
        return TargetImages(
            target,
            batch.columns,
            [image for _, image in fed],
            [() if member.layout is None else member.layout.versions for member, _ in fed],
            batch.record.fed_by,
            self._is_shared(target),
        )

    def _layout(self, target: Target) -> TableLayout | None:
        """Return the columns and the key of a target in this batch; None while nothing is known of its tables."""
        found = self._images(target)
        return None if found is None else found.layout(self._context.schema_rule, drops=self._context.drops_columns)

    def _prepare(self, target: Target, layout: TableLayout) -> None:
        """Trust a target, and give it the columns of this batch."""
        batch, found = self._targets[target], self._images(target)
        batch.trust()
        if found is not None:
            batch.evolve(found.evolution(layout, drops=self._context.drops_columns), self._stamp(target))
            self._note_fed(target, forgets=self._context.drops_columns)

    def _write(self, target: Target, layout: TableLayout | None, *, had_rows: bool, is_put: bool) -> None:
        batch = self._targets[target]
        with batch.commit(self._stamp(target)) as writer:
            if is_put and layout is not None:
                batch.note_put(layout)
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
                self._note_fed(target, forgets=self._context.drops_columns)
                self._delete_what_is_gone(target, writer, had_rows=had_rows)

    def _aligned(self, member: Member, image: Image, layout: TableLayout) -> DataFrame:
        """Return the rows of a table as those of a target, with all its columns."""
        assert member.rows is not None
        number = tuple(member.images).index(image.feed.target)
        kept = member.rows.where(~F.col(failed(number))) if self._isolates else member.rows
        return as_target(image, image.of(kept, gone(number)), layout)

    def _delete_what_is_gone(self, target: Target, writer: MirrorWriter, *, had_rows: bool) -> None:
        """Delete below the floors that have risen, and sweep."""
        batch, members = self._targets[target], self._members_into(target)
        batch.delete_below_floors(writer, [member.part for member in members], had_rows=had_rows)
        for member in members:
            due = self._sweeps(member, target)
            if due:
                batch.sweep(writer, member.table, due)

    @override
    def _stamp(self, target: Target) -> Stamp:
        """Return what the steps of a target carry: the tables that take part are in the name of the transaction."""
        return super()._stamp(target).of_tables(target, [member.table.text for member in self._members_into(target)])

    def _end(self, layouts: Mapping[Target, TableLayout | None]) -> GroupRecords:
        for target, layout in layouts.items():
            batch = self._targets[target]
            if layout is not None:
                self._note_fed(target, forgets=self._context.drops_columns)
            batch.forget_keys()
            batch.note_commit()
            batch.compact_if_due(self._stamp(target))
        return self._records()


def run_mirror(work: GroupWork) -> GroupRecords:
    """Merge a group, without the rows on which an expression fails.

    Workers do what they can; where they failed several times in a row, this run of the job uses none for the group.
    """
    context, names = work.context, tuple(target.name for target in work.group.targets)
    failures = context.worker_failures.get(names, 0)
    by_workers = failures < _MOST_FAILURES
    try:
        batch = MirrorBatch(work)
        batch.uses_workers = by_workers
        done = batch.run()
    except (PySparkException, Py4JError) as error:
        if context.sink.passing(error) is not None or not (by_workers or any(feed.transform for feed in work.group.feeds)):
            raise
        context.worker_failures[names] = failures + by_workers
        return without_failing_rows(work, error, MirrorBatch)
    context.worker_failures.pop(names, None)
    return done


# ── by workers ────────────────────


@dataclass(frozen=True, slots=True)
class TargetPut:
    """A target, its columns in this batch (None while not known), and the tables whose images go into it."""

    batch: TargetBatch
    layout: TableLayout | None
    fed: Sequence[tuple[Member, Image]]
    stamp: Stamp


def put_by_workers(context: JobContext, members: Sequence[Member], targets: Sequence[TargetPut]) -> bool:
    """Read the tables and put their images; return whether that was done. What was done in part, Spark skips."""
    read = [member for member in members if member.part.raw]
    folder = _folder(context, [target.batch.full_name for target in targets])
    tasks = {member.table: _task(member, folder) for member in read}
    if not read or None in tasks.values():
        return False
    found = {table: task for table, task in tasks.items() if task is not None}
    offered: list[tuple[TargetPut, TableLayout, WorkerPut]] = []
    for target in targets:
        size = sum(member.part.input.size for member, _ in target.fed if member.table in found)
        put = None if target.layout is None else target.batch.worker_put_of_images(target.layout, target.stamp, size)
        if put is None or target.layout is None:
            return False
        offered.append((target, target.layout, put))
    limits = [put.most_bytes for _, _, put in offered if put.most_bytes is not None]
    if limits:
        found = {table: replace(task, most_bytes=min(limits) // 2) for table, task in found.items()}
    for target, layout, put in offered:
        if not _is_put(target, layout, put, found):
            return False
    for member in read:
        _take_over(member, found[member.table])
    context.layout.files.remove(str(folder.relative_to(context.layout.service)))
    return True


def compute_by_worker(
    context: JobContext, member: Member, judge: Callable[[DataFrame], DataFrame], targets: Sequence[str], computed: ExitStack
) -> bool:
    """Have a worker decode a table for Spark's writers, once, and return whether it can. `judge` adds to the rows what images need.

    For sinks that take no rows of a worker. The rows are kept until `computed` ends.
    """
    folder = _folder(context, targets)
    task = _task(member, folder)
    if task is None:
        return False
    task = replace(task, most_bytes=context.settings.sink.merge_memory_bytes // 2)
    member.rows = computed.enter_context(rule.computed(judge(_decoded(member, task))))
    member.winners = _take_over(member, task).observed.winners
    context.layout.files.remove(str(Path(task.result).relative_to(context.layout.service)))
    return True


def _is_put(target: TargetPut, layout: TableLayout, put: WorkerPut, tasks: Mapping[SourceTable, MemberTask]) -> bool:
    """Put the images of one target; return False where the worker declines."""
    parts = [_images(member, image, tasks[member.table], layout) for member, image in target.fed if member.table in tasks]
    if not parts:
        return True
    rows = reduce(DataFrame.unionByName, parts)
    together = rows.coalesce(1) if len(parts) == 1 else rows.repartition(1)
    results = [row["rows"] for row in together.mapInArrow(_untyped(putting(put)), PUT_RESULT).collect()]
    if DECLINED in results:
        target.batch.note_declined()
        return False
    if any(results):
        put.require_arrived(sum(results))
    return True


def _images(member: Member, image: Image, task: MemberTask, layout: TableLayout) -> DataFrame:
    """Return the images of the newest rows of a table, with all columns of the target."""
    assert member.layout is not None
    rows = image.judged(_decoded(member, task), member.layout.names, gone(0))
    return as_target(image, image.of(rows, gone(0)), layout)


def _decoded(member: Member, task: MemberTask) -> DataFrame:
    """Return the newest rows of a table as a worker decodes them."""
    assert member.layout is not None
    fields = [*member.layout.columns, (DELETED, T.BooleanType()), (POSITION, T.StringType())]
    fields += [(CHANGE, T.StringType()), (COMMITTED, T.LongType())] if task.keeps_change else []
    schema = T.StructType([T.StructField(name, kind) for name, kind in fields])
    is_snapshot = F.col("topic") == F.lit(member.part.input.snapshot_topic)
    raw = member.part.raw.frame.select(is_snapshot.alias(SNAPSHOT), "partition", "key", "value")
    return raw.coalesce(1).mapInArrow(_untyped(decoding_member(task)), schema)


def _take_over(member: Member, task: MemberTask) -> TaskResult:
    """Count what a worker has read, remember the tombstones that it has written, and return both."""
    assert member.layout is not None
    try:
        result: TaskResult = pickle.loads(Path(task.result).read_bytes())  # noqa: S301 - our own worker's
    except FileNotFoundError as error:
        raise SinkError(f"a worker has written {task.result}, and the driver does not see it: {NOT_SHARED}") from error
    member.part.count(result.observed, member.layout)
    member.part.keep_written_tombstones(result.tombstones, member.layout)
    member.part.oldest = result.observed.oldest
    member.times_ms = result.times_ms
    return result


def _task(member: Member, folder: Path) -> MemberTask | None:
    """Return the reading of a table as a task; None where Spark has to do it."""
    if member.layout is None:
        return None
    result = str(folder / hashlib.sha256(member.table.text.encode()).hexdigest()[:24])
    return member.part.member_task(member.layout, keeps_changes=_leaves_rows_out(member), result=result)


def _leaves_rows_out(member: Member) -> bool:
    """Return whether rows of a table may have no image in some target: their changes leave tombstones then."""
    return any(image.where is not None for image in member.images.values())


def _folder(context: JobContext, targets: Sequence[str]) -> Path:
    """Return the folder of the results of a group in this attempt. Those of earlier attempts are removed."""
    names = "\n".join(targets)
    group = f"group-{hashlib.sha256(names.encode()).hexdigest()[:24]}"
    context.layout.files.remove(f"{LOADS}/{group}")
    return context.layout.loads / group / uuid4().hex


def _untyped(work: Any) -> Any:
    """Return a function as PySpark's stubs accept it."""
    return work
