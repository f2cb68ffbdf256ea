"""The rows' part of a table in one batch, as a task for a Python worker: Arrow batches of Kafka records enter, counts leave.

A worker decodes the records, keeps the newest of each key, and has the sink write them: no plan, no generated code and no Spark job
for a table. Everything that a task does can be repeated, by a worker or by `TableBatch.run`: both write with the same transaction.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.arrow.arrow_decoder import ArrowDecoder, DecoderPlan
from spark_jobs.arrow.newest import Observed, admitted, newest, not_overtaken, observed
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.contract import WorkerPut

NUMBER: Final = "number"
SNAPSHOT: Final = "snapshot"
RESULTS: Final = "number int, result binary"
_FILE: Final = "part-00000.parquet"
_MOST_DECODERS: Final = 1000
_LARGEST_OFFSET: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TombstonePaths:
    """The tombstones of a table: folders of earlier batches that count, and the folder that this batch writes.

    With `replaces` the new folder has the tombstones of the earlier ones as well.
    """

    read: tuple[str, ...]
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
    """What a task has done: what was counted, whether rows were put, and the tombstones it wrote (highest position, how many)."""

    observed: Observed
    wrote: bool
    tombstones: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task was not done: the table is merged by `TableBatch.run` then."""

    reason: str


def worker(tasks: Mapping[int, TableTask]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a worker runs over the records of some tables.

    In: `NUMBER` of the table, `SNAPSHOT`, partition, key, value. Out: `RESULTS`, one row for each table with records.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, records in _by_table(batches):
            result = pickle.dumps(_outcome(tasks[number], records))
            row = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
            yield pa.RecordBatch.from_arrays(row, ["number", "result"])

    return run


def _by_table(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Return the records of each table."""
    parts: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        numbers = batch.column(batch.schema.get_field_index(NUMBER))
        found = pc.unique(numbers).to_pylist()
        for number in found:
            chosen = batch if len(found) == 1 else batch.filter(pc.equal(numbers, number))
            parts.setdefault(number, []).append(chosen)
    for number in sorted(parts):
        yield number, pa.Table.from_batches(parts.pop(number))


def _outcome(task: TableTask, records: pa.Table) -> TaskResult | TaskFailure:
    try:
        return done(task, records)
    except Exception as error:  # noqa: BLE001 - of one table: the others continue, and this one is merged by Spark
        return TaskFailure(f"{type(error).__name__}: {error}".partition("\n")[0])


def done(task: TableTask, records: pa.Table) -> TaskResult:
    """Do a task."""
    decoder, admission = _decoder(task.decoder), task.admission
    keys, values = (_bytes(records[name]) for name in ("key", "value"))
    judged = decoder.judge(keys, values, records[SNAPSHOT].to_numpy(), records["partition"].to_numpy())
    winners = newest(decoder, judged, admitted(judged, admission.guard, admission.floor))
    rows = decoder.columns(judged, winners)
    counted = observed(decoder, judged, winners, rows, admission.safe_horizon)
    earlier = _tombstones(task.tombstones.read, rows.select([*task.keys, POSITION]).schema)
    if earlier is not None:
        rows = not_overtaken(rows, earlier, task.keys)
    if counted.winners:
        task.put.run(rows)
    kept = _keep_tombstones(task, rows, earlier) if counted.tombstones else None
    return TaskResult(counted, bool(counted.winners), kept)


def _bytes(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of bytes in one piece, with offsets of 64 bits where 32 do not reach."""
    if column.nbytes >= _LARGEST_OFFSET:
        column = column.cast(pa.large_binary())
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


_decoders: dict[DecoderPlan, ArrowDecoder] = {}


def _decoder(spec: DecoderPlan) -> ArrowDecoder:
    """Return the decoder of a table; a worker keeps those it has made."""
    if spec not in _decoders:
        if len(_decoders) >= _MOST_DECODERS:
            _decoders.clear()
        _decoders[spec] = ArrowDecoder(spec)
    return _decoders[spec]


# ── tombstones ────────────────────


def _tombstones(folders: Sequence[str], schema: pa.Schema) -> pa.Table | None:
    """Return the tombstones of these folders in the types of `schema`; None if there are none.

    Spark writes a TIMESTAMP as 96 bits without a zone, which is UTC.
    """
    paths = [path for folder in folders for path in sorted(Path(folder).glob("*.parquet"))]
    files = [pq.ParquetFile(path, coerce_int96_timestamp_unit="us") for path in paths]
    tables = [file.read().select(schema.names).cast(schema) for file in files]
    return pa.concat_tables(tables) if tables else None


def _keep_tombstones(task: TableTask, rows: pa.Table, earlier: pa.Table | None) -> tuple[str, int]:
    """Write the deletes that a later batch may need, over those of another attempt; return highest position and number."""
    late = pc.greater(rows[POSITION], task.admission.safe_horizon)
    deletes = rows.filter(pc.and_(rows[DELETED], late)).select([*task.keys, POSITION])
    if task.tombstones.replaces and earlier is not None:
        deletes = pa.concat_tables([deletes, earlier])
    folder = Path(task.tombstones.written)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    pq.write_table(deletes, folder / _FILE)
    return pc.max(deletes[POSITION]).as_py() or "", deletes.num_rows
