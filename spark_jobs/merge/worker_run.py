"""The work of a task in a Python worker: the records of a table are decoded, judged, and the newest of each key written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.delay_histogram import DelayHistogram
from schemas.errors import RegistryError, UnsupportedTypeError
from spark_jobs.arrow.arrow_decoder import ArrowDecoder
from spark_jobs.arrow.arrow_types import UnsupportedBatchError
from spark_jobs.arrow.commit_times import commit_times_ms
from spark_jobs.arrow.decoder_plan import DecoderPlan
from spark_jobs.arrow.newest import admitted, newest, not_overtaken, observed
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.merge.worker_task import NUMBER, SNAPSHOT, TableTask, TaskFailure, TaskResult

_FILE: Final = "part-00000.parquet"
_MOST_DECODERS: Final = 1000
_LARGEST_OFFSET: Final = 2**31 - 1


def by_table(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
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


def outcome(task: TableTask, records: pa.Table) -> TaskResult | TaskFailure:
    """Do a task, and return its result, or why it was not done."""
    try:
        return done(task, records)
    except (UnsupportedTypeError, RegistryError) as error:
        return TaskFailure(str(error), is_refused=not isinstance(error, UnsupportedBatchError))
    except Exception as error:  # noqa: BLE001 - of one table: the others continue, and this one is merged by Spark
        return TaskFailure(f"{type(error).__name__}: {error}".partition("\n")[0])


def done(task: TableTask, records: pa.Table) -> TaskResult:
    """Do a task."""
    decoder, admission = decoder_of(task.decoder), task.admission
    keys, values = (_bytes(records[name]) for name in ("key", "value"))
    judged = decoder.judge(keys, values, records[SNAPSHOT].to_numpy(), records["partition"].to_numpy())
    winners = newest(decoder, judged, admitted(judged, admission.guard, admission.floor))
    rows = decoder.columns(judged, winners)
    counted = observed(decoder, judged, winners, rows, admission.safe_horizon)
    earlier = tombstones_of(task.tombstones.read, rows.select([*task.keys, POSITION]).schema)
    if earlier is not None:
        rows = not_overtaken(rows, earlier, task.keys)
    delays = None
    if counted.winners:
        task.put.run(rows)
        now_s = time.time()
        delays = DelayHistogram.of(now_s - at_ms / 1000 for at_ms in commit_times_ms(decoder, judged, winners).tolist())
    kept = _keep_tombstones(task, rows, earlier) if counted.tombstones else None
    return TaskResult(counted, bool(counted.winners), kept, delays)


def _bytes(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of bytes in one piece, with offsets of 64 bits where 32 do not reach."""
    if column.nbytes >= _LARGEST_OFFSET:
        column = column.cast(pa.large_binary())
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


_decoders: dict[DecoderPlan, ArrowDecoder] = {}


def decoder_of(spec: DecoderPlan) -> ArrowDecoder:
    """Return the decoder of a table; a worker keeps those it has made."""
    if spec not in _decoders:
        if len(_decoders) >= _MOST_DECODERS:
            _decoders.clear()
        _decoders[spec] = ArrowDecoder(spec)
    return _decoders[spec]


# ── tombstones ────────────────────


def tombstones_of(folders: Sequence[str], schema: pa.Schema) -> pa.Table | None:
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
