"""The loads of a batch: chunks that the job reads from the source itself, after the rows of all tables were merged.

One Spark job carries out the loads of all tables, one task each. Where rows of an older version are to be replaced, a second one
does that, one task for each table: appends of a table can be made at once, and merges cannot. The order of the loads, and so their
lanes, follow from the state before the batch and from its markers: a batch that is run again carries out the same loads, and a
commit that is there already is skipped (see the sinks for why rows that were read later do no harm). Then the state is saved, which
has the answers; then these are written. A crash in between has them written again by the next batch.

Chunks of one request are disjoint, and run at once. A chunk that was asked for twice, or by two requests, is carried out in rounds,
one after the other: two loads that run at once would both add a key that is not there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final
from uuid import uuid4

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from schemas.errors import SinkError, result_or_error
from schemas.identity import SourceTable
from schemas.json_codec import encode
from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.kafka.topic_tables import TopicTables
from spark_jobs.loads.source_of_chunks import ChunkSource
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.layout_plan import LayoutPlanner
from spark_jobs.merge.load_record import EarlierAttempt
from spark_jobs.merge.progress_report import table_progress
from spark_jobs.merge.source_part import NO_SCHEMA
from spark_jobs.merge.table_batch import TableRecords
from spark_jobs.merge.table_input import RawRecords, TableInput
from spark_jobs.merge.table_set_aside import half_written, is_of_one_table, result_or_own_error
from spark_jobs.merge.target_batch import TargetBatch
from spark_jobs.merge.worker_entries import load_worker, replacing_worker
from spark_jobs.merge.worker_task import RESULTS, LoadDone, LoadFailure, LoadTask, TombstonePaths
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import LoadedRows, WorkerSink
from spark_jobs.spark_errors import reason_of
from spark_jobs.store.sink_layout import LOADS

log = structlog.get_logger()

Answers = Mapping[SourceTable, Mapping[str, LoadAnswer]]
_NONE: Final[Mapping[str, LoadAnswer]] = {}
_ROUTED: Final = "the rows of the table are changed or put together with others on their way into the sink: they go through Kafka"


@dataclass(frozen=True, slots=True)
class _Lane:
    """A task of a table."""

    table: LoadsOfTable
    task: LoadTask


class Loads:
    """The loads of a job. `open_source` returns the source of the chunks, None where there is none: they stay pending then."""

    def __init__(self, spark: SparkSession, tables: TopicTables, open_source: Callable[[], ChunkSource | None]) -> None:
        self._spark = spark
        self._tables = tables
        self._open_source = open_source
        self._written: set[str] = set()

    def carried_out(
        self,
        context: JobContext,
        before: MergeState,
        records: Mapping[SourceTable, TableRecords],
        batch_id: int,
        put: Answers,
    ) -> dict[SourceTable, TableRecords]:
        """Carry out the pending loads of these tables, and return what is to be remembered of those that had some.

        `put` are the answers to windows that an attempt at this batch has put and saved: they are not to be called failed.
        """
        due = {table: one for table, one in records.items() if one.source.loads.pending and one.source.set_aside is None}
        if not due:
            return {}
        if self.source is None:
            return self._left_pending(context, due, batch_id)
        begun: dict[SourceTable, LoadsOfTable] = {}
        lanes: list[_Lane] = []
        routed = {table: due.pop(table) for table in tuple(due) if table not in context.plan.alone}
        failed = {table: self._refused(one, (one.target, _ROUTED), retry=False) for table, one in routed.items()}
        for table, one in due.items():
            begin = partial(self._begun, context, before, table, one, batch_id, put)
            result = result_or_own_error(context, [table], begin, takes_passing=True)
            if isinstance(result, Exception):
                failed[table] = self._refused(one, self._left(context, table, one, batch_id, result), put.get(table, {}))
                continue
            begun[table], tasks = result
            lanes += [_Lane(begun[table], task) for task in tasks]
        for group in _rounds(lanes):
            self._run(group, self.source)
        context.layout.files.remove(LOADS)
        for table, loads in begun.items():
            error = result_or_own_error(context, [table], loads.conclude, takes_passing=True)
            if isinstance(error, Exception):  # the rows are there: only what follows them is left out
                target, _ = self._left(context, table, loads.records, batch_id, error)
                failed[table] = replace(loads.records, target=target)
        return {table: loads.records for table, loads in begun.items()} | failed

    def _begun(
        self, context: JobContext, before: MergeState, table: SourceTable, one: TableRecords, batch_id: int, put: Answers
    ) -> tuple[LoadsOfTable, list[LoadTask]]:
        """Return the loads of a table, with the tasks that workers are to carry out."""
        target = before.target(context.target_of(table))
        loads = LoadsOfTable(context, self._spark, table, target, one, batch_id, _earlier(context, table, put))
        return loads, loads.begin(self._tables.topics_of(table))

    @cached_property
    def source(self) -> ChunkSource | None:
        """The source of the chunks, opened when it is first needed."""
        return self._open_source()

    def _left_pending(
        self, context: JobContext, due: Mapping[SourceTable, TableRecords], batch_id: int
    ) -> dict[SourceTable, TableRecords]:
        """Return the records of tables whose loads wait for a source, where an attempt that had one may have loaded some."""
        alone = {table: one for table, one in due.items() if table in context.plan.alone}
        written = {table: one for table, one in alone.items() if context.target_of(table) in context.written}
        return {table: replace(one, target=half_written(one.target, batch_id)) for table, one in written.items()}

    def _left(
        self, context: JobContext, table: SourceTable, known: TableRecords, batch_id: int, error: Exception
    ) -> tuple[TargetRecord, str]:
        """Return the record of a target whose loads failed with an error of this table, and the reason."""
        reason = reason_of(error)
        log.warning("merge.loads_failed", table=table.name.plain, reason=reason)
        target = context.sink.target(self._spark, context.target_of(table), [table])
        return half_written(known.target, batch_id) if target.has_commit(batch_id) else known.target, reason

    @staticmethod
    def _refused(
        known: TableRecords, left: tuple[TargetRecord, str], put: Mapping[str, LoadAnswer] = _NONE, *, retry: bool = True
    ) -> TableRecords:
        """Return the records of a table none of whose loads could be begun."""
        target, reason = left
        source = known.source
        for load in source.loads.pending:
            answer = put.get(load.window) or LoadAnswer(load.window, error=reason, retry=retry)
            source = replace(source, loads=source.loads.answered(load, answer))
        return TableRecords(source, target)

    def _run(self, lanes: Sequence[_Lane], source: ChunkSource) -> None:
        """Have workers carry out loads that may run at once, and then replace the older rows of each table."""
        results = self._results(load_worker([one.task for one in lanes], source), len(lanes))
        by_table: dict[int, list[int]] = {}
        for number, one in enumerate(lanes):
            result = results[number]
            if isinstance(result, LoadDone) and result.older:
                by_table.setdefault(id(one.table), []).append(number)
        if by_table:
            groups = list(by_table.values())
            tasks = {number: replace(lanes[number].task, older=results[number].older) for group in groups for number in group}
            work = replacing_worker([[tasks[number] for number in group] for group in groups])
            for group, found in zip(groups, self._results(work, len(groups)), strict=True):
                failures = found if isinstance(found, list) else [found] * len(group)
                for number, failure in zip(group, failures, strict=True):
                    results[number] = failure or results[number]
        for one, result in zip(lanes, results, strict=True):
            one.table.note(one.task.load, _arrived(one.task, result))

    def _results(self, work: Callable[..., Any], count: int) -> list[Any]:
        """Return what workers make of so many numbers; a `LoadFailure` for each where they failed as such."""
        try:
            rows = self._spark.range(0, count, 1, count).mapInArrow(work, RESULTS).collect()
        except (PySparkException, Py4JError) as error:
            if not is_of_one_table(error, lambda _: None):
                raise
            return [LoadFailure(reason_of(error), retry=True, may_have_written=True)] * count
        found = {row["number"]: pickle.loads(bytes(row["result"])) for row in rows}  # noqa: S301 - our own worker's
        return [found[number] for number in range(count)]

    # ── answers ────────────────────

    def unwritten(self, record: SourceRecord) -> SourceRecord:
        """Return the record of a table without the answers that this run of the job has written."""
        return replace(record, loads=record.loads.without_answers(self._written))

    def answer(self, state: MergeState) -> None:
        """Write the answers that a saved state has, but for those that this run has written."""
        answers = [one for record in state.sources.values() for one in record.loads.answers]
        self._written &= {one.window for one in answers}
        new = [one for one in answers if one.window not in self._written]
        if not new or self.source is None:
            return
        error = result_or_error(partial(self.source.answer, new))
        if error is None:
            self._written |= {one.window for one in new}
        else:  # the rows are there, and the state has the answers: the next batch writes them
            log.warning("merge.loads_not_answered", loads=len(new), reason=str(error).partition("\n")[0])


def _arrived(task: LoadTask, result: LoadDone | LoadFailure) -> LoadDone | LoadFailure:
    """Return the result of a load; a failure unless the driver sees what a worker has done."""
    if isinstance(result, LoadDone):
        try:
            task.put.require_arrived(LoadedRows(result.put, older=result.older, has_added=result.has_added))
        except SinkError as error:
            return LoadFailure(reason_of(error), retry=True, may_have_written=True)
    return result


def _earlier(context: JobContext, table: SourceTable, put: Answers) -> EarlierAttempt:
    """Return what an attempt at this batch before has left of a table."""
    has_written = context.target_of(table) in context.written
    saved = put.get(table, {})
    return EarlierAttempt(has_written, {window: one for window, one in saved.items() if has_written or not one.rows})


def _rounds(lanes: Iterable[_Lane]) -> list[list[_Lane]]:
    """Return loads that may run at once: of each table those of one plan of a request, each chunk once."""
    rounds: list[list[_Lane]] = []
    taken: list[dict[int, tuple[tuple[str, int], set[int]]]] = []
    for one in lanes:
        load = one.task.load
        plan = load.request, load.generation
        for group, seen in zip(rounds, taken, strict=True):
            seen_plan, chunks = seen.setdefault(id(one.table), (plan, set()))
            if seen_plan == plan and load.chunk not in chunks:
                chunks.add(load.chunk)
                group.append(one)
                break
        else:
            rounds.append([one])
            taken.append({id(one.table): (plan, {load.chunk})})
    return rounds


# ── the loads of one table ────────────────────


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
        self._target = TargetBatch.of(context, spark, table, before, batch_id)
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
