"""A group of kernels for tests: each kind of argument, and of what a kernel returns."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from kernels import ArrayType, KernelGroup

Int = Bytes = Ints = IntsIn = Table = Flags = ShortInts = Words = Any

if os.environ.get("SAMPLE_FAILS"):
    raise RuntimeError("this sample fails")

if os.environ.get("SAMPLE_WAITS"):
    time.sleep(60)

GROUP: Final = KernelGroup(
    __name__,
    [__name__],
    [Path(__file__)],
    {
        "Int": "int64",
        "bool": "bool",
        "Bytes": ArrayType("uint8"),
        "Ints": ArrayType("int64"),
        "IntsIn": ArrayType("int64", readonly=True),
        "ShortInts": ArrayType("int32"),
        "Words": ArrayType("uint64"),
        "Table": ArrayType("int64", dimensions=2),
        "Flags": ArrayType("bool"),
    },
    are_typed=True,
)


@GROUP.kernel
def double(value: Int) -> Int:
    return value * np.int64(2)


@GROUP.entry
def add_up(values: IntsIn, start: Int) -> int:
    """Return the sum of the values, twice `start` on top."""
    total = double(start)
    for index in range(values.size):
        total += values[index]
    return total


@GROUP.entry
def fill(values: Ints, value: Int) -> None:
    """Write the value everywhere."""
    for index in range(values.size):
        values[index] = value


@GROUP.entry
def shape(table: Table, flags: Flags) -> tuple[int, int, int]:
    """Return both sizes of the table, and how many flags are set; set the first one."""
    count = np.int64(0)
    for index in range(flags.size):
        count += np.int64(flags[index])
    flags[0] = True
    return table.shape[0], table.shape[1], count


@GROUP.entry
def last_of(table: Table) -> int:
    """Return the last number of the table."""
    return table[table.shape[0] - 1, table.shape[1] - 1]


@GROUP.entry
def is_set(asked: bool, flags: Flags, at: Int) -> bool:
    """Return whether it is asked for and set."""
    return asked and flags[at]


@GROUP.entry
def smallest(shorts: ShortInts) -> np.int32:
    """Return the first number."""
    return np.int32(shorts[0])


@GROUP.entry
def largest(words: Words) -> np.uint64:
    """Return the first number."""
    return np.uint64(words[0])


@GROUP.entry
def half_word(words: Words) -> np.uint32:
    """Return the low half of the first number."""
    return np.uint32(words[0])


@GROUP.entry
def work(words: Words, rounds: Int) -> None:
    """Mix the first number with itself, so many times."""
    for _ in range(rounds):
        words[0] ^= words[0] << np.uint64(13)
        words[0] ^= words[0] >> np.uint64(7)
        words[0] ^= words[0] << np.uint64(17)


@GROUP.entry
def nothing() -> int:
    """Return 7, a constant."""
    return 7
