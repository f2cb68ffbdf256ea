"""The loads of one table in a batch, on the driver: what the table remembers enters, tasks leave; results enter, records leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

import structlog
from pyspark.sql import SparkSession

from schemas.identity import SourceTable
from schemas.json_codec import encode
from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.layout_plan import LayoutPlanner
from spark_jobs.merge.load_record import EarlierAttempt
from spark_jobs.merge.progress_report import table_progress
from spark_jobs.merge.source_part import NO_SCHEMA
from spark_jobs.merge.table_batch import TableRecords
from spark_jobs.merge.table_input import RawRecords, TableInput
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.merge.worker_task import LoadDone, LoadFailure, LoadTask, TombstonePaths
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import WorkerSink

log = structlog.get_logger()

_NO_LOAD: Final = "this target has no loads by workers: delta-rs cannot write it, or the writer of its sink is jvm"
_NO_WORKERS: Final = "this sink takes no rows from workers"
_OTHER_KEY: Final = "the key of the rows is another than that of the target"
_UNFIT: Final = "schema_changes keeps the types of the columns, and values of these rows may not fit"
_OTHER_SETTINGS: Final = (
    "the settings under records were changed while the chunk was loaded: rows of it may be there as they were, and it is read again"
)
_RETIRED: Final = "the columns no longer have the types of the schema of these rows"


class LoadsOfTable:
    """The loads of a table, after the rows of the batch were merged into its target.

    `before` is what was remembered of the target before the batch, `records` what is to be remembered now; it grows with each step.
    `earlier` is the attempt at this batch before.
    """

    def __init__(
        self,
        context: JobContext,
        spark: SparkSession,
        table: SourceTable,
        before: TargetRecord,
        records: TableRecords,
        batch_id: int,
        earlier: EarlierAttempt,
    ) -> None:
        self._context = context
        self._earlier = earlier
        self._spark = spark
        self._table = table
        self._target = TargetBatch(context.sink.target(spark, context.target_of(table), [table]), before, batch_id)
        self._target.record = records.target
        self._source = records.source
        self._stamp = Stamp(context.query_id, batch_id, table.name.plain, encode(table_progress(records.source)))
        self._plan: TableLayout | None = None

    @property
    def records(self) -> TableRecords:
        """What is to be remembered after the steps so far."""
        return TableRecords(self._source, self._target.record)

    def begin(self, topics: tuple[str, str]) -> list[LoadTask]:
        """Prepare the target, and return the tasks of the pending loads; what cannot be loaded is answered.

        A load has the same lane when the batch is run again: it is its place among those that are pending.
        """
        if not isinstance(self._context.sink, WorkerSink):
            for load in self._source.loads.pending:
                self._refuse(load, _NO_WORKERS, retry=False)
            return []
        if self._context.reads_otherwise and self._earlier.has_written:
            for load in self._source.loads.pending:
                self._refuse(load, _OTHER_SETTINGS, retry=True)
            return []
        self._target.require_not_gone()
        loads, floor = self._source.loads.pending, self._source.state.floor
        wanted: list[tuple[int, LoadMarker]] = []
        for lane, load in enumerate(loads):
            if load.low.text < floor:
                self._answer(load, LoadAnswer(load.window))  # every row of it is gone, or was read again
            else:
                wanted.append((lane, load))
        if not wanted:
            return []
        planner = self._planner(topics)
        plan = planner.plan(self._target.columns, is_waited_for=True)
        if plan is None:
            skipped = planner.record.skipped
            for _, load in wanted:
                self._refuse(load, skipped or planner.record.lost or NO_SCHEMA, retry=skipped is None)
            return []
        if self._target.exists:
            self._target.prepare(plan, self._stamp)
        self._plan = plan
        tasks = (self._task(load, lane, plan, planner.record.retired) for lane, load in wanted)
        return [task for task in tasks if task is not None]

    def _planner(self, topics: tuple[str, str]) -> LayoutPlanner:
        changes, snapshots = topics
        raw = RawRecords(self._spark, self._context.settings.kafka, TableInput(self._table, changes, snapshots, {}, {}))
        folder = self._context.folder_of(self._table)
        rule = self._context.schema_rule
        return LayoutPlanner(self._context.schemas, raw, self._source, changes, folder, self._table.name.plain, rule)

    def _task(self, load: LoadMarker, lane: int, plan: TableLayout, retired: Sequence[int]) -> LoadTask | None:
        """Return the task of a load; None where it was refused."""
        value = next((one for one in plan.versions if one.id == load.value_schema), None)
        key = next((one for one in plan.key_writers if one.id == load.key_schema), None)
        if value is None or key is None:
            self._refuse(load, NO_SCHEMA, retry=True)
            return None
        if sorted(key.by_name) != sorted(name.lower() for name in plan.keys):
            self._refuse(load, _OTHER_KEY, retry=False)
            return None
        if not {value.id, key.id}.isdisjoint(retired):
            self._refuse(load, _RETIRED, retry=False)
            return None
        narrowed = replace(plan, key_writers=(key,), value_writers=(value,))
        if narrowed.unfit:
            self._refuse(load, _UNFIT, retry=False)
            return None
        put = self._target.worker_load(plan, self._stamp, lane)
        if put is None:
            self._refuse(load, _NO_LOAD, retry=False)
            return None
        root = self._context.layout.tombstones
        known = [one for one in self._source.tombstones if set(one.keys) == set(plan.keys)]
        paths, count = tuple(str(root / one.path) for one in known), sum(one.count for one in known)
        tombstones = TombstonePaths(paths, count, "", replaces=False)
        names = (self._table.name.database, self._table.name.table)
        kept = self._context.layout.loads / self._context.folder_of(self._table) / f"{lane}-{uuid4().hex}.arrow"
        return LoadTask(names, load, DecoderPlan.of(narrowed), plan.keys, tombstones, put, kept)

    def note(self, load: LoadMarker, result: LoadDone | LoadFailure) -> None:
        """Note the result of a task in what is remembered, and answer."""
        plan = self._plan
        assert plan is not None
        if isinstance(result, LoadFailure):
            if result.may_have_written:
                self._target.forget_keys()
            self._refuse(load, result.reason, retry=result.retry, is_read=True)
            return
        if result.is_known:
            self._target.note_loaded(result.key_range, plan)
        else:
            self._target.forget_keys()
        self._note_rows(load, result.put)
        self._answer(load, LoadAnswer(load.window, result.rows))
        log.info("merge.chunk_loaded", table=self._table.name.plain, request=load.request, chunk=load.chunk, rows=result.rows)

    def _note_rows(self, load: LoadMarker, count: int) -> None:
        """Remember the rows of a load, and the schemas that they have."""
        written_by, keyed_by = self._source.written_by, self._source.keyed_by
        if self._plan is not None and len(self._plan.versions) > 1:
            newest = (load.value_schema, load.low.text)
            written_by = max(filter(None, (written_by, newest)), key=lambda item: item[1])
        if keyed_by is not None and load.key_schema is not None:
            keyed_by = max(keyed_by, (load.key_schema, load.low.text), key=lambda item: item[1])
        self._source = replace(self._source, merged=self._source.merged + count, written_by=written_by, keyed_by=keyed_by)

    def conclude(self) -> None:
        """Remember the commits of the loads, and compact the target now and then."""
        if self._plan is None:
            return
        self._target.note_put(self._plan)
        self._target.note_commit()
        self._target.compact_if_due(self._stamp)

    def _refuse(self, load: LoadMarker, reason: str, *, retry: bool, is_read: bool = False) -> None:
        """Answer with an error. Where a worker has not read the load, nobody has looked whether an attempt before has put it."""
        if self._earlier.has_written and not is_read:
            self._target.note_unknown_rows()
        saved = self._earlier.put.get(load.window)
        if saved is not None:  # the rows are there, and the producer may have read the answer
            self._note_rows(load, saved.rows)
            self._answer(load, saved)
            return
        log.warning("merge.chunk_not_loaded", table=self._table.name.plain, chunk=load.chunk, reason=reason, retry=retry)
        self._answer(load, LoadAnswer(load.window, error=reason, retry=retry))

    def _answer(self, load: LoadMarker, answer: LoadAnswer) -> None:
        self._source = replace(self._source, loads=self._source.loads.answered(load, answer))
