"""Columns whose sink is not meant to equal the source are refused by `verify`, not reported as differences."""

from __future__ import annotations

import pytest

from schemas.columns import Column, ColumnType
from schemas.connect_types import TimeMode
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.comparisons import require_exact

DATE, TIME = Column("c", ColumnType.DATE, nullable=True), Column("c", ColumnType.TIME, nullable=True)
MILLIS = Column("c", ColumnType.DATETIME, nullable=True, precision=3)
MICROS = Column("c", ColumnType.DATETIME, nullable=True, precision=6)
LOSSY: list[tuple[TimeMode, Column]] = [
    ("connect", TIME),
    ("connect", MICROS),
    ("isostring", TIME),
    ("nanoseconds", MILLIS),
    ("nanoseconds", MICROS),
]
EXACT: list[tuple[TimeMode, Column]] = [
    ("adaptive_time_microseconds", TIME),
    ("microseconds", MICROS),
    ("connect", MILLIS),
    ("connect", DATE),
    ("isostring", MICROS),
    ("nanoseconds", TIME),
]


@pytest.mark.parametrize(("mode", "column"), LOSSY)
def test_a_mode_that_cannot_hold_every_value_is_refused_with_a_clear_error(mode: TimeMode, column: Column) -> None:
    with pytest.raises(IncomparableError, match=f"format.time {mode} cannot hold every"):
        require_exact(column, mode)


@pytest.mark.parametrize(("mode", "column"), EXACT)
def test_a_mode_that_holds_every_value_is_compared(mode: TimeMode, column: Column) -> None:
    require_exact(column, mode)
