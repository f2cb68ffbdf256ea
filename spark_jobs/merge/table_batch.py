"""One source table and its one target in one batch: the order of the steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from schemas.delay_histogram import DelayHistogram
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_batch import GroupRecords, GroupWork
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.rows_file import RowsFile
from spark_jobs.merge.rule import ObservedRows
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.merge.worker_task import MergeTask, TaskResult
from spark_jobs.pipeline.schema_rules import dropped_columns
from spark_jobs.pipeline.target_layout import outgrown
from spark_jobs.sinks.contract import MirrorWriter, TargetRecord
from spark_jobs.sinks.worker_writes import WorkerPut


@dataclass(frozen=True, slots=True)
class TableRecords:
    """What is remembered of a source table and of its target."""

    source: SourceRecord
    target: TargetRecord


class TableBatch:
    """The steps of a batch for one table, each of which can be repeated.

    After `run`, `delays` are from the commit at the source to the commit of the target, of some of the changes.
    """

    def __init__(self, context: JobContext, source: SourcePart, target: TargetBatch) -> None:
        self._context = context
        self.source = source
        self.target = target
        self.plan: TableLayout | None = None
        self.had_rows = False
        self.delays: DelayHistogram | None = None
        self._times_ms: Sequence[int] = ()
        self._needs_plan = True
        self._kept: RowsFile | None = None
        self._put: WorkerPut | None = None

    @classmethod
    def of(cls, context: JobContext, spark: SparkSession, table_input: TableInput, before: MergeState, batch_id: int) -> TableBatch:
        """Return the steps of a table, on a session that no other thread uses."""
        table = table_input.table
        source = SourcePart(context, spark, table_input, before.source(table), batch_id)
        return cls(context, source, TargetBatch.of(context, spark, table, before.target(context.target_of(table)), batch_id))

    @property
    def records(self) -> TableRecords:
        """What is to be remembered after the steps so far."""
        return TableRecords(self.source.record, self.target.record)

    def run(self) -> GroupRecords:
        """Merge the table's records and return what is to be remembered."""
        self.begin()
        with self.target.commit(self.source.stamp) as writer:
            if self.source.raw:
                self.merge_records(writer, self.plan)
            elif self.plan is not None and not self.had_rows:
                self.target.make_empty(writer, self.plan, self.source.spark)
            self._conclude(writer)
        self._note_delays()
        return self._end()

    def begin(self) -> None:
        """Carry out what comes before the rows: the markers that are none, the layout, the columns of the target."""
        source, target = self.source, self.target
        target.require_not_gone()
        source.quarantine_markers()
        if target.exists:
            source.require_allowed()
        self._needs_plan = source.needs_plan(target_exists=target.exists)
        self.plan = source.plan(target.columns, has_target=target.exists) if self._needs_plan else None
        self.had_rows = target.exists
        if self.had_rows and target.name in self._context.written and (source.input.trimmed or source.input.lost is not None):
            target.forget_keys()  # the attempt before may have put what is gone by now
        if self.plan is not None and self.had_rows:
            target.prepare(self.plan, source.stamp)

    def task(self) -> MergeTask | None:
        """Return the rows' part as a task for a worker, after `begin`; None where it must be done here."""
        if self.plan is None or not self.source.raw:
            return None
        put = self.target.worker_put(self.plan, self.source.stamp, self.source.input.size)
        if put is None:
            put = self._kept = self.source.rows_file(self.plan)
        self._put = put
        return None if put is None else self.source.task(self.plan, put)

    def take_over(self, done: TaskResult) -> GroupRecords:
        """Conclude the batch of a table whose task was done by a worker, and return what is to be remembered."""
        plan, source, target = self.plan, self.source, self.target
        assert plan is not None
        if done.wrote and self._put is not None:
            self._put.require_arrived(done.put)
        with target.commit(source.stamp) as writer:
            source.count(done.observed, plan)
            target.note_keys(done.observed, plan)
            if done.wrote and self._kept is not None:
                target.put(writer, self._kept.read(source.spark, plan.columns), plan, done.observed.key_range)
            elif done.wrote:
                target.note_put(plan)
            source.keep_written_tombstones(done.tombstones, plan)
            source.oldest = None if self.had_rows else done.observed.oldest
            self._conclude(writer)
        if self._kept is not None:
            self._times_ms = done.times_ms
            self._note_delays()
        self.delays = done.delays or self.delays
        return self._end()

    def _note_delays(self) -> None:
        now_s = time.time()
        self.delays = DelayHistogram.of(now_s - at_ms / 1000 for at_ms in self._times_ms)

    def _conclude(self, writer: MirrorWriter) -> None:
        if self.plan is not None or self.source.left_out is not None or not self._needs_plan:
            self.settle(writer)
        self.delete_what_is_gone(writer, had_rows=self.had_rows)

    def _end(self) -> GroupRecords:
        self._narrow_if_due()
        drops = self._context.drops_columns
        dropped = self._drop_if_due() if drops else ()
        if self.plan is not None and self._context.naming.routes.are_given:  # other tables may go into the target later
            columns = tuple((name, kind) for name, kind in self.plan.columns if name not in dropped)
            self.target.note_fed_by(self.source.input.table, replace(self.plan, columns=columns), forgets=drops)
        self.target.note_commit()
        self.target.compact_if_due(self.source.stamp)
        table = self.source.input.table
        delays = {} if self.delays is None else {table: self.delays}
        return GroupRecords({table: self.source.record}, {self.target.name: self.target.record}, delays)

    def merge_records(self, writer: MirrorWriter, plan: TableLayout | None) -> None:
        """Put the newest row of each key into the target, and keep the tombstones of the batch."""
        if plan is None:
            self.source.leave_out_all()
        elif self.target.exists:
            self._merge_into_rows(writer, plan)
        else:
            self._put_first_rows(writer, plan)

    def settle(self, writer: MirrorWriter) -> None:
        """Conclude what the rows allow, and stamp the steps that follow with it."""
        self.source.settle()
        writer.restamp(self.source.stamp)

    def delete_what_is_gone(self, writer: MirrorWriter, *, had_rows: bool) -> None:
        """Delete below the floor, and sweep."""
        self.target.delete_below_floors(writer, [self.source], had_rows=had_rows)
        due = self.source.record.state.due
        if due and self.target.exists:
            self.target.sweep(writer, self.source.input.table, due)

    def _put_first_rows(self, writer: MirrorWriter, plan: TableLayout) -> None:
        """Put the first rows of a target as they are computed; for its deletes, if any, they are computed again."""
        first = self.source.first_winners(plan)
        self.target.put(writer, first.rows, plan, None)
        counts = self._count(first.observed, plan)
        self.source.oldest = counts.oldest
        if counts.tombstones:
            self.source.keep_tombstones(self.source.winners(plan, None), plan)

    def _merge_into_rows(self, writer: MirrorWriter, plan: TableLayout) -> None:
        """Compute the winners once, and keep them until rows and tombstones are written."""
        with self.source.computed_winners(plan) as found:
            counts = self._count(found.observed, plan)
            if not counts.winners:
                return
            self.target.put(writer, found.rows, plan, counts.key_range)
            if counts.tombstones:
                self.source.keep_tombstones(found.rows, plan)

    def _count(self, observed: ObservedRows, plan: TableLayout) -> Observed:
        counts = observed.counts
        self.source.count(counts, plan)
        self.target.note_keys(counts, plan)
        self._times_ms = observed.times_ms
        return counts

    def _narrow_if_due(self) -> None:
        """Give columns the types of the newest records when a floor has taken every row from before.

        The schemas with values that they cannot have any more are retired, until a record of one is above the floor again.
        """
        source = self.source
        is_due = source.record.retype or source.has_risen or (source.rule.narrows and source.has_new_schema)
        if not is_due or not source.rule.retypes or not self.target.exists:
            return
        planner = source.planner()
        versions, keys = planner.value_writers(), planner.key_writers()
        newest = source.record.written_by
        writer = next((one for one in versions if newest and one.id == newest[0]), None)
        awaited = len(versions) > 1 and (newest is None or newest[1] < source.record.state.floor)
        source.record = replace(source.record, retype=awaited)
        if awaited or not keys or not versions:
            return
        if self.target.narrow((writer or versions[-1], keys[-1]), source.stamp, insists=self._insists):
            source.record = replace(source.record, retired=outgrown(self.target.columns, (*versions, *keys)))

    @property
    def _insists(self) -> bool:
        """Whether all rows must fit now, if ever: those of older schemas were read again, all of them."""
        source, known = self.source, self.source.before.written_by
        newest = source.record.written_by
        is_known = known is not None and newest is not None and known[0] == newest[0]
        return source.rule.insists and source.has_risen and is_known and known is not None and known[1] < source.record.state.floor

    def _drop_if_due(self) -> tuple[str, ...]:
        """Drop the columns that the source of the newest record does not have, after the first record without them; return them."""
        if self.plan is None or not self.target.exists:
            return ()
        current = self.source.todays_writers(self.plan)
        known = (*self.plan.versions, *self.plan.key_writers)
        found = dropped_columns(self.target.columns, current, known) if current else ()
        self.target.drop(found, self.source.stamp)
        return found


def run_alone(work: GroupWork) -> GroupRecords:
    """Merge a group of one table that goes as it is into one target, which has no other."""
    (one,) = work.inputs
    return TableBatch.of(work.context, work.spark, one, work.before, work.batch_id).run()
