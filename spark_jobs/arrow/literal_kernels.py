"""Kernels that write SQL: leaves of Avro records enter, and of each row a text with the literals of some columns leaves.

A row is its literals with a separator between them, between two ends. The bytes of a text are those that `row_values` writes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_jobs.arrow.worker_kernels import Bytes, BytesOut, Ints, IntsIn, TableIn, entry, kernel

# Columns of the table of literals.
KIND: Final = 0
SLOT: Final = 1
NEW: Final = 2  # the slots of the new and the old value: the literal is left out if they are equal
OLD: Final = 3  # -1: it is never left out
NAME: Final = 4  # from here to NAME_END of the constants is written before the literal
NAME_END: Final = 5
SCALE: Final = 6  # of a DECIMAL its digits behind the point, of a moment its unit in microseconds
LITERAL_WIDTH: Final = 7

# Kinds.
NUMBER: Final = 0
UNSIGNED: Final = 1
DECIMAL: Final = 2
TEXT: Final = 3
BINARY: Final = 4
BITS: Final = 5
DATE: Final = 6
CLOCK: Final = 7
MOMENT: Final = 8
ZONED: Final = 9
GEOMETRY: Final = 10  # the SRID and the WKB are in the two slots behind it
PLAIN: Final = 11  # bytes that are a literal already
DIGITS: Final = 12  # a number as text

TOO_SHORT: Final = -1
UNUSUAL: Final = -2

_DAY_US: Final = 86_400_000_000
_MOST_US: Final = 1 << 60
_ROOM: Final = 256
_LIMBS: Final = 10
SCRATCH: Final = 110
"""Numbers that a decimal of more than eight bytes needs."""
MOST_SCALE: Final = 60
_MOST_DECIMAL_BYTES: Final = 36
_QUOTE, _BACKSLASH, _ZERO = 39, 92, 48


@kernel
def _copy(data, start, end, out, pos):
    for index in range(start, end):
        out[pos] = data[index]
        pos += 1
    return pos


@kernel
def _digits(number, least, out, pos):
    """Write a number that is not negative with at least so many digits."""
    count = np.int64(1)
    rest = number // np.uint64(10)
    while rest > np.uint64(0):
        count += 1
        rest //= np.uint64(10)
    count = max(count, least)
    end = pos + count
    for index in range(count):
        out[end - 1 - index] = np.uint8(np.uint64(_ZERO) + number % np.uint64(10))
        number //= np.uint64(10)
    return end


@kernel
def _number(number, out, pos):
    if number < 0:
        out[pos] = 45
        return _digits(np.uint64(0) - np.uint64(number), np.int64(1), out, pos + 1)
    return _digits(np.uint64(number), np.int64(1), out, pos)


@kernel
def _scaled(number, scale, out, pos):
    """Write a number that is not negative with a point before its last digits."""
    end = _digits(number, scale + 1, out, pos)
    if scale > 0:
        for index in range(scale):
            out[end - index] = out[end - index - 1]
        out[end - scale] = 46
        end += 1
    return end


@kernel
def _decimal(data, start, size, scale, scratch, out, pos):
    """Write the number that big-endian two's complement bytes are."""
    is_negative = size > 0 and data[start] >= 0x80
    if is_negative:
        out[pos] = 45
        pos += 1
    if size <= 8:
        small = np.uint64(0xFFFFFFFFFFFFFFFF) if is_negative else np.uint64(0)
        for index in range(size):
            small = (small << np.uint64(8)) | np.uint64(data[start + index])
        if is_negative:
            small = np.uint64(0) - small
        return _scaled(small, scale, out, pos)
    for index in range(_LIMBS):  # of 32 bits, the lowest first
        scratch[index] = 0
    carry = np.int64(1) if is_negative else np.int64(0)
    flip = np.int64(0xFF) if is_negative else np.int64(0)
    for index in range(size):
        byte = (np.int64(data[start + size - 1 - index]) ^ flip) + carry
        carry = byte >> 8
        scratch[index // 4] |= (byte & 0xFF) << (8 * (index % 4))
    for index in range(_LIMBS, SCRATCH):  # digits, the lowest first
        scratch[index] = 0
    count = np.int64(0)
    highest = np.int64(_LIMBS - 1)
    while True:
        while highest >= 0 and scratch[highest] == 0:
            highest -= 1
        if highest < 0:
            break
        rest = np.int64(0)
        for back in range(highest + 1):
            part = (rest << 32) | scratch[highest - back]
            scratch[highest - back] = part // 1_000_000_000
            rest = part % 1_000_000_000
        for _ in range(9):
            scratch[_LIMBS + count] = rest % 10
            rest //= 10
            count += 1
    while count > 0 and scratch[_LIMBS + count - 1] == 0:
        count -= 1
    count = max(count, scale + 1)
    for back in range(count):
        index = count - 1 - back
        out[pos] = np.uint8(_ZERO + scratch[_LIMBS + index])
        pos += 1
        if index == scale and scale > 0:
            out[pos] = 46
            pos += 1
    return pos


@kernel
def _escaped(data, start, end, out, pos):
    for index in range(start, end):
        byte = data[index]
        if byte == _QUOTE or byte == _BACKSLASH:
            out[pos] = byte
            pos += 1
        out[pos] = byte
        pos += 1
    return pos


@kernel
def _quoted(data, start, end, out, pos):
    out[pos] = _QUOTE
    pos = _escaped(data, start, end, out, pos + 1)
    out[pos] = _QUOTE
    return pos + 1


@kernel
def _is_text(data, start, end):
    """Return whether bytes are UTF-8 as Python reads it: shortest forms, no surrogates."""
    pos = start
    while pos < end:
        byte = data[pos]
        if byte < 0x80:
            pos += 1
            continue
        more = np.int64(1) if byte < 0xE0 else np.int64(2) if byte < 0xF0 else np.int64(3)
        if byte < 0xC2 or byte > 0xF4 or pos + more >= end:
            return False
        second = data[pos + 1]
        is_low = second < 0x80 or (byte == 0xE0 and second < 0xA0) or (byte == 0xF0 and second < 0x90)
        is_high = second > 0xBF or (byte == 0xED and second > 0x9F) or (byte == 0xF4 and second > 0x8F)
        if is_low or is_high:
            return False
        for index in range(2, more + 1):
            if data[pos + index] < 0x80 or data[pos + index] > 0xBF:
                return False
        pos += more + 1
    return True


@kernel
def _date(days, out, pos):
    """Write days since 1970 as a date of the years 0 to 9999; the position is negative for others."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400
    if month <= 2:
        year += 1
    if year < 0 or year > 9999:
        return np.int64(UNUSUAL)
    pos = _digits(np.uint64(year), np.int64(4), out, pos)
    out[pos] = 45
    pos = _digits(np.uint64(month), np.int64(2), out, pos + 1)
    out[pos] = 45
    return _digits(np.uint64(day), np.int64(2), out, pos + 1)


@kernel
def _clock(microseconds, out, pos):
    if microseconds < 0:
        out[pos] = 45
        pos += 1
        microseconds = -microseconds
    seconds = microseconds // 1_000_000
    pos = _digits(np.uint64(seconds // 3600), np.int64(2), out, pos)
    out[pos] = 58
    pos = _digits(np.uint64(seconds // 60 % 60), np.int64(2), out, pos + 1)
    out[pos] = 58
    pos = _digits(np.uint64(seconds % 60), np.int64(2), out, pos + 1)
    out[pos] = 46
    return _digits(np.uint64(microseconds % 1_000_000), np.int64(6), out, pos + 1)


@kernel
def _moment(value, unit, out, pos):
    if value > _MOST_US // unit or value < -(_MOST_US // unit):
        return np.int64(UNUSUAL)
    microseconds = value * unit
    days = microseconds // _DAY_US
    pos = _date(days, out, pos)
    if pos < 0:
        return pos
    out[pos] = 32
    return _clock(microseconds - days * _DAY_US, out, pos + 1)


@kernel
def _zoned(data, start, end, out, pos):
    """Write the time of 2024-05-06T07:08:09.5Z without its letters."""
    while end > start and data[end - 1] == 90:
        end -= 1
    for index in range(start, end):
        byte = data[index]
        is_digit = byte >= 48 and byte <= 57
        if not (is_digit or byte == 45 or byte == 58 or byte == 46 or byte == 84):
            return np.int64(UNUSUAL)
        out[pos] = np.uint8(32) if byte == 84 else byte
        pos += 1
    return pos


@kernel
def _plain_digits(data, start, end, out, pos):
    """Write a number that is a text, as 12.50: no sign but a minus, no exponent, no zero at its beginning."""
    first = start + 1 if end > start and data[start] == 45 else start
    has_point = False
    for index in range(first, end):
        byte = data[index]
        is_point = byte == 46 and index > first and index < end - 1 and not has_point
        has_point |= is_point
        if not is_point and (byte < 48 or byte > 57):
            return np.int64(UNUSUAL)
    if first >= end or (data[first] == 48 and end > first + 1 and data[first + 1] != 46):
        return np.int64(UNUSUAL)
    return _copy(data, start, end, out, pos)


@kernel
def _binary_mark(out, pos):
    """Write `_binary`."""
    out[pos] = 95
    out[pos + 1] = 98
    out[pos + 2] = 105
    out[pos + 3] = 110
    out[pos + 4] = 97
    out[pos + 5] = 114
    out[pos + 6] = 121
    return pos + 7


@kernel
def _geometry(data, srid, start, end, out, pos):
    """Write the server's own form: the SRID, then the WKB."""
    pos = _binary_mark(out, pos)
    out[pos] = _QUOTE
    pos += 1
    for index in range(4):
        byte = np.uint8((srid >> (8 * index)) & 0xFF)
        if byte == _QUOTE or byte == _BACKSLASH:
            out[pos] = byte
            pos += 1
        out[pos] = byte
        pos += 1
    pos = _escaped(data, start, end, out, pos)
    out[pos] = _QUOTE
    return pos + 1


@kernel
def _bits(data, start, size, out, pos):
    number = np.uint64(0)
    for index in range(size):
        number |= np.uint64(data[start + index]) << np.uint64(8 * index)
    return _digits(number, np.int64(1), out, pos)


@kernel
def _temporal(kind, data, value, size, unit, out, pos):
    """Write a date or time in quotes."""
    out[pos] = _QUOTE
    pos += 1
    if kind == DATE:
        pos = _date(value, out, pos)
    elif kind == CLOCK:
        pos = _clock(value, out, pos)
    elif kind == MOMENT:
        pos = _moment(value, unit, out, pos)
    else:
        pos = _zoned(data, value, value + size, out, pos)
    if pos < 0:
        return pos
    out[pos] = _QUOTE
    return pos + 1


@kernel
def _literal(data, value, size, kind, scale, scratch, out, pos):
    if kind == NUMBER:
        return _number(value, out, pos)
    if kind == UNSIGNED:
        return _digits(np.uint64(value), np.int64(1), out, pos)
    if kind == DECIMAL:
        return np.int64(UNUSUAL) if size > _MOST_DECIMAL_BYTES else _decimal(data, value, size, scale, scratch, out, pos)
    if kind == TEXT:
        return _quoted(data, value, value + size, out, pos) if _is_text(data, value, value + size) else np.int64(UNUSUAL)
    if kind == BINARY:
        return _quoted(data, value, value + size, out, _binary_mark(out, pos))
    if kind == BITS:
        return np.int64(UNUSUAL) if size > 8 else _bits(data, value, size, out, pos)
    if kind == DIGITS:
        return _plain_digits(data, value, value + size, out, pos)
    if kind == PLAIN:
        return _copy(data, value, value + size, out, pos)
    return _temporal(kind, data, value, size, scale, out, pos)


@kernel
def _written(data, values, sizes, slot, row, kind, scale, scratch, out, pos):
    """Write the literal of a leaf; return the position behind it, or `UNUSUAL`."""
    size = sizes[slot, row]
    if size < 0:
        out[pos] = 78
        out[pos + 1] = 85
        out[pos + 2] = out[pos + 3] = 76
        return pos + 4
    if kind != GEOMETRY:
        return _literal(data, values[slot, row], size, kind, scale, scratch, out, pos)
    if sizes[slot + 2, row] < 0:
        return np.int64(UNUSUAL)
    start = values[slot + 2, row]
    srid = values[slot + 1, row] if sizes[slot + 1, row] >= 0 else np.int64(0)
    return _geometry(data, srid, start, start + sizes[slot + 2, row], out, pos)


@kernel
def _has_bytes(kind):
    return kind == DECIMAL or kind == TEXT or kind == BINARY or kind == BITS or kind >= ZONED


@kernel
def _is_same_leaf(data, value, size, old, old_size, has_bytes):
    if size != old_size or size < 0:
        return size == old_size
    if not has_bytes:
        return value == old
    for index in range(size):
        if data[value + index] != data[old + index]:
            return False
    return True


@kernel
def _is_same(data, values, sizes, slot, row, old, old_row, kind):
    if kind != GEOMETRY:
        return _is_same_leaf(
            data, values[slot, row], sizes[slot, row], values[old, old_row], sizes[old, old_row], _has_bytes(kind)
        )
    if (sizes[slot, row] < 0) != (sizes[old, old_row] < 0):
        return False
    return _is_same_leaf(
        data, values[slot + 1, row], sizes[slot + 1, row], values[old + 1, old_row], sizes[old + 1, old_row], False
    ) and _is_same_leaf(
        data, values[slot + 2, row], sizes[slot + 2, row], values[old + 2, old_row], sizes[old + 2, old_row], True
    )


@entry
def write_literals(
    data: Bytes,
    values: TableIn,
    sizes: TableIn,
    rows: IntsIn,
    old_rows: IntsIn,
    literals: TableIn,
    texts: Bytes,
    marks: IntsIn,
    scratch: Ints,
    out: BytesOut,
    ends: Ints,
    counts: Ints,
) -> int:
    """Write the text of each row to `out`, and note its end and how many literals it has.

    `rows` are the columns of `values` and `sizes` with the values, `old_rows` the columns with the old ones. `marks` are the bounds
    in `texts` of the begin of a row, the separator, and the end of a row. Returns the number of rows, `TOO_SHORT` if `out` is, or
    `UNUSUAL` if a value has to be written by Python.
    """
    pos = np.int64(0)
    fixed = marks[1] - marks[0] + marks[5] - marks[4] + _ROOM
    for index in range(rows.shape[0]):
        row, old_row = rows[index], old_rows[index]
        if pos + fixed > out.shape[0]:
            return np.int64(TOO_SHORT)
        pos = _copy(texts, marks[0], marks[1], out, pos)
        count = np.int64(0)
        for number in range(literals.shape[0]):
            kind, slot, old = literals[number, KIND], literals[number, SLOT], literals[number, OLD]
            if old >= 0 and _is_same(data, values, sizes, literals[number, NEW], row, old, old_row, kind):
                continue
            longest = max(sizes[slot + 2 if kind == GEOMETRY else slot, row], np.int64(0))
            room = 3 * longest + literals[number, NAME_END] - literals[number, NAME] + marks[3] - marks[2] + fixed
            if pos + room > out.shape[0]:
                return np.int64(TOO_SHORT)
            if count > 0:
                pos = _copy(texts, marks[2], marks[3], out, pos)
            count += 1
            pos = _copy(texts, literals[number, NAME], literals[number, NAME_END], out, pos)
            pos = _written(data, values, sizes, slot, row, kind, literals[number, SCALE], scratch, out, pos)
            if pos < 0:
                return pos
        pos = _copy(texts, marks[4], marks[5], out, pos)
        ends[index] = pos
        counts[index] = count
    return np.int64(rows.shape[0])
