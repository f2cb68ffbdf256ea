"""The work of a `MemberTask` in a Python worker, and that of the put which follows it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrow.arrow_decoder import ArrowDecoder, Flags, Ints, Judged
from spark_jobs.arrow.commit_times import commit_times_ms, ops_and_times
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.arrow.newest import admitted, newest, not_overtaken, observed
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION
from spark_jobs.kafka.slices import SNAPSHOT
from spark_jobs.merge.worker_records import TOO_MANY, TooManyRowsError, bytes_of
from spark_jobs.merge.worker_run import decoder_of, tombstones_of, write_tombstones
from spark_jobs.merge.worker_task import DECLINED, MemberResult, MemberTask
from spark_jobs.sinks.contract import PutDeclinedError, WorkerPut

_BATCH_ROWS: Final = 1 << 16
_LEAVES: Final = "_tm_leaves "


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
        _write(Path(task.result), MemberResult(Observed(0, 0, 0, None, None, None, None), ()))
        return
    table = pa.Table.from_batches(records)
    del records
    decoder = decoder_of(task.decoder)
    keys, values = (bytes_of(table[name]) for name in ("key", "value"))
    snapshot, partitions = table[SNAPSHOT].to_numpy(), table["partition"].to_numpy()
    del table
    judged = decoder.judge(keys, values, snapshot, partitions)
    counts = admitted(judged, task.admission.guard, task.admission.floor)
    winners = newest(decoder, judged, counts)
    rows = decoder.columns(judged, winners)
    counted = observed(decoder, judged, winners, rows, task.admission.safe_horizon)
    times = tuple(commit_times_ms(decoder, judged, winners).tolist())
    leaves = judged.deleted[winners]
    if task.keeps_changes:
        leaves = leaves | _changed(decoder, judged, counts, winners, rows, task.keys)
    rows = rows.append_column(_LEAVES, pa.array(leaves))
    if task.keeps_change:
        ops, committed = ops_and_times(decoder, judged, winners)
        rows = rows.append_column(CHANGE, ops).append_column(COMMITTED, committed)
    earlier = tombstones_of(task.tombstones, rows.select([*task.keys, POSITION]).schema)
    if earlier is not None:
        rows = not_overtaken(rows, earlier, task.keys)
    kept = _keep_tombstones(task, rows, earlier)
    _write(Path(task.result), MemberResult(counted, times, kept))
    names = [*(name for name, _ in task.decoder.columns), DELETED, POSITION, *((CHANGE, COMMITTED) if task.keeps_change else ())]
    yield from rows.select(names).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


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


def _keep_tombstones(task: MemberTask, rows: pa.Table, earlier: pa.Table | None) -> tuple[str, int] | None:
    late = pc.and_(pc.greater(rows[POSITION], task.admission.safe_horizon), rows[_LEAVES])
    kept = rows.filter(late).select([*task.keys, POSITION])
    if not kept.num_rows and not (task.tombstones.replaces and earlier is not None):
        return None
    return write_tombstones(task.tombstones, kept, earlier)


def _write(path: Path, result: MemberResult) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{uuid4()}.tmp")
    new.write_bytes(pickle.dumps(result))
    new.replace(path)
