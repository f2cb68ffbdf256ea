"""The texts of zero and impossible dates, for which an envelope has NULL or a default.

What enters: the bytes of a value, and the operation of its column. Rare values: this is Python, off the hot path.
"""

from __future__ import annotations

import struct
from calendar import monthrange
from typing import Final

from rowcodec import ops

_CALENDAR_YEARS: Final = 400
_ZERO_YEAR_MONTH: Final = 0x8000000000
_CLOCK: Final = 7
_FRACTION: Final = 11
Parts = tuple[int, int, int, int, int, int, int]
"""Year, month, day, hour, minute, second, microsecond."""


def exact_text(op: int, digits: int, data: bytes) -> str | None:
    """Return a zero or impossible date, with a time of `digits` fraction digits if its type has one; None for other values."""
    if op in (ops.V_TIME_PACKED, ops.V_TIME_STRUCT):
        return None
    year, month, day, hour, minute, second, microsecond = _parts(op, digits, data)
    # A calendar repeats itself after 400 years: Python's has no year 0.
    if month and 0 < day <= monthrange(year + _CALENDAR_YEARS, month)[1]:
        return None
    text = f"{year:04}-{month:02}-{day:02}"
    if op in (ops.V_DATE_PACKED, ops.V_DATE_STRUCT):
        return text
    fraction = f".{microsecond:06}"[: digits + 1] if digits else ""
    return f"{text} {hour:02}:{minute:02}:{second:02}{fraction}"


def _parts(op: int, digits: int, data: bytes) -> Parts:
    if op == ops.V_DATE_PACKED:
        packed = int.from_bytes(data, "little")
        return packed >> 9, packed >> 5 & 15, packed & 31, 0, 0, 0, 0
    if op == ops.V_DATETIME_PACKED:
        packed = int.from_bytes(data[:5], "big") - _ZERO_YEAR_MONTH
        year, month = divmod(packed >> 22, 13)
        microsecond = int.from_bytes(data[5:], "big") * 10 ** (6 - (digits + 1) // 2 * 2)
        return year, month, packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63, microsecond
    if op == ops.V_TIMESTAMP_PACKED:
        return (0, 0, 0, 0, 0, 0, 0) if not any(data) else (1970, 1, 1, 0, 0, 0, 0)
    return _struct_parts(data)


def _struct_parts(data: bytes) -> Parts:
    """Return the parts of a date in the binary protocol, whose parts at the end may be missing."""
    year, month, day = struct.unpack_from("<HBB", data) if data else (0, 0, 0)
    hour, minute, second = data[4:_CLOCK] if len(data) >= _CLOCK else (0, 0, 0)
    return year, month, day, hour, minute, second, int.from_bytes(data[_CLOCK:_FRACTION], "little")
