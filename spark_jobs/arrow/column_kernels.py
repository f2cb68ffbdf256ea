"""Kernels that make columns: the positions of leaves in the bytes enter, the buffers of Arrow arrays leave.

Sizes are -1 for null. The positions were noted by `avro_kernels`, inside the bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.arrow.worker_kernels import Bytes, BytesOut, Ints, IntsIn, Table, entry, kernel

DATE: Final = 0  # YYYY-MM-DD and whatever follows, as days
MOMENT: Final = 1  # YYYY-MM-DDTHH:MM:SS[.ffffff][Z], as microseconds
INSTANT: Final = 2  # the same with a Z
TIME: Final = 3  # HH:MM:SS[.ffffff][Z], as microseconds
_DATE_BYTES: Final = 10
_SECONDS_BYTES: Final = 8


@entry
def gather(data: Bytes, starts: IntsIn, sizes: IntsIn, targets: IntsIn, out: BytesOut) -> int:
    """Copy the bytes of each leaf to its target."""
    for index in range(starts.shape[0]):
        start, target = starts[index], targets[index]
        for offset in range(sizes[index]):
            out[target + offset] = data[start + offset]
    return 0


@entry
def gather_floats(data: Bytes, starts: IntsIn, counts: IntsIn, targets: IntsIn, out: BytesOut) -> int:
    """Copy the items of each array of floats, block by block, to its target (in items)."""
    for index in range(starts.shape[0]):
        if counts[index] <= 0:
            continue
        pos, target = starts[index], targets[index] * 4
        left = counts[index]
        while left > 0:
            count = np.int64(0)
            is_sized = False
            for part in range(2):  # a negative count is followed by the size of the block
                if part == 1 and not is_sized:
                    continue
                value = np.uint64(0)
                shift = np.uint64(0)
                while True:
                    byte = np.uint64(data[pos])
                    pos += 1
                    value |= (byte & np.uint64(0x7F)) << shift
                    shift += np.uint64(7)
                    if byte < np.uint64(0x80):
                        break
                if part == 0:
                    count = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
                    is_sized = count < 0
                    count = abs(count)
            for offset in range(4 * count):
                out[target + offset] = data[pos + offset]
            pos += 4 * count
            target += 4 * count
            left -= count
    return 0


@entry
def decimals(data: Bytes, starts: IntsIn, sizes: IntsIn, is_short: int, out: Table) -> int:
    """Convert big-endian two's complement bytes to 128 bits, low half first. Of a short one the last eight bytes count."""
    for index in range(starts.shape[0]):
        size = sizes[index]
        out[index, 0] = 0
        out[index, 1] = 0
        if size <= 0:
            continue
        taken = min(size, np.int64(8) if is_short != 0 else np.int64(16))
        start = starts[index] + size - taken
        low = np.uint64(0)
        high = np.uint64(0)
        if data[start] >= 0x80:
            low = ~low
            high = ~high
        for offset in range(taken):
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[start + offset])
        out[index, 0] = np.int64(low)
        out[index, 1] = np.int64(high)
    return 0


@kernel
def _number(data, start, count):
    """Return the number that some digits are; -1 if one is none."""
    number = np.int64(0)
    for offset in range(count):
        digit = np.int64(data[start + offset]) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1)
        number = number * 10 + digit
    return number


@kernel
def _days(data, start):
    """Return the days since 1970 of a date of the years 1 to 9999; a number no date has if it is none."""
    none = np.int64(1) << 40
    year, month, day = _number(data, start, 4), _number(data, start + 5, 2), _number(data, start + 8, 2)
    if data[start + 4] != 45 or data[start + 7] != 45 or year < 1 or month < 1 or month > 12 or day < 1:
        return none
    longest = np.int64(31)
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = np.int64(30)
    elif month == 2:
        is_leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
        longest = np.int64(29) if is_leap else np.int64(28)
    if day > longest:
        return none
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    shifted = month - 3 if month > 2 else month + 9
    of_year = (153 * shifted + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@kernel
def _fraction(data, start, end):
    """Return the microseconds of a fraction, -1 if there is another text, and 0 for none."""
    if start == end:
        return np.int64(0)
    count = end - start - 1
    if data[start] != 46 or count < 1 or count > 6:
        return np.int64(-1)
    number = _number(data, start + 1, count)
    for _ in range(6 - count):
        number *= 10
    return number


@entry
def times(data: Bytes, starts: IntsIn, sizes: IntsIn, form: int, out: Ints) -> int:
    """Convert texts of a form to numbers; return how many are not written as the form says."""
    others = np.int64(0)
    for index in range(starts.shape[0]):
        out[index] = 0
        size = sizes[index]
        if size < 0:
            continue
        pos, end = starts[index], starts[index] + size
        days = np.int64(0)
        if form != TIME:
            days = _days(data, pos) if size >= _DATE_BYTES else np.int64(1) << 40
            if days == np.int64(1) << 40:
                others += 1
                continue
            if form == DATE:
                out[index] = days
                continue
            pos += _DATE_BYTES + 1
        has_zone = data[end - 1] == 90 if size > 0 else False
        end -= np.int64(has_zone)
        is_text = end - pos >= _SECONDS_BYTES and (has_zone or form != INSTANT)
        if not is_text or (form != TIME and data[pos - 1] != 84) or data[pos + 2] != 58 or data[pos + 5] != 58:
            others += 1
            continue
        hours, minutes, seconds = _number(data, pos, 2), _number(data, pos + 3, 2), _number(data, pos + 6, 2)
        fraction = _fraction(data, pos + _SECONDS_BYTES, end)
        if hours < 0 or minutes < 0 or seconds < 0 or fraction < 0 or hours > 23 or minutes > 59 or seconds > 59:
            others += 1
            continue
        out[index] = ((days * 24 + hours) * 60 + minutes) * 60_000_000 + seconds * 1_000_000 + fraction
    return others
