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
from functools import partial
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from schemas.errors import SinkError, result_or_error
from schemas.identity import SourceTable
from schemas.loads import LoadAnswer
from spark_jobs.kafka.topic_tables import TopicTables
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.load_record import EarlierAttempt
from spark_jobs.merge.loads_of_table import LoadsOfTable
from spark_jobs.merge.source_of_chunks import ChunkSource
from spark_jobs.merge.table_batch import TableRecords
from spark_jobs.merge.table_set_aside import half_written, is_of_one_table, result_or_own_error
from spark_jobs.merge.worker_entries import load_worker, replacing_worker
from spark_jobs.merge.worker_task import RESULTS, LoadDone, LoadFailure, LoadTask
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.sinks.worker_writes import LoadedRows
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
        self._source: ChunkSource | None = None
        self._is_opened = False
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
        passing = context.sink.passing
        begun: dict[SourceTable, LoadsOfTable] = {}
        lanes: list[_Lane] = []
        routed = {table: due.pop(table) for table in tuple(due) if table not in context.plan.alone}
        failed = {table: self._refused(one, (one.target, _ROUTED), retry=False) for table, one in routed.items()}
        for table, one in due.items():
            begin = partial(self._begun, context, before, table, one, batch_id, put)
            result = result_or_own_error(begin, passing, takes_passing=True)
            if isinstance(result, Exception):
                failed[table] = self._refused(one, self._left(context, table, one, batch_id, result), put.get(table, {}))
                continue
            begun[table], tasks = result
            lanes += [_Lane(begun[table], task) for task in tasks]
        for group in _rounds(lanes):
            self._run(group, self.source)
        context.layout.files.remove(LOADS)
        for table, loads in begun.items():
            error = result_or_own_error(loads.conclude, passing, takes_passing=True)
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
        return loads, loads.begin(self._tables.topics((table.name.database, table.name.table)))

    @property
    def source(self) -> ChunkSource | None:
        """The source of the chunks, opened when it is first needed."""
        if not self._is_opened:
            self._source, self._is_opened = self._open_source(), True
        return self._source

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
        context.forget(table)
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
