"""What a batch does for one source table, up to the newest row of each key: it knows nothing of how a target is written.

A `TableInput` and the `SourceRecord` of the batch before enter; frames of winners, tombstones, quarantined records and the next
`SourceRecord` leave. The steps are those of `schemas.memory_table.MemoryTable.apply`, on columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.json_codec import encode
from schemas.markers import FloorMarker
from schemas.merge_rule import NOTHING
from spark_jobs.arrow.decoder_plan import DecoderPlan, Observed
from spark_jobs.decode.avro_records import decoded, decoded_changes, undecodable
from spark_jobs.decode.record_columns import OFFSET, PARTITION, POSITION, REASON, SNAPSHOT
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.merge import quarantined, rule, table_topics, tombstones
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.merge.layout_plan import LayoutPlanner
from spark_jobs.merge.progress_report import left_out_text, table_progress
from spark_jobs.merge.rows_file import RowsFile
from spark_jobs.merge.rule import ObservedRows
from spark_jobs.merge.table_input import RawRecords, TableInput
from spark_jobs.merge.worker_task import Admission, MemberTask, MergeTask, TombstonePaths
from spark_jobs.pipeline.schema_rules import emptied
from spark_jobs.sinks.contract import Columns, QuarantineStep
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import WorkerPut, WorkerSink

log = structlog.get_logger()

_LOOK_AGAIN_S: Final = 10.0
NO_SCHEMA: Final = "the schema registry has no usable schema of the table"


@dataclass(frozen=True, slots=True)
class TableRows:
    """The newest row of each key of a batch, and what was counted of them (once they were computed)."""

    rows: DataFrame
    observed: ObservedRows


class SourcePart:
    """One source table in one batch, on a session that no other thread uses.

    `record` is what is to be remembered of the table, and grows with each step. `stamp` is what the writes of this batch carry.
    `left_out` is set once records of the batch were not merged: where those of the change topic end. With `keeps_deleted` a delete
    has the values of the row that it deletes. With `keeps_change` rows have `CHANGE` and `COMMITTED`, the record's op and time.
    Records without an image are quarantined by `image_step`. `rule` says what becomes of changes of the table's schema.
    """

    def __init__(
        self,
        context: JobContext,
        spark: SparkSession,
        table_input: TableInput,
        before: SourceRecord,
        batch_id: int,
        redrive: str = "",
    ) -> None:
        self.spark = spark
        self.input = table_input
        self.before = before
        self._context = context
        self.keeps_deleted = False
        self.image_step: QuarantineStep = "images"
        self.keeps_change = False
        self._marks_changes = self._has_changes = False
        self._label = f"{batch_id}-{redrive}" if redrive else str(batch_id)
        record, markers = table_topics.noted(before, table_input)
        self.rule = context.schema_rule
        state = before.state.read(markers, table_input.change_ends, self.rule.keeps)
        if table_input.is_recreated and not before.change_offsets:
            state = state.with_changes_recreated()
        table_input.require_partitions(state.partitions)
        self._lacks_load = before.loads.lacks(markers)
        self.record = replace(
            record,
            state=state,
            tombstones=tombstones.needed(before.tombstones, state),
            change_offsets=table_input.change_ends or before.change_offsets,
            snapshot_offsets=table_input.snapshot_ends or before.snapshot_offsets,
            set_aside=None,
            loads=before.loads.noted(markers, state),
        )
        self.left_out: dict[int, int] | None = {} if self._lacks_load else None
        self.oldest: str | None = None
        self.stamp = Stamp(context.query_id, batch_id, table_input.full_name, encode(table_progress(self.record)), redrive)
        self.raw = RawRecords(spark, context.settings.kafka, table_input)

    @property
    def has_risen(self) -> bool:
        """Whether the floor is higher than before the batch."""
        return self.record.state.floor > self.before.state.floor

    @property
    def has_rows_below_floor(self) -> bool:
        """Whether the batch has put a row below the floor, in a target that had none before."""
        return self.oldest is not None and self.oldest < self.record.state.floor

    @property
    def has_new_schema(self) -> bool:
        """Whether the newest record has another schema than the newest of the batches before."""
        before, now = self.before.written_by, self.record.written_by
        return now is not None and (before is None or before[0] != now[0])

    # ── layout ────────────────────

    def needs_plan(self, *, target_exists: bool) -> bool:
        """Return whether the schemas are needed: for records, for a snapshot that is complete, or to notice an ALTER in time."""
        if self._is_waited_for:
            return True
        now, table = time.monotonic(), self.input.table
        due = target_exists and now - self._context.looked_at.get(table, 0.0) > _LOOK_AGAIN_S
        if due:
            self._context.looked_at[table] = now
        return due

    @property
    def _is_waited_for(self) -> bool:
        """Whether something cannot continue without the schemas of the table: rows, or a snapshot that is complete."""
        complete = self.record.state.settled(self.input.change_ends)
        return bool(self.raw) or complete.consistent_at > self.before.state.consistent_at

    def plan(self, existing: Columns, *, has_target: bool = False) -> TableLayout | None:
        """Return how the records are decoded into a target with these columns; None where that is not known."""
        planner = self.planner()
        found = planner.plan(existing, is_waited_for=self._is_waited_for, has_target=has_target)
        self.record = planner.record
        return found

    def require_allowed(self) -> None:
        """Raise `SchemaChangeError` where a statement took the rows of the table, and the sink is to end before that."""
        state = self.before.state
        since = max(state.floor, state.kept)
        found = [one for one in self.input.markers if isinstance(one, FloorMarker) and one.position.text > since]
        self.rule.require_allowed(self.input.full_name, emptied([one.cause for one in found]))

    def planner(self) -> LayoutPlanner:
        """Return the choice of the table's schemas."""
        folder = self._context.folder_of(self.input.table)
        return LayoutPlanner(
            self._context.schemas, self.raw, self.record, self.input.change_topic, folder, self.input.full_name, self.rule
        )

    # ── rows ────────────────────

    def first_winners(self, plan: TableLayout) -> TableRows:
        """Return the winners for a target without rows: not computed before they are written."""
        observed = ObservedRows(plan, self.record.state.safe_horizon, self.input.size)
        return TableRows(self.winners(plan, observed), observed)

    @contextmanager
    def computed_winners(self, plan: TableLayout) -> Iterator[TableRows]:
        """Compute the winners that no tombstone of an earlier batch has overtaken, once for all writes that need them."""
        observed = ObservedRows(plan, self.record.state.safe_horizon, self.input.size)
        with rule.computed(self._not_overtaken(self.winners(plan, observed), plan)) as kept:
            yield TableRows(kept, observed)

    @contextmanager
    def judged_winners(self, plan: TableLayout, judge: Callable[[DataFrame], DataFrame], leaves: Column) -> Iterator[TableRows]:
        """Compute the winners as `computed_winners` does, with `CHANGED` and what `judge` adds to them.

        `leaves` is the condition for those that leave a tombstone, which are counted (`ObservedRows.leaving`).
        """
        state = self.record.state
        observed = ObservedRows(plan, state.safe_horizon, self.input.size)
        self._marks_changes = True
        judged = judge(self._not_overtaken(self.winners(plan, observed), plan))
        counted = judged.observe(observed.judged, F.count_if(leaves & tombstones.is_late(state)).alias("leaving"))
        with rule.computed(counted) as kept:
            yield TableRows(kept, observed)

    def _not_overtaken(self, rows: DataFrame, plan: TableLayout) -> DataFrame:
        """Return the winners that no tombstone of an earlier batch has overtaken."""
        if not self.before.tombstones:
            return rows
        overtaken = tombstones.read(self.spark, self._context.layout.tombstones, self.before.tombstones, _keys(plan))
        return rule.not_overtaken(rows, overtaken, plan.keys)

    def task(self, plan: TableLayout, put: WorkerPut) -> MergeTask | None:
        """Return the rows' part of the batch as a task for a worker; None if only Spark can do it."""
        paths = None if plan.unfit else self._tombstone_paths(plan)
        return None if paths is None else MergeTask(DecoderPlan.of(plan), plan.keys, self._admission, paths, put)

    def rows_file(self, plan: TableLayout) -> RowsFile | None:
        """Return where a worker keeps the newest rows for Spark; None for a sink that takes rows of workers, where it can."""
        sink = self._context.settings.sink
        if isinstance(self._context.sink, WorkerSink):
            return None
        return RowsFile.new(self._context.layout.kept_rows, plan.names, sink.merge_memory_bytes)

    def member_task(self, plan: TableLayout, *, keeps_changes: bool, result: str) -> MemberTask | None:
        """Return the part of the batch up to the newest rows as a task for a worker; None if only Spark can do it."""
        paths = None if plan.unfit else self._tombstone_paths(plan)
        if paths is None or (self.keeps_change and not all(writer.has_time for writer in plan.value_writers)):
            return None
        return MemberTask(
            DecoderPlan.of(plan), plan.keys, self._admission, paths, keeps_changes, result, keeps_change=self.keeps_change
        )

    @property
    def _admission(self) -> Admission:
        before, state = self.before.state, self.record.state
        guard = {partition: horizon for partition, horizon in before.guard.items() if horizon > NOTHING}
        return Admission(guard, state.floor, state.safe_horizon)

    def _tombstone_paths(self, plan: TableLayout) -> TombstonePaths | None:
        """Return where the tombstones of a worker are; None if those of earlier batches have keys of other types."""
        types = {name: kind.simpleString() for name, kind in _keys(plan)}
        if any(dict(one.keys) != types for one in self.before.tombstones):
            return None
        root = self._context.layout.tombstones
        read = tuple(str(root / one.path) for one in self.before.tombstones)
        count = sum(one.count for one in self.before.tombstones)
        replaces = len(self.record.tombstones) >= tombstones.MANY_FOLDERS
        return TombstonePaths(read, count, str(root / self._tombstone_folder), replaces=replaces)

    def keep_written_tombstones(self, found: tuple[str, int] | None, plan: TableLayout) -> None:
        """Remember the tombstones that a worker has written: the highest position, and how many."""
        if found is not None:
            highest, count = found
            types = {name: kind.simpleString() for name, kind in _keys(plan)}
            written = tombstones.TombstoneFolder(self._tombstone_folder, highest, count, types)
            tombstones.require_whole(self._context.layout.tombstones, written)
            kept = self.record.tombstones
            kept = () if len(kept) >= tombstones.MANY_FOLDERS else kept
            self.record = replace(self.record, tombstones=(*kept, written))

    def winners(self, plan: TableLayout, observed: ObservedRows | None) -> DataFrame:
        """Return the newest record of each key that guard and floor admit."""
        judged = self._decoded(plan)
        if observed is not None:
            judged = judged.observe(observed.records, *observed.judgements)
        admitted = rule.admitted(judged, self.before.state, self.record.state)
        rows = rule.winners(admitted, plan.keys, marks_changes=self._marks_changes, keeps_change=self.keeps_change)
        return rows if observed is None else rows.observe(observed.rows, *observed.measures)

    def changes(self, plan: TableLayout, observed: ObservedRows) -> DataFrame:
        """Return all records that can be decoded, as `decoded_changes` has them: for a changelog.

        Neither guard nor floor leaves any out: which of them have been read by now depends on the bounds of batches. Of an identity
        the highest position counts in a changelog, and its floors and deletes stay.
        """
        self._has_changes = True
        return self._changes(plan).observe(observed.records, *observed.judgements).where(F.col(REASON).isNull())

    def _changes(self, plan: TableLayout) -> DataFrame:
        return decoded_changes(self.raw.frame, plan, self.input.snapshot_topic)

    def count(self, observed: Observed, plan: TableLayout) -> None:
        """Remember what was counted, and quarantine the records that could not be decoded."""
        newest = max(filter(None, (self.record.written_by, observed.newest)), key=lambda item: item[1], default=None)
        self.record = replace(self.record, merged=self.record.merged + observed.winners, written_by=newest)
        if self.rule.drops and newest is not None:
            self._note_superseded(newest[0], plan)
        if observed.bad:
            self._quarantine(self._changes(plan) if self._has_changes else self._decoded(plan), observed.bad)

    def _decoded(self, plan: TableLayout) -> DataFrame:
        return decoded(
            self.raw.frame, plan, self.input.snapshot_topic, keeps_deleted=self.keeps_deleted, keeps_change=self.keeps_change
        )

    def _note_superseded(self, today: int, plan: TableLayout) -> None:
        """Remember the schemas that were registered later than today's, and whose records are older than its newest."""
        before = self.before.written_by
        found = {*self.record.superseded, *([] if before is None else [before[0]])}
        ids = [one.id for one in plan.versions]
        later = plan.versions[ids.index(today) + 1 :] if today in ids else ()
        found |= {one.id for one in later if one.id not in found and one.frame in self.raw.frames[1]}
        self.record = replace(self.record, superseded=tuple(sorted(found - {today})))

    def todays_writers(self, plan: TableLayout) -> list[WriterSchema]:
        """Return the schema of the newest value, those that may be newer still, and that of today's key; none if not known."""
        today = self.record.written_by
        if len(plan.versions) == 1 or today is None:
            return [*plan.versions, plan.key_writers[-1]] if len(plan.versions) == 1 else []
        ids = [one.id for one in plan.versions]
        since = plan.versions[ids.index(today[0]) :] if today[0] in ids else plan.versions
        return [*(one for one in since if one.id not in self.record.superseded), plan.key_writers[-1]]

    def keep_tombstones(self, rows: DataFrame, plan: TableLayout) -> None:
        """Write the deletes that a later batch may need. They count once the state names them."""
        root, keys = self._context.layout.tombstones, _keys(plan)
        deletes = tombstones.pending(rows, self.record.state).select(*[F.col(quoted(name)) for name, _ in keys], POSITION)
        kept = self.record.tombstones
        if len(kept) >= tombstones.MANY_FOLDERS:
            deletes = deletes.unionByName(tombstones.read(self.spark, root, kept, keys))
            kept = ()
        written = tombstones.write(deletes, root, self._tombstone_folder, keys)
        self.record = replace(self.record, tombstones=(*kept, written))

    @property
    def _tombstone_folder(self) -> str:
        return f"{self._context.folder_of(self.input.table)}/{self._label}"

    def settle(self) -> None:
        """Conclude what the rows allow.

        If some were left out, a snapshot that they may be of deletes no row and does not count.
        """
        state = self.record.state.settled(self.input.change_ends, self.left_out)
        if self.record.skipped is not None or self._lacks_load:
            state = state.giving_up()
        self.record = replace(self.record, state=state)
        if state.is_consistent:
            self.record = replace(self.record, incomplete=None)
        self.stamp = replace(self.stamp, progress=encode(table_progress(self.record)))
        if state.gap is not None and self.before.state.gap is None:
            log.warning("merge.records_left_out", table=self.input.full_name, reason=left_out_text(state))

    # ── records that cannot be merged ────────────────────

    def leave_out_all(self) -> None:
        """Quarantine all records of a table whose schemas are not known; only note them where the table is passed over."""
        if self.record.skipped is not None:
            self.left_out = (self.left_out or {}) | self.raw.framed_parts[1]
            return
        judged = undecodable(self.raw.frame, self.input.snapshot_topic, self.record.lost or NO_SCHEMA)
        self._quarantine(judged, judged.count())

    def quarantine_markers(self) -> None:
        """Quarantine the records with the marker key that are no markers."""
        bad = self.input.bad_markers
        if bad:
            self.left_out = self.left_out or {}
            self._append(quarantined.marker_rows(self.spark, bad, self.stamp), "markers")
            self.record = replace(self.record, quarantined=self.record.quarantined + len(bad))
            log.error("merge.bad_markers", table=self.input.full_name, markers=len(bad), reason=bad[0].reason)

    def leave_out(self, failed: DataFrame, count: int) -> None:
        """Quarantine records that were decoded, and for which no image can be made: `ORIGIN` and `REASON`."""
        self._quarantine(failed, count, self.image_step)

    def _quarantine(self, judged: DataFrame, count: int, step: QuarantineStep = "quarantine") -> None:
        """Remember that records with a reason were not merged, and where those of the change topic end."""
        bad = judged.where(F.col(REASON).isNotNull() & ~F.col(SNAPSHOT)).groupBy(PARTITION)
        ends = {row[PARTITION]: row["last"] + 1 for row in bad.agg(F.max(OFFSET).alias("last")).collect()}
        self.left_out = (self.left_out or {}) | ends
        self._append(quarantined.rows_of(self.raw.frame, judged, self.stamp), step)
        self.record = replace(self.record, quarantined=self.record.quarantined + count)
        log.error("merge.quarantined", table=self.input.full_name, records=count, batch_id=self.stamp.batch_id)

    def _append(self, rows: DataFrame, step: QuarantineStep) -> None:
        """Append to the quarantine, without what an attempt before the table was set aside, or the mirror of it, has appended."""
        quarantine = self._context.sink.quarantine()
        if self.before.set_aside is not None or step == "changes":
            rows = quarantined.not_kept_yet(self.spark, rows, quarantine)
        quarantine.append(rows.select(*quarantined.COLUMNS), self._quarantine_stamp, step)

    @property
    def _quarantine_stamp(self) -> Stamp:
        """The stamp of records that are not merged: once a target was made again, the steps of the attempts before do not count."""
        rebuilt = self._context.rebuilt.get(self.input.full_name, 0)
        return replace(self.stamp, table=f"{self.stamp.table}#{rebuilt}") if rebuilt else self.stamp


def _keys(plan: TableLayout) -> list[tuple[str, T.DataType]]:
    return [(name, plan.types[name]) for name in plan.keys]


def require_readable(table_input: TableInput, *, stops_on_errors: bool) -> None:
    """Raise `SinkError` for a table that cannot be read now, and for lost records if the job is to stop on errors."""
    if table_input.unreadable is not None:
        raise SinkError(f"{table_input.unreadable}; it is asked again")
    if table_input.lost is not None and stops_on_errors:
        advice = "start the merge job on an empty sink path and snapshot again, or with on_table_error: set_aside"
        raise SinkError(f"{table_input.lost}, or {advice}")
