"""Many tables in one Spark job: their slices are read together, and Python workers merge each table by its task.

A table whose task cannot be made, or was not done, is left to `TableBatch.run`, which is slower and knows every case: what a worker
has committed of it already is skipped there, by the transaction that both write with.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from kafkaio.librdkafka import is_there
from schemas.identity import SourceTable
from schemas.settings import KafkaSettings
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.kafka.read import FEW_RECORDS
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.group_batch import GroupRecords
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.merge.record_readers import RecordReader, SparkReader, WorkerReader, bins_of, mapped, moved
from spark_jobs.merge.table_batch import TableBatch
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.table_set_aside import result_or_own_error
from spark_jobs.merge.worker_entries import decoding_worker, worker, writing_worker
from spark_jobs.merge.worker_task import PARTS, RESULTS, MergeTask, TaskFailure, TaskResult
from spark_jobs.spark_errors import reason_of, was_cancelled
from spark_jobs.store.sink_layout import KEPT_ROWS

log = structlog.get_logger()

_MOST_FAILURES: Final = 3
_TASKS_PER_CORE: Final = 2
_FEW_CORES: Final = 2
"""With these, decoding in parts costs more CPU, and a warm job is no faster by it (docs/performance.md)."""
_WORKERS_OFF: Final = (
    "Spark merges all tables, exactly but many times slower, until it is started again: correct what the reasons name (a missing "
    "package on an executor, its memory), and restart the merge job"
)
_OF_READING: Final = "KafkaReadError"
_HAS_DIED: Final = "Python worker exited unexpectedly"
_READING_PAUSE_S: Final = 600.0
_READING_OFF: Final = (
    "Spark reads Kafka for the workers for ten minutes, exactly but with more CPU. If it repeats, remove the cause named in reason"
)
_NO_LIBRARY: Final = (
    "the driver has no librdkafka that confluent-kafka brings: Spark reads Kafka for the workers, exactly but with more CPU. "
    "pip install 'confluent-kafka>=2.12,<3' on the driver and on every executor"
)
_Result = TypeVar("_Result")


class TablesByWorkers:
    """The tables of a job whose rows Python workers merge. Each thread of `pool` has a session of its own.

    Where workers failed several times in a row (a package is missing on an executor), this run of the job uses none any more.
    """

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, pool: Executor, threads: int) -> None:
        self._spark = spark
        self._kafka = kafka
        self._pool = pool
        self._failures = self._read_failures = 0
        self._reads_from_s = 0.0
        if not is_there():
            self._reads_from_s = math.inf
            log.warning("merge.workers_read_off", advice=_NO_LIBRARY)
        self._refused: set[DecoderPlan] = set()
        self._sessions = [spark.newSession() for _ in range(threads)]

    def merged(
        self, context: JobContext, inputs: Sequence[TableInput], before: MergeState, batch_id: int
    ) -> list[GroupRecords]:
        """Merge what workers can merge of a batch, and return what is to be remembered of each of those tables."""
        chosen = [one for one in inputs if _is_ordinary(one, before.source(one.table))]
        if not chosen or self._failures >= _MOST_FAILURES:
            return []

        def begun(session: SparkSession, one: TableInput) -> _Begun | None:
            batch = TableBatch.of(context, session, one, before, batch_id)
            batch.begin()
            task = batch.task()
            return None if task is None or task.decoder in self._refused else _Begun(one, batch, task)

        ready = [one for one in self._in_lanes(context, begun, chosen) if one is not None]
        results = self._results(ready)

        def concluded(_: SparkSession, one: _Begun) -> GroupRecords | None:
            result = results.get(one.input.table)
            return None if result is None else one.batch.take_over(result)

        done = [one for one in self._in_lanes(context, concluded, ready) if one is not None]
        context.layout.files.remove(KEPT_ROWS)
        return done

    def _in_lanes(
        self, context: JobContext, work: Callable[[SparkSession, Any], _Result | None], items: Sequence[Any]
    ) -> list[_Result | None]:
        """Do the work for each item: an item of the same place is done on the same session, and no session by two threads."""

        def lane(number: int) -> list[_Result | None]:
            session = self._sessions[number]
            return [_attempted(context, partial(work, session, item), item) for item in items[number :: len(self._sessions)]]

        lanes = list(self._pool.map(lane, range(len(self._sessions))))
        return [lanes[index % len(lanes)][index // len(lanes)] for index in range(len(items))]

    def _results(self, ready: Sequence[_Begun]) -> dict[SourceTable, TaskResult]:
        """Have workers do the tasks, and return the results of those that were done.

        A task that keeps rows in a file is not done by a second stage: a worker of the first one may still write that file.
        """
        if not ready:
            return {}
        try:
            rows: list[Row] | None = None
            if time.monotonic() >= self._reads_from_s:
                rows = self._rows_by_workers_that_read(ready)
                ready = ready if rows is not None else [one for one in ready if one.task.put.takes_effect]
            if rows is None:
                rows = self._rows(SparkReader, ready) if ready else []
        except (PySparkException, Py4JError) as error:
            if was_cancelled(error):
                raise
            self._note_failure(len(ready), _reason_of_worker(error))
            return {}
        self._failures = 0
        results = {row["number"]: pickle.loads(bytes(row["result"])) for row in rows}  # noqa: S301 - our own worker's
        done: dict[SourceTable, TaskResult] = {}
        for number, one in enumerate(ready):
            result = results.get(number)
            if isinstance(result, TaskFailure):
                if result.is_refused:
                    self._refused.add(one.task.decoder)
                if result.is_declined:
                    one.batch.target.note_declined()
                report = log.info if result.is_declined else log.warning
                report("merge.task_not_done", table=one.input.full_name, reason=result.reason)
            elif isinstance(result, TaskResult) and (result.wrote or one.batch.had_rows):
                done[one.input.table] = result
        return done

    def _rows(self, reader: type[WorkerReader | SparkReader], ready: Sequence[_Begun]) -> list[Row]:
        inputs = [one.input for one in ready]
        tasks = {number: one.task for number, one in enumerate(ready)}
        cores = self._spark.sparkContext.defaultParallelism
        return _outcomes(reader(self._spark, self._kafka, inputs), tasks, [one.size for one in inputs], cores)

    def _rows_by_workers_that_read(self, ready: Sequence[_Begun]) -> list[Row] | None:
        """Return the rows of workers that read Kafka themselves; None where that failed, and Spark is to read."""
        try:
            rows = self._rows(WorkerReader, ready)
        except (PySparkException, Py4JError) as error:
            reason = _reason_of_worker(error)
            if _HAS_DIED in str(error):  # in librdkafka, or for want of memory: not at once once more
                self._pause_reading(reason)
            if not reason.partition(":")[0].endswith(_OF_READING):
                raise
            self._read_failures += 1
            log.warning("merge.workers_did_not_read", reason=reason, failures=self._read_failures)
            if self._read_failures >= _MOST_FAILURES:
                self._pause_reading(reason)
            return None
        self._read_failures = 0
        return rows

    def _pause_reading(self, reason: str) -> None:
        self._reads_from_s = time.monotonic() + _READING_PAUSE_S
        self._read_failures = 0
        log.error("merge.workers_read_off", reason=reason, advice=_READING_OFF)

    def _note_failure(self, tables: int, reason: str) -> None:
        self._failures += 1
        log.warning("merge.workers_failed", tables=tables, reason=reason, failures=self._failures)
        if self._failures >= _MOST_FAILURES:
            log.error("merge.workers_off", advice=_WORKERS_OFF)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A table of a batch whose task can be done."""

    input: TableInput
    batch: TableBatch
    task: MergeTask


def _is_ordinary(one: TableInput, known: SourceRecord) -> bool:
    """Return whether a table has records that can be read and no others, and is not set aside."""
    is_readable = one.unreadable is None and one.lost is None and not one.bad_markers
    return bool(one.data_slices) and is_readable and known.set_aside is None


def _attempted(context: JobContext, work: Callable[[], _Result | None], item: TableInput | _Begun) -> _Result | None:
    """Return the result of a piece of work; None if it fails with its table, which `TableBatch.run` does again."""
    table = item.table if isinstance(item, TableInput) else item.input.table
    result = result_or_own_error(context, [table], work, takes_passing=True)
    if isinstance(result, Exception):
        log.debug("merge.not_in_group", table=table.name.plain, reason=reason_of(result))
        return None
    return result


def _reason_of_worker(error: Exception) -> str:
    """Return the last line of the traceback of a worker, which says more than the first line of Spark's error."""
    lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    found = next((line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))), None)
    return found or reason_of(error)


def _outcomes(records: RecordReader, tasks: Mapping[int, MergeTask], sizes: Sequence[int], cores: int) -> list[Row]:
    """Have workers do the tasks. Records are decoded where they are written, many of one table by all workers before."""
    bins = bins_of(sizes, cores)
    is_even = max(sizes) <= 1.5 * sum(sizes) / cores
    if sum(sizes) <= FEW_RECORDS or cores <= _FEW_CORES or is_even:
        return records.by_table(bins, worker(tasks), RESULTS).collect()
    parts = records.in_parts(_TASKS_PER_CORE * cores, decoding_worker(tasks), PARTS)
    return mapped(moved(parts, bins), writing_worker(tasks), RESULTS).collect()
