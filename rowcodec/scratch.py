"""Memory that kernel runs borrow: output buffers, offsets, marks, cells. Grown on demand, kept for the next run."""

from __future__ import annotations

from typing import Final

import numpy as np

from rowcodec import ops
from rowcodec.codec_kernels import Bytes, Ints
from rowcodec.types import Records

_VALUES: Final = 1 << 20
_KEYS: Final = 1 << 17
_RECORDS: Final = 4096
_KEEP_BYTES: Final = 64 << 20  # larger buffers, grown for one huge row, are not kept


class Scratch:
    """The buffers of one run. Not thread safe; `borrow` hands each to one run at a time."""

    def __init__(self) -> None:
        self.columns = 0
        self.numbers: Ints = np.zeros(ops.X_CELLS, np.int64)
        self.head: Bytes = np.empty(1 << 13, np.uint8)
        self.values: Bytes = np.empty(_VALUES, np.uint8)
        self.keys: Bytes = np.empty(_KEYS, np.uint8)
        self.slots = self._slots()
        self._make_records(_RECORDS)

    def _slots(self) -> memoryview:
        region = self.numbers[ops.X_SLOTS : ops.X_SLOTS + ops.SLOTS]
        return memoryview(region).cast("B")

    def _make_records(self, capacity: int) -> None:
        self.offsets: Ints = np.empty(2 * (capacity + 1), np.int64)
        self.marks: Bytes = np.empty(2 * capacity, np.uint8)
        self.relations = np.empty(capacity, np.int32)

    def reserve(self, columns: int, head: int) -> None:
        """Make room for two images of that many columns and an expanded template of `head` bytes."""
        if columns > self.columns:
            self.columns = columns
            self.numbers = np.zeros(ops.X_CELLS + 4 * columns, np.int64)
            self.slots = self._slots()
        if head > self.head.size:
            self.head = np.empty(2 * head, np.uint8)

    def grow(self, code: int) -> bool:
        """Make the buffer larger that a GROW_ code names; False for any other code."""
        if code == ops.GROW_VALUES:
            need = int(self.numbers[ops.R_NEED_VALUES])
            self.values = np.empty(max(2 * self.values.size, need), np.uint8)
        elif code == ops.GROW_KEYS:
            need = int(self.numbers[ops.R_NEED_KEYS])
            self.keys = np.empty(max(2 * self.keys.size, need), np.uint8)
        elif code == ops.GROW_RECORDS:
            self._make_records(4 * self.relations.size)
        else:
            return False
        return True

    @property
    def is_small(self) -> bool:
        """Whether it is worth keeping."""
        return self.values.size + self.keys.size + self.head.size <= _KEEP_BYTES

    def records(self, has_key: bool) -> Records:
        """Return what the run wrote, copied out of the scratch. A large one gives up what is behind that."""
        report = self.numbers
        count = int(report[ops.R_RECORDS])
        capacity = self.relations.size
        if not self.is_small:  # the images stand at its end, as large as the records: not beside a copy of these
            self.values.resize(int(report[ops.R_VALUE_BYTES]), refcheck=False)
        return Records(
            count=count,
            rows=int(report[ops.R_ROWS]),
            values=self.values[: report[ops.R_VALUE_BYTES]].tobytes(),
            value_offsets=self.offsets[: count + 1].copy(),
            is_tombstone=self.marks[:count].copy(),
            keys=self.keys[: report[ops.R_KEY_BYTES]].tobytes(),
            key_offsets=self.offsets[capacity + 1 : capacity + 2 + count].copy(),
            has_key=has_key,
            ops=self.marks[capacity : capacity + count].copy(),
            related=self.relations[:count].copy(),
            zeros=int(report[ops.R_ZEROS]),
        )


_free: list[Scratch] = []  # append and pop are atomic; a scratch belongs to one run between them


def borrow(columns: int, head: int) -> Scratch:
    """Return a scratch with room for that many columns and `head` bytes of expanded template."""
    try:
        scratch = _free.pop()
    except IndexError:
        scratch = Scratch()
    scratch.reserve(columns, head)
    return scratch


def give_back(scratch: Scratch) -> None:
    """Return a scratch to the pool."""
    if scratch.is_small:
        _free.append(scratch)
