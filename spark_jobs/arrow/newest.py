"""The merge rule on judged records (`merge.rule` on frames): guard and floor, the newest record of each key, tombstones, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.arrow import key_kernels
from spark_jobs.arrow.arrow_decoder import ArrowDecoder, Flags, Judged
from spark_jobs.arrow.avro_kernels import FRAME
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.arrow.record_leaves import Ints
from spark_jobs.decode.record_columns import DELETED, POSITION

_NUMBER: Final = "_tm_number "
_LIMIT: Final = "_tm_limit "


def admitted(judged: Judged, guard: Mapping[int, str], floor: str) -> Flags:
    """Return which good records the guard (of snapshot rows, by partition) and the floor admit."""
    found = judged.good.copy()
    for partition, horizon in guard.items():
        if horizon:
            found &= ~(judged.snapshot & (judged.partitions == partition)) | (compared(judged, horizon) >= 0)
    return found & (compared(judged, floor) >= 0) if floor else found


def newest(decoder: ArrowDecoder, judged: Judged, records: Flags) -> Ints:
    """Return the numbers of the newest of these records of each key, ascending; at one position a create wins over a delete."""
    chosen = np.flatnonzero(records).astype(np.int64)
    rows = 16
    while rows < 2 * len(chosen):
        rows *= 2
    is_newest = np.zeros(len(judged.reasons), np.bool_)
    key_kernels.newest_records(
        judged.keys.data, judged.keys.starts, judged.keys.sizes, FRAME if decoder.has_alike_keys else 0,
        judged.values.data, judged.positions, judged.deleted, chosen, np.full((rows, 2), -1, np.int64), is_newest,
    )  # fmt: skip
    found = np.flatnonzero(is_newest).astype(np.int64)
    if judged.has_loose_keys or not decoder.has_unique_key_bytes:
        return _newest_by_value(decoder, judged, found)
    return found


def _newest_by_value(decoder: ArrowDecoder, judged: Judged, chosen: Ints) -> Ints:
    """Return the newest of each key as it is decoded."""
    if not len(chosen):
        return chosen
    table = decoder.columns(judged, chosen, [*decoder.key_types, POSITION, DELETED])
    return np.sort(chosen[_newest_rows(decoder, table)])


def _newest_rows(decoder: ArrowDecoder, table: pa.Table) -> Ints:
    """Return the numbers of the newest row of each key, in no order."""
    order = [_codes(table[name]) for name in decoder.key_types]
    positions = pc.rank(table[POSITION].combine_chunks(), sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    rank = positions * 2 + ~table[DELETED].to_numpy()
    indices = np.lexsort([rank, *order])
    last = np.ones(len(indices), np.bool_)
    last[:-1] = False
    for codes in order:
        sorted_codes = codes[indices]
        last[:-1] |= sorted_codes[1:] != sorted_codes[:-1]
    found: Ints = indices[last]
    return found


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return numbers that are equal where values are; null equals null."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def not_overtaken(table: pa.Table, tombstones: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows that are not strictly older than a tombstone of their key; at a tie the row stays.

    `tombstones` has the key columns, of the same types, and the position.
    """
    if not tombstones.num_rows or not table.num_rows:
        return table
    names = list(keys)
    limits = tombstones.select([*names, POSITION]).group_by(names, use_threads=False).aggregate([(POSITION, "max")])
    limits = limits.select([*names, f"{POSITION}_max"]).rename_columns([*names, _LIMIT])
    rows = table.select([*names, POSITION]).append_column(_NUMBER, pa.array(np.arange(table.num_rows)))
    joined = rows.join(limits, names, join_type="inner", use_threads=False)
    older = joined.filter(pc.less(joined[POSITION], joined[_LIMIT]))
    if not older.num_rows:
        return table
    kept = np.ones(table.num_rows, np.bool_)
    kept[older[_NUMBER].to_numpy()] = False
    return table.filter(pa.array(kept))


def observed(decoder: ArrowDecoder, judged: Judged, winners: Ints, table: pa.Table, safe_horizon: str) -> Observed:
    """Return the counts of a batch. `table` is of the winners, before tombstones of earlier batches."""
    late = judged.deleted[winners] & (compared(judged, safe_horizon)[winners] > 0)
    lowest = _furthest(judged, winners, -1)
    low, high = _key_range(decoder, table)
    return Observed(
        int(judged.bad.sum()),
        len(winners),
        int(late.sum()),
        None if lowest is None else judged.position(lowest),
        low,
        high,
        _newest_schema(decoder, judged) if len(decoder.plan.versions) > 1 else None,
    )


def joined(
    decoder: ArrowDecoder, rows: pa.Table, parts: Sequence[Observed], safe_horizon: str
) -> tuple[pa.Table, Observed]:
    """Return the newest row of each key of the rows of some parts of a batch, and what is counted of the whole batch."""
    table = _one_of_each_key(decoder, rows)
    late = pc.and_(table[DELETED], pc.greater(table[POSITION], safe_horizon))
    low, high = _key_range(decoder, table)
    schemas = [(part.newest[1], part.newest[0]) for part in parts if part.newest is not None]
    counted = Observed(
        sum(part.bad for part in parts),
        table.num_rows,
        pc.sum(late).as_py() or 0,
        pc.min(table[POSITION]).as_py(),
        low,
        high,
        max(schemas)[::-1] if schemas else None,
    )
    return table, counted


def _one_of_each_key(decoder: ArrowDecoder, rows: pa.Table) -> pa.Table:
    """Return the newest row of each key; most keys are there once, and only the others are looked at."""
    codes = _key_codes(decoder, rows)
    is_several = np.bincount(codes)[codes] > 1 if len(codes) else np.zeros(0, np.bool_)
    if not is_several.any():
        return rows
    several = np.flatnonzero(is_several)
    kept = ~is_several
    kept[several[_newest_rows(decoder, rows.select([*decoder.key_types, POSITION, DELETED]).filter(pa.array(is_several)))]] = True
    return rows.filter(pa.array(kept))


def _key_codes(decoder: ArrowDecoder, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return numbers from 0 that are equal where keys are."""
    first, *others = (_codes(rows[name]) for name in decoder.key_types)
    for codes in others:
        pairs = first * (codes.max(initial=0) + 1) + codes
        first = _codes(pa.chunked_array([pa.array(pairs)]))
    return first


def _newest_schema(decoder: ArrowDecoder, judged: Judged) -> tuple[int, str] | None:
    last = _furthest(judged, np.flatnonzero(judged.good).astype(np.int64), 1)
    if last is None:
        return None
    position = judged.position(last)
    same = compared(judged, position) == 0
    return int(decoder.writer_ids[judged.value_numbers[same]].max()), position


def _key_range(decoder: ArrowDecoder, table: pa.Table) -> tuple[Any, Any]:
    name = decoder.plan.keys[0]
    kind = table.schema.field(name).type
    if not pa.types.is_integer(kind) or kind == pa.int8():
        return None, None
    found = pc.min_max(table[name])
    return found["min"].as_py(), found["max"].as_py()


def compared(judged: Judged, limit: str) -> Ints:
    """Return 1, 0 or -1 for a position above, at or below a text, -2 for a record without one."""
    found = np.empty(len(judged.positions), np.int64)
    text = np.frombuffer(limit.encode(), np.uint8)
    key_kernels.compare_positions(judged.values.data, judged.positions, text, found)
    return found


def _furthest(judged: Judged, chosen: Ints, sign: int) -> int | None:
    found = int(key_kernels.furthest_record(judged.values.data, judged.positions, chosen, sign))
    return None if found < 0 else found
