"""The rows' part of a table in one batch, as a task for Python workers: Arrow batches of Kafka records enter, counts leave.

A worker decodes the records, keeps the newest of each key, and has the sink write them: no plan, no generated code and no Spark job
for a table. Everything that a task does can be repeated, by a worker or by `TableBatch.run`: both write with the same transaction.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schemas.delay_histogram import DelayHistogram
from spark_jobs.arrow.decoder_plan import DecoderPlan, Observed
from spark_jobs.kafka.librdkafka import KafkaReadError
from spark_jobs.kafka.slices import Slice
from spark_jobs.sinks.contract import WorkerPut

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS: Final = "number int, result binary"
PARTS: Final = "number int, summary binary, rows binary"


@dataclass(frozen=True, slots=True)
class TombstonePaths:
    """The tombstones of a table: folders of earlier batches that count, and the folder that this batch writes.

    `count` is how many the earlier ones have. With `replaces` the new folder has these as well.
    """

    read: tuple[str, ...]
    count: int
    written: str
    replaces: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """What of the records counts: snapshot rows from the horizon of their partition on (`guard`), and all from `floor` on.

    Deletes above `safe_horizon` are needed by later batches.
    """

    guard: Mapping[int, str]
    floor: str
    safe_horizon: str


@dataclass(frozen=True, slots=True)
class TableTask:
    """The records of one table in one batch: how they are read, which of them count, and how they are written."""

    decoder: DecoderPlan
    keys: tuple[str, ...]
    admission: Admission
    tombstones: TombstonePaths
    put: WorkerPut


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task has done: what was counted, whether rows were put, and the tombstones it wrote (highest position, how many).

    `put` is how many rows were given to the put.
    `delays` are from the commit at the source to the commit of the target, of some of the changes; None if no rows were put. Where
    the put takes effect later, `times_ms` are when the source committed these changes.
    """

    observed: Observed
    wrote: bool
    tombstones: tuple[str, int] | None = None
    delays: DelayHistogram | None = None
    times_ms: tuple[int, ...] = ()
    put: int = 0


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task was not done: the table is merged by `TableBatch.run` then.

    `is_refused`: no batch of this layout can be done. `is_declined`: Spark does this one for less.
    """

    reason: str
    is_refused: bool = False
    is_declined: bool = False


@dataclass(frozen=True, slots=True)
class KafkaReads:
    """What the tasks of a stage read from Kafka themselves: their slices, and the code of each topic."""

    options: Mapping[str, str] = field(repr=False)
    codes: Mapping[str, int]
    slices: Sequence[Sequence[Slice]]


Batches = Iterator["pa.RecordBatch"]


def worker(tasks: Mapping[int, TableTask]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all records of some tables.

    In: `NUMBER` of the table, `SNAPSHOT`, partition, key, value (`kafka.slices`). Out: `RESULTS`, a row for each table with any.
    """

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import outcomes  # kernels: the driver needs none

        return _results(outcomes(tasks, batches))

    return run


def decoding_worker(tasks: Mapping[int, TableTask]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over some of the records of some tables. In: as `worker`. Out: `PARTS`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import parts  # as above

        return parts(tasks, batches)

    return run


def writing_worker(tasks: Mapping[int, TableTask]) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all `PARTS` of some tables. Out: `RESULTS`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.worker_run import outcomes_of_parts  # as above

        return _results(outcomes_of_parts(tasks, batches))

    return run


def with_own_records(reads: KafkaReads, work: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Return the work on records that a worker reads itself. In: the numbers of tasks, which are places in `reads.slices`."""

    def run(batches: Batches) -> Batches:
        try:
            from spark_jobs.arrow.kafka_records import record_batches  # as above
        except ImportError as error:
            message = f"{error.msg} on an executor"
            raise KafkaReadError(message) from None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(record_batches(reads.options, reads.slices[number], reads.codes))

    return run


def _results(outcomes: Iterator[tuple[int, TaskResult | TaskFailure]]) -> Batches:
    import pyarrow as pa

    for number, found in outcomes:
        row = [pa.array([number], pa.int32()), pa.array([pickle.dumps(found)], pa.binary())]
        yield pa.RecordBatch.from_arrays(row, ["number", "result"])
