"""A source table of a group in one batch, as a task for a Python worker: Kafka records enter, the newest rows leave.

What is counted of them goes into a file beside the sink, and so do the tombstones they leave: the rows alone continue, through
Spark's expressions, to the worker that puts them. All of it can be repeated, by a worker or by `GroupBatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.arrow.decoder_plan import DecoderPlan, Observed
from spark_jobs.merge.worker_task import Admission, TombstonePaths
from spark_jobs.sinks.contract import WorkerPut

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterator["pa.RecordBatch"]
PUT_RESULT: Final = "rows bigint"
DECLINED: Final = -1
"""The number of rows of a put that is left to Spark."""


@dataclass(frozen=True, slots=True)
class MemberTask:
    """The records of one table: how they are read, which of them count, and where the result goes.

    With `keeps_changes` all changes leave tombstones that a later batch may need, and not deletes alone: some may have no image.
    With `keeps_change` the rows have `CHANGE` and `COMMITTED`. `most_bytes` is what the records may take, None for no limit.
    """

    decoder: DecoderPlan
    keys: tuple[str, ...]
    admission: Admission
    tombstones: TombstonePaths
    keeps_changes: bool
    result: str
    most_bytes: int | None = None
    keeps_change: bool = False


@dataclass(frozen=True, slots=True)
class MemberResult:
    """What was counted, when some of the changes were committed, and the tombstones that were written: highest position, number."""

    observed: Observed
    times_ms: tuple[int, ...]
    tombstones: tuple[str, int] | None = None


def decoding_member(task: MemberTask) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all records of a table.

    In: `SNAPSHOT`, partition, key, value. Out: the columns of the decoder, `DELETED`, `POSITION` and what the task
    asks for; each key once.
    """

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.member_run import newest_rows  # kernels: the driver needs none

        return newest_rows(task, batches)

    return run


def putting(put: WorkerPut) -> Callable[[Batches], Batches]:
    """Return the function that a worker runs over all rows of a target. Out: `PUT_RESULT`."""

    def run(batches: Batches) -> Batches:
        from spark_jobs.merge.member_run import put_rows  # as above

        return put_rows(put, batches)

    return run
