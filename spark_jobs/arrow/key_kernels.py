"""Kernels over keys and positions: the newest record of each key, and positions compared as the bytes of their texts."""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.arrow.worker_kernels import Bytes, Flags, Ints, IntsIn, Table, entry, kernel

_POSITION_BYTES: Final = 39


@kernel
def _hash(data, start, end):
    """Return FNV-1a of some bytes, mixed: the table uses the low bits."""
    value = np.uint64(0xCBF29CE484222325)
    for pos in range(start, end):
        value = (value ^ np.uint64(data[pos])) * np.uint64(0x100000001B3)
    value ^= value >> np.uint64(32)
    value *= np.uint64(0x9E3779B97F4A7C15)
    return np.int64((value ^ (value >> np.uint64(29))) >> np.uint64(1))


@kernel
def _same(data, one, other, size):
    for offset in range(size):
        if data[one + offset] != data[other + offset]:
            return False
    return True


@kernel
def _order(data, one, other):
    """Return a number above, below or equal to 0, as the first position is to the second."""
    for offset in range(_POSITION_BYTES):
        left, right = np.int64(data[one + offset]), np.int64(data[other + offset])
        if left != right:
            return left - right
    return np.int64(0)


@entry
def newest_records(
    key_data: Bytes,
    key_starts: IntsIn,
    key_sizes: IntsIn,
    skipped: int,
    value_data: Bytes,
    positions: IntsIn,
    deleted: Flags,
    chosen: IntsIn,
    table: Table,
    is_newest: Flags,
) -> int:
    """Mark the newest of the chosen records of each key; at one and the same position a create wins over a delete.

    `skipped` bytes at the start of a key are not compared. `table` has twice as many rows as records are chosen or more, a
    power of two, all -1.
    """
    mask = np.int64(table.shape[0] - 1)
    for index in range(chosen.shape[0]):
        record = chosen[index]
        start = key_starts[record] + skipped
        size = key_sizes[record] - skipped
        found = _hash(key_data, start, start + size)
        slot = found & mask
        while True:
            other = table[slot, 0]
            if other < 0:
                table[slot, 0] = record
                table[slot, 1] = found
                is_newest[record] = True
                break
            is_same = table[slot, 1] == found and key_sizes[other] - skipped == size
            if is_same and _same(key_data, start, key_starts[other] + skipped, size):
                order = _order(value_data, positions[record], positions[other])
                if order > 0 or (order == 0 and deleted[other] and not deleted[record]):
                    table[slot, 0] = record
                    is_newest[other] = False
                    is_newest[record] = True
                break
            slot = (slot + 1) & mask
    return 0


@entry
def compare_positions(data: Bytes, positions: IntsIn, limit: Bytes, out: Ints) -> int:
    """Note whether each position is above (1), at (0) or below (-1) a text of any length; -2 for a record without one."""
    size = limit.shape[0]
    for record in range(positions.shape[0]):
        start = positions[record]
        if start < 0:
            out[record] = -2
            continue
        order = np.int64(0)
        for offset in range(min(size, _POSITION_BYTES)):
            left, right = data[start + offset], limit[offset]
            if left != right:
                order = np.int64(1) if left > right else np.int64(-1)
                break
        if order == 0 and size != _POSITION_BYTES:
            order = np.int64(1) if size < _POSITION_BYTES else np.int64(-1)
        out[record] = order
    return 0


@entry
def furthest_record(data: Bytes, positions: IntsIn, chosen: IntsIn, sign: int) -> int:
    """Return the chosen record with the highest position (sign 1) or the lowest (-1); -1 of none."""
    found = np.int64(-1)
    for index in range(chosen.shape[0]):
        record = chosen[index]
        if found < 0 or _order(data, positions[record], positions[found]) * sign > 0:
            found = record
    return found
