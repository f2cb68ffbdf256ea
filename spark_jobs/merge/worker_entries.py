"""The functions that Python workers run over the records of a batch: tasks enter with them, and results leave.

The driver makes them, Spark pickles them. Each imports its work only in the worker: that needs kernels, and the driver loads none.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkaio.librdkafka import KafkaReadError
from spark_jobs.loads.source_of_chunks import ChunkSource
from spark_jobs.merge.worker_task import KafkaReads, LoadTask, MemberTask, MergeTask
from spark_jobs.sinks.worker_writes import WorkerPut

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterator["pa.RecordBatch"]


def worker(tasks: Mapping[int, MergeTask]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all records of some tables.

    In: `NUMBER` of the table, `SNAPSHOT`, partition, key, value (`kafkaio.slices`). Out: `RESULTS`, a row for each table with any.
    """

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import outcomes

        return _results(outcomes(tasks, batches))

    return run


def decoding_worker(tasks: Mapping[int, MergeTask]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over some of the records of some tables. In: as `worker`. Out: `PARTS`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import parts

        return parts(tasks, batches)

    return run


def writing_worker(tasks: Mapping[int, MergeTask]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all `PARTS` of some tables. Out: `RESULTS`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import outcomes_of_parts

        return _results(outcomes_of_parts(tasks, batches))

    return run


def with_own_records(reads: KafkaReads, work: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Return the work on records that a worker reads itself. In: the numbers of tasks, which are places in `reads.slices`."""

    def run(batches: Batches) -> Batches:
        try:
            from spark_jobs.arrow.kafka_records import record_batches
        except ImportError as error:
            message = f"{error.msg} on an executor"
            raise KafkaReadError(message) from None
        for number in _numbers(batches):
            yield from work(record_batches(reads.options, reads.slices[number], reads.codes))

    return run


def decoding_member(task: MemberTask) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all records of a table.

    In: `SNAPSHOT`, partition, key, value. Out: the columns of the decoder, `DELETED`, `POSITION` and what the task
    asks for; each key once.
    """

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import newest_rows

        return newest_rows(task, batches)

    return run


def putting(put: WorkerPut) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all rows of a target. Out: `PUT_RESULT`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import put_rows

        return put_rows(put, batches)

    return run


def load_worker(tasks: Sequence[LoadTask], source: ChunkSource) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over numbers of tasks. Out: `worker_task.RESULTS`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.load_run import outcome

        return _results((number, outcome(tasks[number], source)) for number in _numbers(batches))

    return run


def replacing_worker(groups: Sequence[Sequence[LoadTask]]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over numbers of groups: the tasks of a table, one after the other.

    Out: `worker_task.RESULTS`, of each group a list with None or a `LoadFailure` for each task.
    """

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.load_run import replaced

        return _results((number, [replaced(task) for task in groups[number]]) for number in _numbers(batches))

    return run


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _results(outcomes: Iterator[tuple[int, Any]]) -> Batches:
    import pyarrow as pa

    for number, result in outcomes:
        row = [pa.array([number], pa.int32()), pa.array([pickle.dumps(result)], pa.binary())]
        yield pa.RecordBatch.from_arrays(row, ["number", "result"])
