"""The size of chunks follows what they cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producer.snapshot.pace import GROW, MIN_CHUNK_ROWS, SHRINK, ChunkCost, ChunkSizes

MIB = 1 << 20
SIZES = ChunkSizes(50_000, target_ms=500, target_bytes=16 * MIB)


def read(sizes: ChunkSizes, current: int, *, us_per_row: float, row_bytes: int) -> int:
    """The size after a chunk of the present size."""
    return sizes.next(current, current, ChunkCost(current, current * row_bytes, current * us_per_row / 1e6))


def settled(sizes: ChunkSizes, current: int, *, us_per_row: float, row_bytes: int) -> int:
    for _ in range(60):
        current = read(sizes, current, us_per_row=us_per_row, row_bytes=row_bytes)
    return current


def test_slow_chunks_become_smaller_until_they_take_the_target() -> None:
    assert settled(SIZES, 50_000, us_per_row=100, row_bytes=50) == 5_000


def test_wide_chunks_become_smaller_until_they_have_the_target_of_bytes() -> None:
    assert settled(SIZES, 50_000, us_per_row=1, row_bytes=16_384) == 1_024
    assert settled(SIZES, 50_000, us_per_row=1, row_bytes=4 * MIB) == 4


def test_they_grow_again_up_to_the_first_size() -> None:
    assert settled(SIZES, 300, us_per_row=1, row_bytes=50) == 50_000


def test_time_makes_no_chunk_smaller_than_the_least_size() -> None:
    assert settled(SIZES, 50_000, us_per_row=1e6, row_bytes=50) == MIN_CHUNK_ROWS
    assert settled(ChunkSizes(20, target_ms=500), 20, us_per_row=1e6, row_bytes=50) == 20


def test_targets_of_zero_say_nothing() -> None:
    assert settled(ChunkSizes(50_000), 50_000, us_per_row=1e4, row_bytes=MIB) == 50_000


def test_chunks_that_were_planned_before_the_size_changed_do_not_change_it_twice() -> None:
    """Sixteen chunks planned ahead say the same thing: each takes a tenth of a row's time too long."""
    current = 50_000
    for _ in range(16):
        current = SIZES.next(current, 50_000, ChunkCost(50_000, 50_000 * 50, 5.0))
    assert current == 5_000


def test_a_chunk_with_few_of_its_rows_makes_no_chunk_larger() -> None:
    assert SIZES.next(1_000, 1_000, ChunkCost(10, 500, 0.001)) == 1_000
    assert SIZES.next(1_000, 1_000, ChunkCost(0, 0, 0.001)) == 1_000
    assert SIZES.next(1_000, 1_000, ChunkCost(10, 500, 1.0)) == 500
    assert SIZES.next(1_000, 0, ChunkCost(1_000, 50_000, 9.0)) == 1_000, "nobody knows for how many rows it was planned"


@given(
    current=st.integers(1, 50_000),
    planned=st.integers(0, 50_000),
    rows=st.integers(0, 60_000),
    size_bytes=st.integers(0, 1 << 32),
    seconds=st.floats(0, 1e4),
)
def test_one_chunk_changes_the_size_by_a_bounded_factor(
    current: int, planned: int, rows: int, size_bytes: int, seconds: float
) -> None:
    size = SIZES.next(current, planned, ChunkCost(rows, size_bytes, seconds))
    assert 1 <= size <= 50_000
    assert int(SHRINK * current) <= size <= GROW * current + 1
