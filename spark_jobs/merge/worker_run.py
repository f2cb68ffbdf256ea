"""The work of a task in a Python worker: the records of a table are decoded, judged, and the newest of each key written."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.delay_histogram import DelayHistogram
from schemas.errors import RegistryError, SinkError, UnsupportedTypeError
from spark_jobs.arrow.arrow_decoder import ArrowDecoder, Flags, Judged
from spark_jobs.arrow.arrow_types import UnsupportedBatchError
from spark_jobs.arrow.commit_times import ops_and_times
from spark_jobs.arrow.decoder_plan import DecoderPlan, Observed
from spark_jobs.arrow.newest import not_overtaken
from spark_jobs.arrow.record_leaves import Ints
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION
from spark_jobs.merge.worker_records import (
    TOO_MANY,
    Decode,
    Decoded,
    Join,
    NotDecodedError,
    TooManyRowsError,
    by_table,
    decoded,
    one_of,
    packed,
    parts_by_table,
)
from spark_jobs.merge.worker_task import (
    DECLINED,
    MemberTask,
    MergeTask,
    TableReading,
    TaskFailure,
    TaskResult,
    TombstonePaths,
)
from spark_jobs.sinks.worker_writes import PutDeclinedError, WorkerPut

_BATCH_ROWS: Final = 1 << 16
_LEAVES: Final = "_tm_leaves "
_FILE: Final = "part-00000.parquet"
_MOST_DECODERS: Final = 1000
_Result = TypeVar("_Result")


def outcomes(
    tasks: Mapping[int, MergeTask], batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, TaskResult | TaskFailure]]:
    """Do the tasks of all tables that have records in these batches, and return of each what came of it."""
    for number, found in _decoded(tasks, batches):
        yield number, outcome(tasks[number], found)


def parts(tasks: Mapping[int, MergeTask], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode these records, which are some of those of their tables, and return them as parts."""
    for number, found in _decoded(tasks, batches):
        yield from packed(number, attempted(found))
    pa.default_memory_pool().release_unused()


def outcomes_of_parts(
    tasks: Mapping[int, MergeTask], batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, TaskResult | TaskFailure]]:
    """Do the tasks of all tables whose decoded records are these parts."""
    for number, records in parts_by_table(batches, _limits(tasks)):
        yield number, outcome(tasks[number], partial(records.newest_rows, number, _join(tasks)))


def _decoded(
    tasks: Mapping[int, MergeTask], batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, Callable[[], Decoded]]]:
    """Return of each table the function that decodes its records."""
    for number, records in by_table(batches, _limits(tasks), _decode(tasks)):
        yield number, partial(records.newest_rows, number, _join(tasks))


def _limits(tasks: Mapping[int, MergeTask]) -> dict[int, int | None]:
    return {number: task.put.most_bytes for number, task in tasks.items()}


def _decode(tasks: Mapping[int, MergeTask]) -> Decode:
    def decode(number: int, records: pa.Table) -> Decoded:
        given = [records]
        del records
        return decoded(decoder_of(tasks[number].decoder), tasks[number].admission, given)

    return decode


def _join(tasks: Mapping[int, MergeTask]) -> Join:
    def join(number: int, found: list[Decoded]) -> Decoded:
        return one_of(decoder_of(tasks[number].decoder), tasks[number].admission, found)

    return join


def outcome(task: MergeTask, newest_rows: Callable[[], Decoded]) -> TaskResult | TaskFailure:
    """Do a task, and return its result, or why it was not done."""
    return attempted(lambda: done(task, newest_rows()))


def attempted(work: Callable[[], _Result]) -> _Result | TaskFailure:
    """Do a part of a task, and return its result, or why it was not done."""
    try:
        return work()
    except NotDecodedError as error:
        return error.failure
    except PutDeclinedError as error:
        return TaskFailure(str(error), is_declined=True)
    except TooManyRowsError as error:
        return TaskFailure(str(error))
    except (UnsupportedTypeError, RegistryError) as error:
        return TaskFailure(str(error), is_refused=not isinstance(error, UnsupportedBatchError))
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - of one table: the others continue, and Spark merges this one. Rust's panics, too
        return TaskFailure(f"{type(error).__name__}: {error}".partition("\n")[0])


def done(task: MergeTask, found: Decoded) -> TaskResult:
    """Do a task whose records are decoded."""
    counted = found.observed
    rows, earlier = _not_overtaken(task, found.rows)
    delays, times_ms = None, tuple[int, ...]()
    if counted.winners:
        pa.default_memory_pool().release_unused()  # what the records took, before a MERGE takes as much of the system
        task.put.run(rows)
        if task.put.takes_effect:
            now_s = time.time()
            delays = DelayHistogram.of(now_s - at_ms / 1000 for at_ms in found.times_ms)
        else:
            times_ms = tuple(found.times_ms)
    kept = _keep_tombstones(task, rows, DELETED, earlier) if counted.tombstones else None
    return TaskResult(counted, bool(counted.winners), kept, delays, times_ms, rows.num_rows)


_decoders: dict[DecoderPlan, ArrowDecoder] = {}


def decoder_of(spec: DecoderPlan) -> ArrowDecoder:
    """Return the decoder of a table; a worker keeps those it has made."""
    if spec not in _decoders:
        if len(_decoders) >= _MOST_DECODERS:
            _decoders.clear()
        _decoders[spec] = ArrowDecoder(spec)
    return _decoders[spec]


# ── tables whose rows continue through Spark ────────────────────


def newest_rows(task: MemberTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the newest row of each key that no tombstone of an earlier batch has overtaken."""
    records: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if task.most_bytes is not None and size > task.most_bytes:
            raise TooManyRowsError(TOO_MANY)
        if batch.num_rows:
            records.append(batch)
    if not records:
        _write(Path(task.result), TaskResult(Observed(0, 0, 0, None, None, None, None), wrote=False))
        return
    decoder, given = decoder_of(task.decoder), [pa.Table.from_batches(records)]
    del records
    found = decoded(decoder, task.admission, given, partial(_with_leaves, task, decoder))
    rows, earlier = _not_overtaken(task, found.rows)
    kept = _keep_tombstones(task, rows, _LEAVES, earlier)
    _write(Path(task.result), TaskResult(found.observed, wrote=False, tombstones=kept, times_ms=tuple(found.times_ms)))
    names = [*(name for name, _ in task.decoder.columns), DELETED, POSITION, *((CHANGE, COMMITTED) if task.keeps_change else ())]
    yield from rows.select(names).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def _with_leaves(task: MemberTask, decoder: ArrowDecoder, rows: pa.Table, judged: Judged, counts: Flags, winners: Ints) -> pa.Table:
    """Return rows with `_LEAVES`, whether a row leaves a tombstone, and with the change if the task asks for it."""
    leaves = judged.deleted[winners]
    if task.keeps_changes:
        leaves = leaves | _changed(decoder, judged, counts, winners, rows, task.keys)
    rows = rows.append_column(_LEAVES, pa.array(leaves))
    if task.keeps_change:
        ops, committed = ops_and_times(decoder, judged, winners)
        rows = rows.append_column(CHANGE, ops).append_column(COMMITTED, committed)
    return rows


def _changed(
    decoder: ArrowDecoder, judged: Judged, counts: Flags, winners: Ints, rows: pa.Table, keys: tuple[str, ...]
) -> Flags:
    """Return which winners are changes, or have won over a change of their key in this batch."""
    found: Flags = ~judged.snapshot[winners]
    if found.all() or not (counts & ~judged.snapshot).any():
        return found
    changes = decoder.columns(judged, np.flatnonzero(counts & ~judged.snapshot).astype(np.int64), [*keys])
    names = list(keys)
    numbered = rows.select(names).append_column("n", pa.array(np.arange(rows.num_rows)))
    changed = numbered.join(changes.select(names), names, join_type="left semi", use_threads=False)
    found = found.copy()
    found[changed["n"].to_numpy()] = True
    return found


def put_rows(put: WorkerPut, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put all rows of a target, and yield how many they were."""
    rows = [batch for batch in batches if batch.num_rows]
    count = sum(batch.num_rows for batch in rows)
    if rows:
        table = pa.Table.from_batches(rows)
        del rows
        try:
            put.run(table)
        except PutDeclinedError:
            count = DECLINED
    yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], ["rows"])


def _write(path: Path, result: TaskResult) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{uuid4()}.tmp")
    new.write_bytes(pickle.dumps(result))
    new.replace(path)


# ── tombstones ────────────────────


def _not_overtaken(task: TableReading, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that no tombstone of an earlier batch has overtaken, and these tombstones."""
    earlier = tombstones_of(task.tombstones, rows.select([*task.keys, POSITION]).schema)
    return (rows if earlier is None else not_overtaken(rows, earlier, task.keys)), earlier


def tombstones_of(paths: TombstonePaths, schema: pa.Schema) -> pa.Table | None:
    """Return the tombstones of earlier batches in the types of `schema`; None if there are none. `SinkError` if some are gone.

    Spark writes a TIMESTAMP as 96 bits without a zone, which is UTC.
    """
    files = [
        pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        for folder in paths.read
        for path in sorted(Path(folder).glob("*.parquet"))
    ]
    tables = [file.read().select(schema.names).cast(schema) for file in files]
    found = sum(table.num_rows for table in tables)
    if found < paths.count:
        message = f"{paths.count} tombstones were written to {', '.join(paths.read)}, and {found} are there"
        raise SinkError(message)
    return pa.concat_tables(tables) if tables else None


def _keep_tombstones(task: TableReading, rows: pa.Table, leaves: str, earlier: pa.Table | None) -> tuple[str, int] | None:
    """Write the keys and positions of rows that a later batch may need, in place of those of another attempt.

    `leaves` is the column that says which rows leave a tombstone. Return highest position and number; None if none is to be kept.
    The worker of a job that was killed may do this when the next job counts on its files: never is less there.
    """
    late = pc.greater(rows[POSITION], task.admission.safe_horizon)
    kept, paths = rows.filter(pc.and_(rows[leaves], late)).select([*task.keys, POSITION]), task.tombstones
    if not kept.num_rows and not (paths.replaces and earlier is not None):
        return None
    if paths.replaces and earlier is not None:
        kept = pa.concat_tables([kept, earlier])
    folder = Path(paths.written)
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{uuid4()}.tmp"
    pq.write_table(kept, new)
    new.replace(folder / _FILE)
    for other in folder.glob("*.parquet"):
        if other.name != _FILE:
            other.unlink(missing_ok=True)
    return pc.max(kept[POSITION]).as_py() or "", kept.num_rows
