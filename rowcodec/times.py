"""Kernels for dates and times: packed forms of the binlog and structs of the binary protocol -> numbers, ISO text.

Functions that give a number return ZERO for a date that is zero or impossible but storable (`2024-00-00`,
`2024-02-31`), and ZERO - E_... for bytes no server writes. Packed forms: MySQL `mysys/my_time.cc`
(`my_datetime_packed_from_binary`, `my_time_packed_from_binary`). Civil date arithmetic: Howard Hinnant,
"chrono-compatible low-level date algorithms", proleptic Gregorian.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, kernel
from rowcodec.ops import AVRO, E_DATE, E_LENGTH, E_TIME
from rowcodec.primitives import big_endian, little_endian, put_fixed_digits

ZERO: Final = -(1 << 62)
DAY_US: Final = 86_400_000_000
_MAX_TIME_SECONDS: Final = 838 * 3600 + 59 * 60 + 59
_QUOTE = 34
DATE_PART: Final = 1
CLOCK_PART: Final = 2


@kernel
def days_from_civil(year: Int, month: Int, day: Int) -> Int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar."""
    y = np.int64(year) - (1 if month <= 2 else 0)
    era = y // 400
    year_of_era = y - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468


@kernel
def month_days(year: Int, month: Int) -> Int:
    """Days of a month, 1 to 12."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + ((month + (month >> 3)) & 1)


@kernel
def checked_days(year: Int, month: Int, day: Int) -> Int:
    """Days since 1970-01-01; ZERO for a date that does not exist; ZERO - E_DATE for an impossible part."""
    if year > 9999 or month > 12 or day > 31:
        return ZERO - E_DATE
    if month == 0 or day == 0 or day > month_days(year, month):
        return np.int64(ZERO)
    return days_from_civil(year, month, day)


@kernel
def packed_date(buf: Bytes, at: Int) -> Int:
    """Days of a DATE: three little-endian bytes, 15 bits year, 4 month, 5 day."""
    value = little_endian(buf, at, 3)
    return checked_days(value >> 9, (value >> 5) & 15, value & 31)


@kernel
def date_struct(buf: Bytes, at: Int, size: Int) -> Int:
    """Days of a binary-protocol DATE: nothing (zero date) or year, month, day."""
    if size == 0:
        return np.int64(ZERO)
    if size != 4:
        return ZERO - E_LENGTH
    return checked_days(little_endian(buf, at, 2), np.int64(buf[at + 2]), np.int64(buf[at + 3]))


@kernel
def packed_fraction(buf: Bytes, at: Int, digits: Int) -> Int:
    """Microseconds of the fraction bytes of TIMESTAMP2 and DATETIME2; -1 when they are too large."""
    size = (digits + 1) // 2
    value = big_endian(buf, at, size)
    if size == 1:
        value *= 10_000
    elif size == 2:
        value *= 100
    return value if value < 1_000_000 else np.int64(-1)


@kernel
def packed_datetime(buf: Bytes, at: Int, digits: Int) -> Int:
    """Microseconds since 1970 of a DATETIME2: five big-endian bytes and the fraction."""
    packed = big_endian(buf, at, 5) - np.int64(0x8000000000)
    fraction = packed_fraction(buf, at + 5, digits)
    if packed < 0:
        return ZERO - E_DATE
    year_month = packed >> 22
    clock = packed & np.int64(0x1FFFF)
    hour = clock >> 12
    minute = (clock >> 6) & 63
    second = clock & 63
    if hour > 23 or minute > 59 or second > 59 or fraction < 0:
        return ZERO - E_TIME
    days = checked_days(year_month // 13, year_month % 13, (packed >> 17) & 31)
    if days <= ZERO:
        return days
    return days * DAY_US + (hour * 3600 + minute * 60 + second) * 1_000_000 + fraction


@kernel
def datetime_struct(buf: Bytes, at: Int, size: Int) -> Int:
    """Microseconds since 1970 of a binary-protocol DATETIME or TIMESTAMP: 0, 4, 7 or 11 bytes."""
    if size == 0:
        return np.int64(ZERO)
    if size != 4 and size != 7 and size != 11:  # noqa: PLR1714  numba has no tuple membership here
        return ZERO - E_LENGTH
    clock = np.int64(0)
    fraction = np.int64(0)
    if size >= 7:
        hour = np.int64(buf[at + 4])
        minute = np.int64(buf[at + 5])
        second = np.int64(buf[at + 6])
        if hour > 23 or minute > 59 or second > 59:
            return ZERO - E_TIME
        clock = hour * 3600 + minute * 60 + second
    if size == 11:
        fraction = little_endian(buf, at + 7, 4)
        if fraction > 999_999:
            return ZERO - E_TIME
    days = checked_days(little_endian(buf, at, 2), np.int64(buf[at + 2]), np.int64(buf[at + 3]))
    if days <= ZERO:
        return days
    return days * DAY_US + clock * 1_000_000 + fraction


@kernel
def packed_time(buf: Bytes, at: Int, digits: Int) -> Int:
    """Microseconds of a TIME2: three big-endian bytes offset by 2^23, then the fraction."""
    if digits > 4:
        packed = big_endian(buf, at, 6) - np.int64(0x800000000000)
        whole = np.int64(1 << 24)
    else:
        size = (digits + 1) // 2
        packed = big_endian(buf, at, 3 + size) - (np.int64(0x800000) << np.int64(8 * size))
        whole = np.int64(1) << np.int64(8 * size)
    negative = packed < 0
    if negative:
        packed = -packed
    fraction = packed % whole
    if digits == 1 or digits == 2:  # noqa: PLR1714  numba has no tuple membership here
        fraction *= 10_000
    elif digits == 3 or digits == 4:  # noqa: PLR1714
        fraction *= 100
    clock = packed // whole
    hour = (clock >> 12) & 1023
    minute = (clock >> 6) & 63
    second = clock & 63
    seconds = hour * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or fraction > 999_999 or seconds > _MAX_TIME_SECONDS or clock >> 22:
        return ZERO - E_TIME
    value = seconds * 1_000_000 + fraction
    return -value if negative else value


@kernel
def time_struct(buf: Bytes, at: Int, size: Int) -> Int:
    """Microseconds of a binary-protocol TIME: nothing, or sign, days, clock and perhaps microseconds."""
    if size == 0:
        return np.int64(0)
    if size != 8 and size != 12:  # noqa: PLR1714  numba has no tuple membership here
        return ZERO - E_LENGTH
    days = little_endian(buf, at + 1, 4)
    hour = np.int64(buf[at + 5])
    minute = np.int64(buf[at + 6])
    second = np.int64(buf[at + 7])
    fraction = little_endian(buf, at + 8, 4) if size == 12 else np.int64(0)
    if buf[at] > 1 or days > 34 or minute > 59 or second > 59 or fraction > 999_999:
        return ZERO - E_TIME
    seconds = (days * 24 + hour) * 3600 + minute * 60 + second
    if seconds > _MAX_TIME_SECONDS:
        return ZERO - E_TIME
    value = seconds * 1_000_000 + fraction
    return -value if buf[at] == 1 else value


@kernel
def packed_timestamp(buf: Bytes, at: Int, digits: Int) -> Int:
    """Microseconds since 1970 UTC of a TIMESTAMP2: four big-endian bytes and the fraction; ZERO for 0."""
    seconds = big_endian(buf, at, 4)
    fraction = packed_fraction(buf, at + 4, digits)
    if fraction < 0:
        return ZERO - E_TIME
    if seconds == 0 and fraction == 0:
        return np.int64(ZERO)
    return seconds * 1_000_000 + fraction


@kernel
def _put_date(out: Bytes, o: Int, days: Int) -> Int:
    shifted = np.int64(days) + 719468
    era = shifted // 146097
    day_of_era = shifted - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    o = put_fixed_digits(out, o, year, 4)
    out[o] = 45
    o = put_fixed_digits(out, o + 1, month, 2)
    out[o] = 45
    return put_fixed_digits(out, o + 1, day, 2)


@kernel
def _put_clock(out: Bytes, o: Int, microseconds: Int, digits: Int) -> Int:
    fraction = np.int64(microseconds) % 1_000_000
    clock = np.int64(microseconds) // 1_000_000
    o = put_fixed_digits(out, o, clock // 3600, 2)
    out[o] = 58
    o = put_fixed_digits(out, o + 1, clock // 60 % 60, 2)
    out[o] = 58
    o = put_fixed_digits(out, o + 1, clock % 60, 2)
    if digits > 0:
        out[o] = 46
        for _ in range(6 - digits):
            fraction //= 10
        o = put_fixed_digits(out, o + 1, fraction, digits)
    return o


@kernel
def fraction_digits(microseconds: Int) -> Int:
    """Return how many fraction digits a time has, without zeros at the end."""
    rest = np.int64(microseconds) % np.int64(1_000_000)
    if rest == 0:
        return np.int64(0)
    digits = np.int64(6)
    while rest % np.int64(10) == 0:
        rest //= np.int64(10)
        digits -= np.int64(1)
    return digits


@kernel
def put_iso(layout: Int, out: Bytes, o: Int, microseconds: Int, digits: Int, parts: Int) -> Int:
    """`2024-06-01T06:30:00.12Z` with exactly `digits` fraction digits, as a string of the layout.

    `parts`: DATE_PART, CLOCK_PART or their sum.
    """
    size = np.int64(1)
    if parts & DATE_PART:
        size += 10
    if parts & CLOCK_PART:
        size += 8 if digits == 0 else 9 + digits
    if parts == DATE_PART + CLOCK_PART:
        size += 1
    out[o] = np.uint8(2 * size) if layout == AVRO else np.uint8(_QUOTE)
    o += 1
    days = np.int64(microseconds) // np.int64(DAY_US)
    rest = np.int64(microseconds) - days * np.int64(DAY_US)
    if parts & DATE_PART:
        o = _put_date(out, o, days)
    if parts == DATE_PART + CLOCK_PART:
        out[o] = 84
        o += 1
    if parts & CLOCK_PART:
        o = _put_clock(out, o, rest, digits)
    out[o] = 90
    o += 1
    if layout != AVRO:
        out[o] = _QUOTE
        o += 1
    return o
