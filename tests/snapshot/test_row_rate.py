"""The limit on rows per second, by a clock that a test moves."""

from __future__ import annotations

import random

import pytest

from producer.snapshot.pace import BURST_S, RowRate


def test_a_second_of_rows_may_be_read_at_once() -> None:
    rate = RowRate(1_000, 0.0)
    assert rate.wait_s(0.0) == 0
    rate.reserve(0.0, 1_000)
    assert rate.wait_s(0.0) == pytest.approx(0.001)
    assert rate.wait_s(0.001) == 0


def test_what_a_chunk_really_had_counts() -> None:
    rate = RowRate(1_000, 0.0)
    rate.reserve(0.0, 5_000)
    assert rate.wait_s(0.0) == pytest.approx(4.001)
    rate.settle(0.0, 5_000, 3)
    assert rate.wait_s(0.0) == 0
    rate.reserve(0.0, 0)
    rate.settle(0.0, 0, 2_997)
    assert rate.wait_s(0.0) == pytest.approx(2.001)


def test_idle_time_is_saved_up_for_a_second_only() -> None:
    rate = RowRate(1_000, 0.0)
    rate.reserve(0.0, 1_000)
    rate.reserve(100.0, 3_000)
    assert rate.wait_s(100.0) == pytest.approx(2.001)


@pytest.mark.parametrize("seed", range(20))
def test_no_stretch_of_time_has_more_rows_than_the_rate_and_one_chunk(seed: int) -> None:
    """Readers at random: each starts when it may, holds its chunk for some time, and settles what it had."""
    rng = random.Random(seed)
    rows_per_s, largest = rng.choice([1, 50, 1_000]), 0
    rate, now = RowRate(rows_per_s, 0.0), 0.0
    read: list[tuple[float, int]] = []
    for _ in range(2_000):
        now += rng.choice([0.0, 0.01, 0.3, 5.0])
        wait_s = rate.wait_s(now)
        if wait_s:
            assert rate.wait_s(now + wait_s * 1.000001 + 1e-9) == 0
            now += wait_s * 1.000001 + 1e-9
            continue
        expected = rng.randint(0, 2 * rows_per_s)
        had = rng.randint(0, expected)
        rate.reserve(now, expected)
        rate.settle(now, expected, had)
        largest = max(largest, had)
        read.append((now, had))
    for first in range(0, len(read), 50):
        total = 0
        for at, rows in read[first:]:
            total += rows
            assert total <= (at - read[first][0] + BURST_S) * rows_per_s + largest + 1
