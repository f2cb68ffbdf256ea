"""Tasks for Python workers, and their results: what driver and workers exchange about the tables of a batch. No kernel is loaded.

A worker decodes the records of a table, keeps the newest of each key, and has the sink write them: no plan, no generated code, no
Spark job for a table. Everything that a task does can be repeated, by a worker or by Spark: both write with the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkaio.slices import Slice
from schemas.delay_histogram import DelayHistogram
from schemas.markers import LoadMarker
from spark_jobs.arrow.decoder_plan import DecoderPlan, Observed
from spark_jobs.sinks.contract import KeyRange
from spark_jobs.sinks.worker_writes import WorkerLoad, WorkerPut

RESULTS: Final = "number int, result binary"
PUT_RESULT: Final = "rows bigint"
DECLINED: Final = -1
"""The number of rows of a put that is left to Spark."""
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
class TableReading:
    """The records of one table in one batch: how they are decoded, which of them count, and the tombstones that they meet."""

    decoder: DecoderPlan
    keys: tuple[str, ...]
    admission: Admission
    tombstones: TombstonePaths


@dataclass(frozen=True, slots=True)
class MergeTask(TableReading):
    """The reading of a table whose newest rows a worker puts."""

    put: WorkerPut


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task has done: what was counted, whether rows were put, and the tombstones it wrote (highest position, how many).

    `put` is how many rows were given to the put. Rows that continue through Spark are not put by their task.
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


@dataclass(frozen=True, slots=True)
class MemberTask(TableReading):
    """The reading of a table whose newest rows continue through Spark. `result` is the path of the file for the `TaskResult`.

    With `keeps_changes` all changes leave tombstones that a later batch may need, and not deletes alone: some may have no image.
    With `keeps_change` the rows have `CHANGE` and `COMMITTED`. `most_bytes` is what the records may take, None for no limit.
    """

    keeps_changes: bool
    result: str
    most_bytes: int | None = None
    keeps_change: bool = False


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
    """What a task has done: it read `rows`, and gave `put` of them to the sink. The rest is that of `worker_writes.LoadedRows`."""

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
