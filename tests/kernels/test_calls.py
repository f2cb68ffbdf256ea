"""Compiled kernels called from Python: what they take, what they refuse, what they return."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.kernels import sample_kernels as sample

FIVE = np.arange(5, dtype=np.int64)


def read_only(values: Any) -> Any:
    values = values.copy()
    values.flags.writeable = False
    return values


class Whole:
    """A number by its index, as those of NumPy are."""

    def __index__(self) -> int:
        return 4


class Sub(np.ndarray):
    """Not NumPy's own array."""


@pytest.mark.parametrize(("start", "expected"), [(0, 10), (-3, 4), (np.int64(1), 12), (np.uint8(200), 410), (True, 12), (Whole(), 18), (-1, 8)])
def test_numbers_and_arrays_enter_and_a_number_leaves(start: Any, expected: int) -> None:
    found = sample.add_up(FIVE, start)
    assert (found, type(found)) == (expected, int)


def test_an_array_may_be_a_part_of_another_and_empty() -> None:
    assert sample.add_up(FIVE[1:4], 0) == 6
    assert sample.add_up(FIVE[2:2], 21) == 42
    assert sample.add_up(np.arange(20, dtype=np.int64).reshape(4, 5)[2], 0) == 60


def test_what_is_written_is_in_the_array() -> None:
    values = np.zeros(7, np.int64)
    assert sample.fill(values[2:5], -9) is None
    assert values.tolist() == [0, 0, -9, -9, -9, 0, 0]


def test_a_table_has_two_sizes_and_several_numbers_are_a_tuple() -> None:
    flags = np.array([False, True, True])
    found = sample.shape(np.zeros((3, 8), np.int64), flags)
    assert (found, type(found)) == ((3, 8, 2), tuple)
    assert flags.tolist() == [True, True, True]
    table = np.arange(24, dtype=np.int64).reshape(3, 8)
    assert sample.last_of(table) == 23
    assert sample.last_of(table[:2]) == 15


def test_whole_numbers_of_each_kind_leave_as_they_are() -> None:
    assert sample.smallest(np.array([-(2**31)], np.int32)) == -(2**31)
    assert sample.largest(np.array([2**64 - 1], np.uint64)) == 2**64 - 1
    assert sample.half_word(np.array([2**64 - 1], np.uint64)) == 2**32 - 1
    assert sample.nothing() == 7
    assert sample.is_set(True, np.array([False, True]), 1) is True
    assert sample.is_set(True, np.array([False, True]), 0) is False
    assert sample.is_set(False, np.array([False, True]), 1) is False


WRONG: list[tuple[Any, tuple[Any, ...], str]] = [
    (sample.add_up, (FIVE,), "add_up has 2 arguments"),
    (sample.add_up, (FIVE, 1, 2), "add_up has 2 arguments"),
    (sample.add_up, ([1, 2], 0), "add_up: values has to be an array of int64 in C order, dimensions: 1"),
    (sample.add_up, (None, 0), "add_up: values"),
    (sample.add_up, (FIVE.astype(np.int32), 0), "add_up: values"),
    (sample.add_up, (FIVE.astype(np.float64), 0), "add_up: values"),
    (sample.add_up, (FIVE.astype(np.uint64), 0), "add_up: values"),
    (sample.add_up, (FIVE.astype(">i8"), 0), "add_up: values"),
    (sample.add_up, (FIVE.view("M8[us]"), 0), "add_up: values"),
    (sample.add_up, (FIVE[::2], 0), "add_up: values"),
    (sample.add_up, (FIVE[::-1], 0), "add_up: values"),
    (sample.add_up, (FIVE.reshape(1, 5), 0), "add_up: values"),
    (sample.add_up, (np.int64(3), 0), "add_up: values"),
    (sample.add_up, (FIVE.view(Sub), 0), "add_up: values"),
    (sample.add_up, (np.frombuffer(bytes(17), np.uint8)[1:].view(np.int64), 0), "add_up: values"),
    (sample.fill, (read_only(FIVE), 0), "fill: values has to be a writeable array of int64 in C order, dimensions: 1"),
    (sample.shape, (np.zeros((3, 8), np.int64, order="F"), np.zeros(1, np.bool_)), "shape: table"),
    (sample.shape, (np.zeros((3, 8), np.int64), np.zeros(1, np.uint8)), "shape: flags"),
    (sample.add_up, (FIVE, 1.0), "float"),
    (sample.add_up, (FIVE, "1"), "str"),
    (sample.add_up, (FIVE, None), "NoneType"),
    (sample.add_up, (FIVE, FIVE), "integer"),
]


@pytest.mark.parametrize(("kernel", "arguments", "message"), WRONG)
def test_what_a_kernel_was_not_compiled_for_is_refused(kernel: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        kernel(*arguments)


def test_a_number_that_is_too_large_is_refused() -> None:
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            sample.add_up(FIVE, number)


def test_only_an_array_that_is_read_may_be_read_only() -> None:
    assert sample.add_up(read_only(FIVE), 0) == 10


def test_other_threads_run_while_a_kernel_does() -> None:
    words = np.ones(1, np.uint64)
    thread = threading.Thread(target=sample.work, args=(words, 300_000_000))
    thread.start()
    steps = 0
    while thread.is_alive():
        steps += 1
        time.sleep(0.001)
    assert steps > 20
    assert words[0] != 1


def test_a_call_leaves_no_object_behind() -> None:
    table, flags, words = np.zeros((3, 8), np.int64), np.zeros(2, np.bool_), np.array([2**64 - 1], np.uint64)

    def call() -> None:
        for _ in range(2000):
            sample.shape(table, flags)
            sample.largest(words)
            sample.is_set(True, flags, 0)
            for wrong in (2**63, "1", 1.5):
                with pytest.raises((TypeError, OverflowError)):
                    sample.add_up(FIVE, wrong)

    call()
    before = sys.getallocatedblocks()
    call()
    assert sys.getallocatedblocks() - before < 200


def test_a_call_keeps_no_reference_to_what_it_was_given() -> None:
    values, number = np.arange(3, dtype=np.int64), 10**12
    before = sys.getrefcount(values), sys.getrefcount(number), sys.getrefcount(None)
    for _ in range(1000):
        sample.fill(values, number)
        with pytest.raises(TypeError):
            sample.fill(values, None)
    after = sys.getrefcount(values), sys.getrefcount(number), sys.getrefcount(None)
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 900, "1,000 calls would keep 1,000; other threads and the garbage collector have some hundred"
