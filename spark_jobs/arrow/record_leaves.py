"""The bytes of many records, and the leaves that a program notes of them: neither Spark nor Arrow is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.arrow import avro_kernels as kernels
from spark_jobs.arrow.avro_program import AvroProgram

Ints = npt.NDArray[np.int64]

DEPTHS: Final = 16
"""Of arrays inside each other, at most."""


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The bytes of keys or values: all of them, where each starts, and its size (-1 for null)."""

    data: npt.NDArray[np.uint8]
    starts: Ints
    sizes: Ints

    @classmethod
    def joined(cls, values: Sequence[bytes]) -> RecordBytes:
        """Return the bytes of values, copied into one."""
        offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
        return cls(np.frombuffer(b"".join(values) or b"\0", np.uint8), offsets[:-1], np.diff(offsets))


@dataclass(frozen=True, slots=True)
class NotedLeaves:
    """The leaves of some records by slot and record: numbers or positions, and sizes (-1 for null).

    `damaged` counts the records that do not fit their program: their leaves say nothing.
    """

    values: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    damaged: int


def leaves_of(source: RecordBytes, chosen: Ints, program: AvroProgram) -> NotedLeaves:
    """Return the leaves of the chosen records."""
    shape = (program.slots, len(chosen))
    values, sizes = np.empty(shape, np.int64), np.empty(shape, np.int64)
    scratch = np.zeros((3, max(program.slots, DEPTHS)), np.int64)
    damaged = kernels.read_leaves(source.data, source.starts, source.sizes, chosen, program.code, scratch, values, sizes)
    return NotedLeaves(values, sizes, damaged)
