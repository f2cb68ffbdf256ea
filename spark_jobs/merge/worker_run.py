"""The work of a task in a Python worker: the records of a table are decoded, judged, and the newest of each key written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
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
from spark_jobs.arrow.decoder_plan import DecoderPlan, Observed
from spark_jobs.arrow.newest import admitted, newest, not_overtaken, observed
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.merge.worker_task import NUMBER, SNAPSHOT, TableTask, TaskFailure, TaskResult
from spark_jobs.sinks.contract import PutDeclinedError

_FILE: Final = "part-00000.parquet"
_MOST_DECODERS: Final = 1000
_LET_GO: Final = 0
_LARGEST_OFFSET: Final = 2**31 - 1


def by_table(
    batches: Iterator[pa.RecordBatch], limits: Mapping[int, int | None]
) -> Iterator[tuple[int, list[pa.Table]]]:
    """Return the records of each table, in a list of one; in none of one whose records were let go.

    Where all records together are more bytes than the limit of a table that comes, the table with the most is let go.
    """
    parts: dict[int, list[pa.RecordBatch]] = {}
    sizes: dict[int, int] = {}
    for batch in batches:
        numbers = batch.column(batch.schema.get_field_index(NUMBER))
        found = pc.unique(numbers).to_pylist()
        for number in found:
            if sizes.get(number) == _LET_GO:
                continue
            chosen = batch if len(found) == 1 else batch.filter(pc.equal(numbers, number))
            parts.setdefault(number, []).append(chosen)
            sizes[number] = sizes.get(number, 0) + chosen.nbytes
            limit = limits[number]
            if limit is not None and sum(sizes.values()) > limit:
                largest = max(sizes, key=lambda one: sizes[one])
                sizes[largest] = _LET_GO
                del parts[largest]
    for number in sorted(sizes):
        yield number, [] if sizes[number] == _LET_GO else [pa.Table.from_batches(parts.pop(number))]


def outcome(task: TableTask, given: list[pa.Table]) -> TaskResult | TaskFailure:
    """Do a task, and return its result, or why it was not done.

    The records are taken out of `given`, so that nobody else keeps them. Without any they were too many for a worker's memory.
    """
    if not given:
        return TaskFailure("its records take more memory than sinks.merge_memory_bytes allows")
    try:
        return done(task, given)
    except PutDeclinedError as error:
        return TaskFailure(str(error), is_declined=True)
    except (UnsupportedTypeError, RegistryError) as error:
        return TaskFailure(str(error), is_refused=not isinstance(error, UnsupportedBatchError))
    except Exception as error:  # noqa: BLE001 - of one table: the others continue, and this one is merged by Spark
        return TaskFailure(f"{type(error).__name__}: {error}".partition("\n")[0])


def done(task: TableTask, given: list[pa.Table]) -> TaskResult:
    """Do a task."""
    rows, counted, times_ms = _decoded(task, given)
    earlier = _tombstones(task.tombstones.read, rows.select([*task.keys, POSITION]).schema)
    if earlier is not None:
        rows = not_overtaken(rows, earlier, task.keys)
    delays = None
    if counted.winners:
        task.put.run(rows)
        now_s = time.time()
        delays = DelayHistogram.of(now_s - at_ms / 1000 for at_ms in times_ms)
    kept = _keep_tombstones(task, rows, earlier) if counted.tombstones else None
    return TaskResult(counted, bool(counted.winners), kept, delays)


def _decoded(task: TableTask, given: list[pa.Table]) -> tuple[pa.Table, Observed, list[int]]:
    """Return the newest row of each key, what was counted, and when some were committed. The records are gone afterwards."""
    decoder, admission = _decoder(task.decoder), task.admission
    records = given.pop()
    keys, values = (_bytes(records[name]) for name in ("key", "value"))
    snapshot, partitions = records[SNAPSHOT].to_numpy(), records["partition"].to_numpy()
    del records  # keys and values are copies in one piece
    judged = decoder.judge(keys, values, snapshot, partitions)
    winners = newest(decoder, judged, admitted(judged, admission.guard, admission.floor))
    rows = decoder.columns(judged, winners)
    counted = observed(decoder, judged, winners, rows, admission.safe_horizon)
    return rows, counted, commit_times_ms(decoder, judged, winners).tolist()


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
