"""A load as a task for a Python worker, and what leaves it: one task, one chunk of a table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.markers import LoadMarker
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.merge.source_of_chunks import ChunkSource
from spark_jobs.merge.worker_task import TombstonePaths
from spark_jobs.sinks.contract import KeyRange, WorkerLoad

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LoadTask:
    """The chunk of a window: how its records are decoded, whose tombstones they meet, and how they are put.

    Of `tombstones` nothing is written. `names` are database and table at the source. `kept` is the file of the rows that replace
    others, `older` how many they are, once that is known.
    """

    names: tuple[str, str]
    load: LoadMarker
    decoder: DecoderPlan
    keys: tuple[str, ...]
    tombstones: TombstonePaths
    put: WorkerLoad
    kept: Path
    older: int = 0


@dataclass(frozen=True, slots=True)
class LoadDone:
    """What a task has done: it read `rows`, and gave `put` of them to the sink. The rest is that of `sinks.contract.LoadedRows`."""

    rows: int
    put: int
    key_range: KeyRange | None
    is_known: bool
    older: int = 0
    has_added: bool = False


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a task was not done, whether another attempt may succeed, and whether rows of it may be in the target."""

    reason: str
    retry: bool
    may_have_written: bool = False


def load_worker(tasks: Sequence[LoadTask], source: ChunkSource) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a worker runs over numbers of tasks. Out: `worker_task.RESULTS`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from spark_jobs.merge.load_run import outcome  # kernels: the driver needs none

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(outcome(tasks[number], source))
                row = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(row, ["number", "result"])

    return run


def replacing_worker(groups: Sequence[Sequence[LoadTask]]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a worker runs over numbers of groups: the tasks of a table, one after the other.

    Out: `worker_task.RESULTS`, of each group a list with None or a `LoadFailure` for each task.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from spark_jobs.merge.load_run import replaced  # kernels: the driver needs none

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps([replaced(task) for task in groups[number]])
                row = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(row, ["number", "result"])

    return run
