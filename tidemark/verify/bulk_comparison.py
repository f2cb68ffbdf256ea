"""The bulk comparison: counts and sums of row hashes per range of keys, then the keys of ranges that differ.

Two partitions of the keys are known. `KeyRanges`, for a primary key of one integer column: the source is read
in key order and cut into ranges of even size. `KeyBuckets`, for every other key: by the hash of the key, for
the server's order of keys (collations) is not ours. Both sides are streamed; memory is one number of rows
and one sum per range, and in the second pass the keys of the ranges that differ.

The two sides are read at two moments and may both move: what comes out are *suspects*, see `judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.verify.column_rule import ColumnRule
from tidemark.verify.digest import Hashes, hash_rows
from tidemark.verify.expected_rows import ExpectedRows
from tidemark.verify.sink_reader import KeySpan, TargetRows
from tidemark.verify.source import Key, ReadTable

_RANGE_ROWS: Final = 256
_MOST_RANGES: Final = 1 << 20
_FEWEST_BUCKETS: Final = 1 << 10
_KEY_SALT: Final = 1_000
_MOST_SUSPECTS: Final = 100_000
_MOST_SPANS: Final = 200
_SCAN_SHARE: Final = 0.25

Block = list[pa.Array]
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A pair of tables to compare: a rule per column of the source, and the places of the key's columns."""

    table: ReadTable
    rules: tuple[ColumnRule, ...]
    key_indexes: tuple[int, ...]

    @property
    def key_rules(self) -> tuple[ColumnRule, ...]:
        """The rules of the key's columns, in key order."""
        return tuple(self.rules[index] for index in self.key_indexes)

    @property
    def ranged(self) -> bool:
        """Whether the keys can be cut into ranges: one integer column that is the primary key."""
        single = len(self.key_indexes) == 1 and self.table.keyed_by_primary
        return single and self.key_rules[0].ordered and pa.types.is_int64(self.key_rules[0].common)

    def keys(self, block: Block) -> Iterator[Key]:
        """Return the key of each row of a block."""
        return zip(*(block[index].to_pylist() for index in self.key_indexes), strict=True)

    def key_columns(self, keys: Sequence[Key]) -> Block:
        """Return keys as columns of common type."""
        return [
            pa.array([key[index] for key in keys], type=rule.common)
            for index, rule in enumerate(self.key_rules)
        ]

    def hash_keys(self, columns: Block) -> Hashes:
        """Return a hash per key."""
        return hash_rows(columns, _KEY_SALT)


@dataclass(slots=True)
class BulkResult:
    """Rows of both sides, number of ranges, and the keys that differ. `cut_short`: there are more of them."""

    source_rows: int
    sink_rows: int
    ranges: int
    suspects: list[Key] = field(default_factory=list)
    cut_short: bool = False


class KeyPartition(Protocol):
    """Which part of the keys a row belongs to."""

    size: int

    def parts_of(self, block: Block) -> NDArray[np.int64]:
        """Return the part of each row of a block."""


class KeyRanges:
    """Ranges of an integer key; range i begins at `bounds[i]`, the first one is open below."""

    def __init__(self, plan: TablePlan, bounds: NDArray[np.int64]) -> None:
        self._key_index = plan.key_indexes[0]
        self.bounds = bounds
        self.size = len(bounds)

    def parts_of(self, block: Block) -> NDArray[np.int64]:
        """Return the part of each row of a block."""
        keys = block[self._key_index].to_numpy(zero_copy_only=False)
        parts: NDArray[np.int64] = np.maximum(np.searchsorted(self.bounds, keys, side="right") - 1, 0)
        return parts

    def spans(self, parts: NDArray[np.int64]) -> list[tuple[int | None, int | None]]:
        """Return the half-open spans of keys that the parts cover, neighbours joined."""
        spans: list[tuple[int | None, int | None]] = []
        for run in np.split(parts, np.nonzero(np.diff(parts) != 1)[0] + 1):
            first = None if run[0] == 0 else int(self.bounds[run[0]])
            end = None if run[-1] + 1 == self.size else int(self.bounds[run[-1] + 1])
            spans.append((first, end))
        return spans


class KeyBuckets:
    """Parts by the hash of the key; `size` is a power of two."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        wanted = max(plan.table.estimate // 8, _FEWEST_BUCKETS)
        self.size = min(1 << (wanted - 1).bit_length(), _MOST_RANGES)

    def parts_of(self, block: Block) -> NDArray[np.int64]:
        """Return the part of each row of a block."""
        hashes = self._plan.hash_keys([block[index] for index in self._plan.key_indexes])
        return (hashes & np.uint64(self.size - 1)).astype(np.int64)


class _Sums:
    """Rows and sum of hashes per part."""

    def __init__(self, size: int) -> None:
        self.counts = np.zeros(size, dtype=np.int64)
        self.sums = np.zeros(size, dtype=np.uint64)

    def add(self, parts: NDArray[np.int64], hashes: Hashes) -> None:
        np.add.at(self.counts, parts, 1)
        np.add.at(self.sums, parts, hashes)


def compare(plan: TablePlan, source: ExpectedRows, sink: TargetRows, on_progress: Progress) -> BulkResult:
    """Compare all rows in bulk; the source is read first, so that the sink's reading is the newer one."""
    partition, ours = _sum_source(plan, source, on_progress)
    theirs = _Sums(partition.size)
    for block in _watched(sink.read_all(plan.rules), "sink", on_progress):
        theirs.add(partition.parts_of(block), hash_rows(block))
    differing = np.nonzero((ours.counts != theirs.counts) | (ours.sums != theirs.sums))[0]
    result = BulkResult(int(ours.counts.sum()), int(theirs.counts.sum()), partition.size)
    if len(differing):
        _find_suspects(plan, source, sink, partition, differing, (ours, theirs), result)
    return result


def _sum_source(plan: TablePlan, source: ExpectedRows, on_progress: Progress) -> tuple[KeyPartition, _Sums]:
    if plan.ranged:
        return _sum_ranges(plan, source, on_progress)
    buckets = KeyBuckets(plan)
    sums = _Sums(buckets.size)
    for block in _watched(source.read_all(in_key_order=False), "source", on_progress):
        sums.add(buckets.parts_of(block), hash_rows(block))
    return buckets, sums


def _sum_ranges(plan: TablePlan, source: ExpectedRows, on_progress: Progress) -> tuple[KeyRanges, _Sums]:
    """Read in key order; every `step` rows a new range begins."""
    step = max(_RANGE_ROWS, plan.table.estimate // _MOST_RANGES)
    bounds: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []
    sums: list[Hashes] = []
    seen = 0
    for block in _watched(source.read_all(in_key_order=True), "source", on_progress):
        keys = block[plan.key_indexes[0]].to_numpy(zero_copy_only=False)
        hashes = hash_rows(block)
        first = -seen % step  # rows of this block that still belong to the last range
        if first:
            counts[-1][-1] += min(first, len(keys))
            sums[-1][-1:] += hashes[:first].sum(dtype=np.uint64)  # an array's overflow is silent
        if first < len(keys):
            starts = np.arange(first, len(keys), step)
            bounds.append(keys[starts])
            counts.append(np.diff(np.append(starts, len(keys))))
            sums.append(np.add.reduceat(hashes, starts))
        seen += len(keys)
    totals = _Sums(max(1, sum(len(part) for part in bounds)))
    if bounds:
        totals.counts, totals.sums = np.concatenate(counts), np.concatenate(sums)
    none = np.zeros(1, dtype=np.int64)
    return KeyRanges(plan, np.concatenate(bounds) if bounds else none), totals


def _find_suspects(
    plan: TablePlan,
    source: ExpectedRows,
    sink: TargetRows,
    partition: KeyPartition,
    differing: NDArray[np.int64],
    sums: tuple[_Sums, _Sums],
    result: BulkResult,
) -> None:
    """Read the rows of differing parts again, some parts at a time, and match them by key: these are the rows that count."""
    per_part = max(1, (result.source_rows + result.sink_rows) // partition.size)
    at_once = max(1, 10 * _MOST_SUSPECTS // per_part)
    for first in range(0, len(differing), at_once):
        parts = differing[first : first + at_once]
        sides = _read_parts(plan, source, sink, partition, parts)
        result.source_rows += len(sides[0]) - int(sums[0].counts[parts].sum())
        result.sink_rows += len(sides[1]) - int(sums[1].counts[parts].sum())
        found = _mismatched(*sides)
        room = _MOST_SUSPECTS - len(result.suspects)
        result.suspects.extend(found[:room])
        if len(found) > room:
            result.cut_short = True
            return


def _read_parts(
    plan: TablePlan, source: ExpectedRows, sink: TargetRows, partition: KeyPartition, parts: NDArray[np.int64]
) -> tuple[dict[Key, int], list[tuple[Key, int]]]:
    wanted = np.zeros(partition.size, dtype=np.bool_)
    wanted[parts] = True
    blocks: Iterable[Block]
    near: KeySpan | None = None
    is_near = len(parts) < _SCAN_SHARE * partition.size and not plan.table.is_partitioned
    if isinstance(partition, KeyRanges) and is_near:
        spans = partition.spans(parts)
        near = _between(plan.key_rules[0], spans)
        blocks = source.read_between(_few(spans))
    else:
        blocks = source.read_all(in_key_order=False)
    ours = dict(_hashed(plan, partition, wanted, blocks))
    theirs = list(_hashed(plan, partition, wanted, sink.read_all(plan.rules, near)))
    return ours, theirs


def _few(spans: list[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """At most so many statements: beyond that neighbours are joined over the gap between them."""
    size = -(-len(spans) // _MOST_SPANS)
    return [(spans[at][0], spans[min(at + size, len(spans)) - 1][1]) for at in range(0, len(spans), size)]


def _between(key_rule: ColumnRule, spans: Sequence[tuple[int | None, int | None]]) -> KeySpan | None:
    """Return the span of keys from the first to the last one: lets the sink skip others."""
    return None if key_rule.sink_name is None else KeySpan(key_rule.sink_name, spans[0][0], spans[-1][1])


def _hashed(
    plan: TablePlan, partition: KeyPartition, wanted: NDArray[np.bool_], blocks: Iterable[Block]
) -> Iterator[tuple[Key, int]]:
    """Key and row hash of the rows that lie in wanted parts."""
    for block in blocks:
        chosen = np.nonzero(wanted[partition.parts_of(block)])[0]
        if len(chosen):
            rows = [column.take(pa.array(chosen)) for column in block]
            yield from zip(plan.keys(rows), hash_rows(rows).tolist(), strict=True)


def _mismatched(ours: dict[Key, int], theirs: list[tuple[Key, int]]) -> list[Key]:
    """Return keys on one side only, with different hashes, or twice in the sink."""
    times = Counter(key for key, _ in theirs)
    other = dict(theirs)
    found = [key for key, value in ours.items() if other.get(key) != value or times[key] > 1]
    found.extend(key for key in other if key not in ours)
    return found


def _watched(blocks: Iterator[Block], side: str, on_progress: Progress) -> Iterator[Block]:
    rows = 0
    for block in blocks:
        yield block
        rows += len(block[0])
        on_progress(side, rows)
