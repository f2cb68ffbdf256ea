"""Dates and times as the server prints them, to numbers: columns of fixed-width text by numpy.

What cannot be a date (zero dates, `2024-02-31` of ALLOW_INVALID_DATES) becomes NULL.
Years run from 0 to 9999 in the proleptic Gregorian calendar.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.verify.text_rows import Cells

_ZERO: Final = ord("0")
_MINUS: Final = ord("-")
_DAY_US: Final = 86_400_000_000
_DATE_WIDTH: Final = 10
_SECONDS_WIDTH: Final = 19
_MONTH_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def dates(cells: Cells) -> pa.Array:
    """`YYYY-MM-DD` as days since 1970-01-01."""
    days, valid = _days(cells.fixed(_DATE_WIDTH))
    return pa.array(days, mask=cells.nulls | ~valid)


def datetimes(cells: Cells, fraction: int) -> pa.Array:
    """`YYYY-MM-DD HH:MM:SS[.f]` as microseconds since 1970-01-01 00:00:00."""
    text = cells.fixed(_width(_SECONDS_WIDTH, fraction))
    days, valid = _days(text)
    micros = days * _DAY_US + _clock(text[:, 11:], fraction)
    return pa.array(micros, mask=cells.nulls | ~valid)


def times(cells: Cells, fraction: int) -> pa.Array:
    """`[-]H+:MM:SS[.f]` as signed microseconds.

    Minutes and seconds stand at a fixed distance from the end; what is before them is sign and hours.
    """
    tail = _width(6, fraction)  # ":MM:SS" and the fraction
    begins = np.where(cells.nulls, cells.begins, cells.ends - tail)
    text = Cells(cells.buffer, begins, cells.ends, cells.nulls).fixed(tail)
    minutes, seconds = _number(text, 1, 2), _number(text, 4, 2)
    negative = cells.buffer[np.minimum(cells.begins, len(cells.buffer) - 1)] == _MINUS
    first = cells.begins + negative
    hours = np.zeros(len(cells), dtype=np.int64)
    for step in range(int(np.max(begins - first, initial=0))):
        at = first + step
        digit = cells.buffer[np.minimum(at, len(cells.buffer) - 1)].astype(np.int64) - _ZERO
        hours = np.where(at < begins, hours * 10 + digit, hours)
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + _fraction(text[:, 6:], fraction)
    return pa.array(np.where(negative, -micros, micros), mask=cells.nulls)


def _width(whole: int, fraction: int) -> int:
    return whole + (1 + fraction if fraction else 0)


def _clock(text: NDArray[np.uint8], fraction: int) -> NDArray[np.int64]:
    seconds = (_number(text, 0, 2) * 60 + _number(text, 3, 2)) * 60 + _number(text, 6, 2)
    return seconds * 1_000_000 + _fraction(text[:, 8:], fraction)


def _fraction(text: NDArray[np.uint8], digits: int) -> NDArray[np.int64]:
    """`.f` to microseconds."""
    if digits == 0:
        return np.zeros(len(text), dtype=np.int64)
    return _number(text, 1, digits) * np.int64(10 ** (6 - digits))


def _number(text: NDArray[np.uint8], first: int, digits: int) -> NDArray[np.int64]:
    value: NDArray[np.int64] = np.zeros(len(text), dtype=np.int64)
    for column in range(first, first + digits):
        value = value * 10 + (text[:, column].astype(np.int64) - _ZERO)
    return value


def _days(text: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since 1970-01-01 and whether there is such a day (days from civil, Howard Hinnant)."""
    year, month, day = _number(text, 0, 4), _number(text, 5, 2), _number(text, 8, 2)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = _MONTH_DAYS[np.clip(month, 0, 12)] + (leap & (month == 2))
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (day <= longest)
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468, valid
