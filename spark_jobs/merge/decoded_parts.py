"""Decoded records of tables on their way between two workers: parts of a table enter, the newest rows of each table leave.

Many records of a table are decoded by several workers, and one of them writes the rows: a table has one commit for each batch.
A part is a row of `PARTS`: its rows are a compressed stream of Arrow, small enough for the JVM that carries it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.merge.worker_records import TOO_MANY, Decoded, TableRecords, TooManyRowsError
from spark_jobs.merge.worker_task import PARTS, TaskFailure

_PART_ROWS: Final = 1 << 16
_PART_BYTES: Final = 16 * 1024 * 1024
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_NAMES: Final = [field.partition(" ")[0] for field in PARTS.split(", ")]


class NotDecodedError(Exception):
    """Records of a table that a worker could not decode."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def packed(number: int, found: Decoded | TaskFailure) -> Iterator[pa.RecordBatch]:
    """Yield decoded records as parts, or the reason why there are none."""
    if isinstance(found, TaskFailure):
        yield _part(number, pickle.dumps(found), pa.py_buffer(b""))
        return
    rows, counted, times = found.rows, found.observed, found.times_ms
    width = max(1, rows.nbytes // max(1, rows.num_rows))
    step = max(1, min(_PART_ROWS, _PART_BYTES // width))
    for first in range(0, max(1, rows.num_rows), step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
            stream.write_table(rows.slice(first, step))
        yield _part(number, pickle.dumps((counted, times)), sink.getvalue())
        counted, times = replace(counted, bad=0), []


def parts_by_table(batches: Iterator[pa.RecordBatch], limits: Mapping[int, int | None]) -> Iterator[tuple[int, TableRecords]]:
    """Return the decoded records of each table. Where all are more bytes than the limit, the largest table is let go."""
    found: dict[int, TableRecords] = {}
    for batch in batches:
        for number, summary, rows in zip(*(batch.column(name) for name in _NAMES), strict=True):
            table = number.as_py()
            records = found.setdefault(table, TableRecords())
            if records.failure is None:
                _add(records, pickle.loads(summary.as_py()), rows)  # noqa: S301 - our own worker's
            limit = limits[table]
            if limit is not None and sum(one.bytes for one in found.values()) > limit:
                max(found.values(), key=lambda one: one.bytes).give_up(TooManyRowsError(TOO_MANY))
    for number in sorted(found):
        yield number, found.pop(number)


def _add(records: TableRecords, summary: object, rows: pa.BinaryScalar) -> None:
    if isinstance(summary, TaskFailure):
        records.give_up(NotDecodedError(summary))
        return
    assert isinstance(summary, tuple)
    with pa.ipc.open_stream(rows.as_buffer()) as stream:
        records.keep(Decoded(stream.read_all(), *summary))


def _part(number: int, summary: bytes, rows: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, rows.size], np.int32))
    blob = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, rows])
    return pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), pa.array([summary], pa.binary()), blob], _NAMES)
