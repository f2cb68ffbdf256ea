"""The records of a table in a worker: Arrow batches of Spark enter, decoded rows leave, and memory stays below a limit between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrow.arrow_decoder import ArrowDecoder
from spark_jobs.arrow.commit_times import commit_times_ms
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.arrow.newest import admitted, joined, newest, observed
from spark_jobs.merge.worker_task import NUMBER, SNAPSHOT, Admission

_LARGEST_OFFSET: Final = 2**31 - 1
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


@dataclass(slots=True)
class TableRecords:
    """The records of one table: raw ones, and what earlier ones became. `failure` is why they cannot be merged here."""

    raw: list[pa.RecordBatch] = field(default_factory=list)
    raw_bytes: int = 0
    decoded: list[Decoded] = field(default_factory=list)
    failure: Exception | None = None

    @property
    def bytes(self) -> int:
        """What they take."""
        return self.raw_bytes + sum(int(part.rows.nbytes) for part in self.decoded)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in further ones, unless they cannot be merged here."""
        if self.failure is None:
            self.raw.append(batch)
            self.raw_bytes += batch.nbytes

    def shrink(self, number: int, decode: Decode) -> None:
        """Decode the raw records."""
        if self.raw:
            table = pa.Table.from_batches(self.raw)
            self.raw, self.raw_bytes = [], 0
            try:
                self.decoded.append(decode(number, table))
            except Exception as error:  # noqa: BLE001 - of one table: the others continue
                self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Let all go."""
        self.raw, self.raw_bytes, self.decoded, self.failure = [], 0, [], error

    def newest_rows(self, number: int, decode: Decode, join: Join) -> Decoded:
        """Return the newest rows of all records; what they were made of is let go."""
        self.shrink(number, decode)
        if self.failure is not None:
            raise self.failure
        parts, self.decoded = self.decoded, []
        return parts[0] if len(parts) == 1 else join(number, parts)


def by_table(
    batches: Iterator[pa.RecordBatch], limits: Mapping[int, int | None], decode: Decode
) -> Iterator[tuple[int, TableRecords]]:
    """Return the records of each table.

    Where those of all tables are more bytes than half the limit, the table with most raw ones is decoded. Where they still are more
    than the limit, the largest table is let go.
    """
    found: dict[int, TableRecords] = {}
    for batch in batches:
        numbers = batch.column(batch.schema.get_field_index(NUMBER))
        present = pc.unique(numbers).to_pylist()
        for number in present:
            records = found.setdefault(number, TableRecords())
            records.add(batch if len(present) == 1 else batch.filter(pc.equal(numbers, number)))
            _keep_below(limits[number], found, decode)
    for number in sorted(found):
        yield number, found.pop(number)


def _keep_below(limit: int | None, found: Mapping[int, TableRecords], decode: Decode) -> None:
    if limit is None or sum(one.raw_bytes for one in found.values()) <= limit // 2:
        return
    number = max(found, key=lambda one: found[one].raw_bytes)
    found[number].shrink(number, decode)
    if sum(one.bytes for one in found.values()) > limit:
        max(found.values(), key=lambda one: one.bytes).give_up(TooManyRowsError(TOO_MANY))


def decoded(decoder: ArrowDecoder, admission: Admission, given: list[pa.Table]) -> Decoded:
    """Return the newest rows of some records, which are taken out of `given`: nobody else is to keep them."""
    records = given.pop()
    keys, values = (bytes_of(records[name]) for name in ("key", "value"))
    snapshot, partitions = records[SNAPSHOT].to_numpy(), records["partition"].to_numpy()
    del records  # keys and values are copies in one piece
    judged = decoder.judge(keys, values, snapshot, partitions)
    winners = newest(decoder, judged, admitted(judged, admission.guard, admission.floor))
    rows = decoder.columns(judged, winners)
    counted = observed(decoder, judged, winners, rows, admission.safe_horizon)
    return Decoded(rows, counted, commit_times_ms(decoder, judged, winners).tolist())


def one_of(decoder: ArrowDecoder, admission: Admission, parts: list[Decoded]) -> Decoded:
    """Return what all records of these parts together are decoded to."""
    rows, counted = joined(
        decoder, pa.concat_tables([part.rows for part in parts]), [part.observed for part in parts], admission.safe_horizon
    )
    return Decoded(rows, counted, [time for part in parts for time in part.times_ms])


def bytes_of(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of bytes in one piece, with offsets of 64 bits where 32 do not reach."""
    if column.nbytes >= _LARGEST_OFFSET:
        column = column.cast(pa.large_binary())
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
