"""Row hashes: one 64-bit number per row from columns of common type (see `rules`), by numpy.

Equal rows have equal hashes in one process; the hash of bytes is Python's, which is keyed per process. Sums
of row hashes modulo 2^64 do not depend on the order of rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_NULL: Final = np.uint64(secrets.randbits(64))  # of this process: no value has always the hash of NULL
_MASK: Final = (1 << 64) - 1


def hash_rows(columns: Sequence[pa.Array], salt: int = 0) -> Hashes:
    """Return a hash per row over all columns, which have one length; the order of columns counts."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for index, column in enumerate(columns):
        seed = np.uint64((_GOLDEN * (2 * (index + salt) + 1)) & _MASK)
        total += _mixed(_bits(column) ^ seed)
    return _mixed(total)


def _bits(array: pa.Array) -> Hashes:
    """64 bits per cell that distinguish two cells (surely up to 64 bits, else very likely)."""
    bits = _wide(array)
    if array.null_count:
        bits[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return bits


def _wide(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_large_binary(kind):
        values = array.to_numpy(zero_copy_only=False)
        return np.fromiter(map(hash, values), dtype=np.int64, count=len(values)).view(np.uint64)
    if pa.types.is_decimal(kind):
        words = _words(array, kind.bit_width // 64)
        bits = np.zeros(len(array), dtype=np.uint64)
        for index in range(words.shape[1]):
            bits = _mixed(bits ^ words[:, index])
        return bits
    if kind == pa.uint32():
        return np.array(array.fill_null(0).to_numpy(), dtype=np.uint64)
    return np.array(_words(array, 1)[:, 0])


def _words(array: pa.Array, per_cell: int) -> NDArray[np.uint64]:
    """Return the values' memory as words; those of NULL cells are arbitrary."""
    words = np.frombuffer(array.buffers()[1], dtype=np.uint64)
    first = array.offset * per_cell
    return words[first : first + len(array) * per_cell].reshape(-1, per_cell)


def _mixed(bits: Hashes) -> Hashes:
    """Return the finaliser of SplitMix64: every bit of the input changes about half of the output's."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
