"""The records of a table in a worker: Arrow batches enter, decoded rows leave, and memory stays below a limit between.

Records are decoded on a thread of their own while the next ones come: kernels and Arrow do not hold Python's lock. librdkafka, or
Spark's JVM, reads them from Kafka on another core.

Many records of a table are decoded by several workers, and one of them writes the rows: a table has one commit for each batch. A
part on its way to that worker is a row of `PARTS`: a compressed stream of Arrow, small enough for the JVM that carries it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkaio.slices import NUMBER, SNAPSHOT
from spark_jobs.arrow.arrow_decoder import ArrowDecoder, Flags, Judged
from spark_jobs.arrow.commit_times import commit_times_ms
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.arrow.newest import admitted, joined, newest, observed
from spark_jobs.arrow.record_leaves import Ints
from spark_jobs.merge.worker_task import PARTS, Admission, TaskFailure

_PART_ROWS: Final = 1 << 16
"""So many records of a table are decoded together, while further ones come."""
_MOST_WAITING: Final = 3
"""So many parts are decoded, or wait for it: their records take memory."""
_LARGEST_OFFSET: Final = 2**31 - 1
_PACKED_ROWS: Final = 1 << 16
_PACKED_BYTES: Final = 16 * 1024 * 1024
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_NAMES: Final = [field.partition(" ")[0] for field in PARTS.split(", ")]
TOO_MANY: Final = "its rows take more memory than sinks.merge_memory_bytes allows"


class TooManyRowsError(Exception):
    """A table whose newest rows do not fit into the memory of a worker."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The newest row of each key of some records, what was counted of them, and when some of them were committed."""

    rows: pa.Table
    observed: Observed
    times_ms: list[int]


Decode = Callable[[int, pa.Table], Decoded]
Join = Callable[[int, list[Decoded]], Decoded]
More = Callable[[pa.Table, Judged, Flags, Ints], pa.Table]


@dataclass(slots=True)
class _Part:
    """Records that are being decoded, and what they take until they are."""

    decoded: Future[Decoded]
    raw_bytes: int


class Decoding:
    """Decodes parts of tables one after the other on a thread, until it is closed."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._pool = ThreadPoolExecutor(1, "decoding")
        self._waiting: list[_Part] = []

    def close(self) -> None:
        """Wait for the part that is being decoded, and let the others go."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def part(self, number: int, records: list[pa.RecordBatch], raw_bytes: int) -> _Part:
        """Return records of a table as a part; wait first where too many parts are not decoded."""
        self._waiting = [one for one in self._waiting if not one.decoded.done()]
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.pop(0).decoded.exception()
        given = [pa.Table.from_batches(records)]
        part = _Part(self._pool.submit(self._taken, number, given), raw_bytes)
        self._waiting.append(part)
        return part

    def _taken(self, number: int, given: list[pa.Table]) -> Decoded:
        return self._decode(number, given.pop())


@dataclass(slots=True)
class BufferedRecords:
    """The records of one table: raw ones, those being decoded, and what earlier ones became.

    `failure` is why they cannot be merged here.
    """

    raw: list[pa.RecordBatch] = field(default_factory=list)
    raw_rows: int = 0
    raw_bytes: int = 0
    parts: list[_Part] = field(default_factory=list)
    decoded: list[Decoded] = field(default_factory=list)
    decoded_bytes: int = 0
    failure: Exception | None = None

    @property
    def undecoded_bytes(self) -> int:
        """What records take that are not decoded yet."""
        return self.raw_bytes + sum(part.raw_bytes for part in self.parts)

    @property
    def bytes(self) -> int:
        """What they take."""
        return self.undecoded_bytes + self.decoded_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in further ones, unless they cannot be merged here."""
        if self.failure is None:
            self.raw.append(batch)
            self.raw_rows += batch.num_rows
            self.raw_bytes += batch.nbytes

    def keep(self, part: Decoded) -> None:
        """Take over what some records became."""
        self.decoded.append(part)
        self.decoded_bytes += int(part.rows.nbytes)

    def begin(self, number: int, decoding: Decoding) -> None:
        """Have the raw records decoded."""
        if self.raw:
            raw, size = self.raw, self.raw_bytes
            self.raw, self.raw_rows, self.raw_bytes = [], 0, 0
            self.parts.append(decoding.part(number, raw, size))

    def settle(self, *, waits: bool = True) -> None:
        """Take over what has been decoded; with `waits` wait for all of it."""
        while self.parts and (waits or self.parts[0].decoded.done()):
            part = self.parts.pop(0).decoded
            error = part.exception()
            if isinstance(error, Exception):
                self.give_up(error)  # the other tables continue
            else:
                self.keep(part.result())

    def give_up(self, error: Exception) -> None:
        """Let all go."""
        self.raw, self.raw_rows, self.raw_bytes, self.parts = [], 0, 0, []
        self.decoded, self.decoded_bytes, self.failure = [], 0, error

    def newest_rows(self, number: int, join: Join) -> Decoded:
        """Return the newest rows of all records, which were given to be decoded; what they were made of is let go."""
        self.settle()
        if self.failure is not None:
            raise self.failure
        parts, self.decoded = self.decoded, []
        return parts[0] if len(parts) == 1 else join(number, parts)


def by_table(
    batches: Iterator[pa.RecordBatch], limits: Mapping[int, int | None], decode: Decode
) -> Iterator[tuple[int, BufferedRecords]]:
    """Return the records of each table, while those of the next table are decoded.

    Where those of all tables are more bytes than half the limit, the table with most raw ones is decoded before others come. Where
    they still are more than the limit, the largest table is let go.
    """
    found: dict[int, BufferedRecords] = {}
    decoding = Decoding(decode)
    try:
        for batch in batches:
            numbers = batch.column(batch.schema.get_field_index(NUMBER))
            present = pc.unique(numbers).to_pylist()
            for number in present:
                records = found.setdefault(number, BufferedRecords())
                records.add(batch if len(present) == 1 else batch.filter(pc.equal(numbers, number)))
                if records.raw_rows >= _PART_ROWS:
                    records.begin(number, decoding)
                records.settle(waits=False)
                _keep_below(limits[number], found, decoding)
        ordered = sorted(found)
        for index, number in enumerate(ordered):
            for ahead in ordered[index : index + 2]:
                found[ahead].begin(ahead, decoding)
            yield number, found.pop(number)
    finally:
        decoding.close()


def _keep_below(limit: int | None, found: Mapping[int, BufferedRecords], decoding: Decoding) -> None:
    if limit is None:
        return
    if sum(one.undecoded_bytes for one in found.values()) > limit // 2:
        number = max(found, key=lambda one: found[one].raw_bytes)
        found[number].begin(number, decoding)
        for one in found.values():
            one.settle()
    if sum(one.bytes for one in found.values()) > limit:
        max(found.values(), key=lambda one: one.bytes).give_up(TooManyRowsError(TOO_MANY))


def decoded(decoder: ArrowDecoder, admission: Admission, given: list[pa.Table], more: More = lambda rows, *_: rows) -> Decoded:
    """Return the newest rows of some records, which are taken out of `given`: nobody else is to keep them.

    `more` adds columns to them, by the judged records, the flags of those that count, and the numbers of the newest.
    """
    records = given.pop()
    keys, values = (_bytes_of(records[name]) for name in ("key", "value"))
    snapshot, partitions = records[SNAPSHOT].to_numpy(), records["partition"].to_numpy()
    del records  # keys and values are copies in one piece
    judged = decoder.judge(keys, values, snapshot, partitions)
    counts = admitted(judged, admission.guard, admission.floor)
    winners = newest(decoder, judged, counts)
    rows = decoder.columns(judged, winners)
    counted = observed(decoder, judged, winners, rows, admission.safe_horizon)
    return Decoded(more(rows, judged, counts, winners), counted, commit_times_ms(decoder, judged, winners).tolist())


def one_of(decoder: ArrowDecoder, admission: Admission, parts: list[Decoded]) -> Decoded:
    """Return what all records of these parts together are decoded to."""
    rows, counted = joined(
        decoder, pa.concat_tables([part.rows for part in parts]), [part.observed for part in parts], admission.safe_horizon
    )
    return Decoded(rows, counted, [time for part in parts for time in part.times_ms])


def _bytes_of(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of bytes in one piece, with offsets of 64 bits where 32 do not reach."""
    if column.nbytes >= _LARGEST_OFFSET:
        column = column.cast(pa.large_binary())
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


# ── parts on their way to the worker that writes ────────────────────


class NotDecodedError(Exception):
    """Records of a table that a worker could not decode."""

    def __init__(self, failure: TaskFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def packed(number: int, found: Decoded | TaskFailure) -> Iterator[pa.RecordBatch]:
    """Yield decoded records as parts, or the reason why there are none."""
    if isinstance(found, TaskFailure):
        yield _packed_part(number, pickle.dumps(found), pa.py_buffer(b""))
        return
    rows, counted, times = found.rows, found.observed, found.times_ms
    width = max(1, rows.nbytes // max(1, rows.num_rows))
    step = max(1, min(_PACKED_ROWS, _PACKED_BYTES // width))
    for first in range(0, max(1, rows.num_rows), step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
            stream.write_table(rows.slice(first, step))
        yield _packed_part(number, pickle.dumps((counted, times)), sink.getvalue())
        counted, times = replace(counted, bad=0), []


def parts_by_table(batches: Iterator[pa.RecordBatch], limits: Mapping[int, int | None]) -> Iterator[tuple[int, BufferedRecords]]:
    """Return the decoded records of each table. Where all are more bytes than the limit, the largest table is let go."""
    found: dict[int, BufferedRecords] = {}
    for batch in batches:
        for number, summary, rows in zip(*(batch.column(name) for name in _NAMES), strict=True):
            table = number.as_py()
            records = found.setdefault(table, BufferedRecords())
            if records.failure is None:
                _add(records, pickle.loads(summary.as_py()), rows)  # noqa: S301 - our own worker's
            limit = limits[table]
            if limit is not None and sum(one.bytes for one in found.values()) > limit:
                max(found.values(), key=lambda one: one.bytes).give_up(TooManyRowsError(TOO_MANY))
    for number in sorted(found):
        yield number, found.pop(number)


def _add(records: BufferedRecords, summary: object, rows: pa.BinaryScalar) -> None:
    if isinstance(summary, TaskFailure):
        records.give_up(NotDecodedError(summary))
        return
    assert isinstance(summary, tuple)
    with pa.ipc.open_stream(rows.as_buffer()) as stream:
        records.keep(Decoded(stream.read_all(), *summary))


def _packed_part(number: int, summary: bytes, rows: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, rows.size], np.int32))
    blob = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, rows])
    return pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), pa.array([summary], pa.binary()), blob], _NAMES)
