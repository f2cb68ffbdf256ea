"""Kernels for one row image: find every value's bytes, then convert and write them.

`locate` walks an image once, with every bound checked, and leaves (offset, size) per column in `cells`, size -1
for NULL. `put_cell` converts from there, so the key can be written in key order and `after` in column order
from the same cells, and the binlog and the binary protocol share all writers. Writers return the new end of
`out`, ZERO_DATE for a date that is zero or impossible, or a negative E_ number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, Ints, inlined, kernel
from rowcodec.decimals import bytes_of_uint64, packed_decimal, text_decimal
from rowcodec.floats import put_java_double, put_java_float
from rowcodec.json_binary import put_json_binary
from rowcodec.memory import move
from rowcodec.ops import (
    ARG_A,
    ARG_B,
    AS_ISO,
    AS_MILLISECONDS,
    AS_NANOSECONDS,
    AVRO,
    E_BITS,
    E_FLOAT,
    E_LENGTH,
    E_MEMBER,
    E_NULL,
    E_OPERATION,
    E_RANGE,
    E_TEXT,
    E_TRUNCATED,
    FIXED,
    H_LAYOUT,
    LOCATE,
    NULLABLE,
    OP,
    PREFIXED,
    PROGRAM_WIDTH,
    V_BITS,
    V_BOOLEAN,
    V_BYTES,
    V_DATE_PACKED,
    V_DATE_STRUCT,
    V_DATETIME_PACKED,
    V_DATETIME_STRUCT,
    V_DECIMAL_PACKED,
    V_DECIMAL_TEXT,
    V_DOUBLE,
    V_ENUM,
    V_FLOAT,
    V_FLOAT_WIDENED,
    V_JSON_BINARY,
    V_JSON_TEXT,
    V_SET,
    V_SIGNED,
    V_SINGLE_BYTE_TEXT,
    V_TEXT,
    V_TIME_PACKED,
    V_TIME_STRUCT,
    V_TIMESTAMP_PACKED,
    V_TIMESTAMP_STRUCT,
    V_UNSIGNED,
    V_UNSIGNED_DECIMAL,
    V_YEAR,
    V_YEAR_NUMBER,
    WIDTH,
    X_LIMBS,
    X_STACK,
)
from rowcodec.primitives import (
    has_control,
    is_ascii,
    is_utf8,
    little_endian,
    little_endian_signed,
    put_bytes,
    put_escaped_byte,
    put_number,
    put_text,
    put_varint,
)
from rowcodec.times import (
    CLOCK_PART,
    DATE_PART,
    DAY_US,
    ZERO,
    date_struct,
    datetime_struct,
    fraction_digits,
    packed_date,
    packed_datetime,
    packed_time,
    packed_timestamp,
    put_iso,
    time_struct,
)

ZERO_DATE: Final = -1
_MOST_NANOSECONDS_US: Final = (2**63 - 1) // 1000
_QUOTE = 34
_LINE_FEED = 10


@kernel
def _lenenc(buf: Bytes, p: Int, end: Int) -> tuple[Int, Int]:
    """Return a length-encoded integer at `p`: (value, where it ends); value -1 when it is cut or impossible."""
    if p >= end:
        return np.int64(-1), np.int64(p)
    first = np.int64(buf[p])
    if first < 0xFB:
        return first, np.int64(p + 1)
    size = np.int64(2) if first == 0xFC else (np.int64(3) if first == 0xFD else np.int64(8))
    if first == 0xFB or first == 0xFF or p + 1 + size > end:  # noqa: PLR1714  no tuple membership here
        return np.int64(-1), np.int64(p)
    return little_endian(buf, p + 1, size), np.int64(p + 1 + size)


@kernel
def locate(
    buf: Bytes,
    p: Int,
    end: Int,
    program: Ints,
    base: Int,
    columns: Int,
    null_bit: Int,
    cells: Ints,
    first: Int,
) -> tuple[Int, Int]:
    """Find the values of one image that starts at `p` with its null bitmap (whose first bit is `null_bit`).

    Fills `cells[first:]` with (offset, size) pairs. Returns (end of the image, -1), or (-E_..., column).
    """
    nulls = np.int64(p)
    p += (columns + null_bit + 7) >> 3
    if p > end:
        return np.int64(-E_TRUNCATED), np.int64(0)
    for column in range(columns):
        row = base + column * PROGRAM_WIDTH
        slot = first + 2 * column
        bit = column + null_bit
        if (np.int64(buf[nulls + (bit >> 3)]) >> (bit & 7)) & 1:
            if program[row + NULLABLE] == 0:
                return np.int64(-E_NULL), np.int64(column)
            cells[slot] = p
            cells[slot + 1] = -1
            continue
        width = program[row + WIDTH]
        how = program[row + LOCATE]
        if how == FIXED:
            size = width
        elif how == PREFIXED:
            if p + width > end:
                return np.int64(-E_TRUNCATED), np.int64(column)
            size = little_endian(buf, p, width)
            p += width
        else:
            size, p = _lenenc(buf, p, end)
        if size < 0 or size > end - p:
            return np.int64(-E_TRUNCATED), np.int64(column)
        cells[slot] = p
        cells[slot + 1] = size
        p += size
    return np.int64(p), np.int64(-1)


# ── text ────────────────────


@kernel
def _is_half(buf: Bytes, p: Int, end: Int) -> bool:
    """Return whether half of a surrogate pair is at `p`, which is no character of its own: ED, A0 to BF, 80 to BF."""
    if p + 3 > end or buf[p] != 0xED:
        return False
    return (np.int64(buf[p + 1]) & 0xE0) == 0xA0 and (np.int64(buf[p + 2]) & 0xC0) == 0x80


@kernel
def _count_halves(buf: Bytes, at: Int, size: Int) -> Int:
    """Return how many halves of surrogate pairs stand in text that is UTF-8 otherwise; -1 when it is not."""
    p = np.int64(at)
    start = np.int64(at)
    end = p + np.int64(size)
    count = np.int64(0)
    while p < end:
        if not _is_half(buf, p, end):
            p += 1
            continue
        if not is_utf8(buf, start, p - start):
            return np.int64(-1)
        count += 1
        p += 3
        start = p
    return count if is_utf8(buf, start, end - start) else np.int64(-1)


@kernel
def _put_text_with_halves(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Text with halves of surrogate pairs, which MariaDB stores: `?` for each, as for all that is no character."""
    halves = _count_halves(buf, at, size)
    if halves < 0:
        return np.int64(-E_TEXT)
    if layout == AVRO:
        o = put_varint(out, o, size - 2 * halves)
    else:
        out[o] = _QUOTE
        o += 1
    p = np.int64(at)
    end = p + np.int64(size)
    while p < end:
        if _is_half(buf, p, end):
            out[o] = 63
            o += 1
            p += 3
            continue
        if layout == AVRO:
            out[o] = buf[p]
            o += 1
        else:
            o = put_escaped_byte(out, o, np.int64(buf[p]))
        p += 1
    if layout != AVRO:
        out[o] = _QUOTE
        o += 1
    return np.int64(o)


@kernel
def _put_single_byte_text(
    layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int, pool: Bytes, table: Int
) -> Int:
    """Text of a single-byte charset by a table of 256 x (length, three bytes) of UTF-8."""
    if is_ascii(buf, at, size):
        return put_text(layout, out, o, buf, at, size)
    if layout == AVRO:
        total = np.int64(0)
        for index in range(size):
            total += np.int64(pool[table + 4 * np.int64(buf[at + index])])
        o = put_varint(out, o, total)
    else:
        out[o] = _QUOTE
        o += 1
    for index in range(size):
        code = np.int64(buf[at + index])
        if code < 0x80 and layout != AVRO:
            o = put_escaped_byte(out, o, code)
            continue
        entry = table + 4 * code
        o = move(out, o, pool, entry + 1, np.int64(pool[entry]))
    if layout != AVRO:
        out[o] = _QUOTE
        o += 1
    return o


@kernel
def _is_blank(code: Int) -> bool:
    return code == 32 or code == 10 or code == 13 or code == 9  # noqa: PLR1714  no tuple membership here


@kernel
def _put_line_break(layout: Int, out: Bytes, o: Int) -> Int:
    r"""Write the `\n` of a JSON document."""
    out[o] = 92
    if layout != AVRO:
        o += 1
        out[o] = 92
    out[o + 1] = 110
    return o + 2


@kernel
def _put_compact_json(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Write JSON text without the blanks between its tokens, as a string of the layout."""
    if has_control(buf, at, size):
        return _put_broken_lines(layout, out, o, buf, at, size)
    blanks = np.int64(0)
    quoted = False
    escaped = False
    for index in range(size):
        code = np.int64(buf[at + index])
        if quoted:
            if escaped:
                escaped = False
            elif code == 92:
                escaped = True
            elif code == _QUOTE:
                quoted = False
        elif code == _QUOTE:
            quoted = True
        elif _is_blank(code):
            blanks += 1
    if blanks == 0:
        return put_text(layout, out, o, buf, at, size)
    if layout == AVRO:
        o = put_varint(out, o, size - blanks)
    else:
        out[o] = _QUOTE
        o += 1
    quoted = False
    escaped = False
    for index in range(size):
        code = np.int64(buf[at + index])
        if quoted:
            if escaped:
                escaped = False
            elif code == 92:
                escaped = True
            elif code == _QUOTE:
                quoted = False
        elif code == _QUOTE:
            quoted = True
        elif _is_blank(code):
            continue
        if layout == AVRO:
            out[o] = np.uint8(code)
            o += 1
        else:
            o = put_escaped_byte(out, o, code)
    if layout != AVRO:
        out[o] = _QUOTE
        o += 1
    return o


# ── bits, members ────────────────────


@kernel
def _state_after(state: Int, code: Int) -> Int:
    """Return where a JSON text is behind a character: 0 between tokens, 1 in a string, 2 behind a backslash in it."""
    if state == 2:
        return np.int64(1)
    if code == _QUOTE:
        return 1 - state
    return np.int64(2) if state == 1 and code == 92 else state


@kernel
def _put_broken_lines(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Write JSON text as `_put_compact_json` does it, and escape the line breaks in its strings.

    MySQL 5.7 prints those in the Base64 of long binaries raw, which is no JSON; 8.0 escapes them.
    """
    length = np.int64(0)
    state = np.int64(0)
    for index in range(size):
        code = np.int64(buf[at + index])
        state = _state_after(state, code)
        if state != 0 or not _is_blank(code):
            length += 2 if code == _LINE_FEED else 1
    if layout == AVRO:
        o = put_varint(out, o, length)
    else:
        out[o] = _QUOTE
        o += 1
    state = np.int64(0)
    for index in range(size):
        code = np.int64(buf[at + index])
        state = _state_after(state, code)
        if state == 0 and _is_blank(code):
            continue
        if code == _LINE_FEED:
            o = _put_line_break(layout, out, o)
        elif layout == AVRO:
            out[o] = np.uint8(code)
            o += 1
        else:
            o = put_escaped_byte(out, o, code)
    if layout != AVRO:
        out[o] = _QUOTE
        o += 1
    return o


@kernel
def _put_bits(
    layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int, bits: Int, small: Bytes
) -> Int:
    """BIT(n): big-endian bytes in, little-endian bytes out; -E_BITS when higher bits are set."""
    wanted = (bits + 7) >> 3
    if size != wanted:
        return np.int64(-E_LENGTH)
    spare = wanted * 8 - bits
    if spare > 0 and (np.int64(buf[at]) >> (8 - spare)) != 0:
        return np.int64(-E_BITS)
    for index in range(size):
        small[index] = buf[at + size - 1 - index]
    return put_bytes(layout, out, o, small, 0, size)


@kernel
def _put_padded(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int, wanted: Int) -> Int:
    """BINARY(n): the binlog trims trailing zero bytes, the column has them."""
    if size > wanted:
        return np.int64(-E_LENGTH)
    if layout == AVRO:
        o = move(out, put_varint(out, o, wanted), buf, at, size)
        for index in range(wanted - size):
            out[o + index] = 0
        return o + wanted - size
    # Base64 needs the padded bytes in one piece: they are laid out behind the text and encoded from there.
    room = o + 8 + (wanted + 2) // 3 * 4
    move(out, room, buf, at, size)
    for index in range(wanted - size):
        out[room + size + index] = 0
    return put_bytes(layout, out, o, out, room, wanted)


@kernel
def _put_enum(out: Bytes, o: Int, index: Int, pool: Bytes, program: Ints, table: Int, members: Int) -> Int:
    """ENUM: the pool holds every label as it is in the layout, index 0 (an invalid value) as ''."""
    if index > members:
        return np.int64(-E_MEMBER)
    entry = table + 2 * index
    return move(out, o, pool, program[entry], program[entry + 1])


@kernel
def _put_set(
    layout: Int, out: Bytes, o: Int, bits: Int, pool: Bytes, program: Ints, table: Int, members: Int
) -> Int:
    """SET: chosen labels in definition order, joined by commas; the pool holds them without quotes."""
    if members < 64 and (bits >> np.int64(members)) != 0:
        return np.int64(-E_MEMBER)
    if layout == AVRO:
        total = np.int64(-1)
        for member in range(members):
            if (bits >> np.int64(member)) & 1:
                total += program[table + 2 * member + 1] + 1
        o = put_varint(out, o, max(total, np.int64(0)))
    else:
        out[o] = _QUOTE
        o += 1
    first = True
    for member in range(members):
        if (bits >> np.int64(member)) & 1:
            if not first:
                out[o] = 44
                o += 1
            first = False
            o = move(out, o, pool, program[table + 2 * member], program[table + 2 * member + 1])
    if layout != AVRO:
        out[o] = _QUOTE
        o += 1
    return o


# ── temporal ────────────────────


@kernel
def _temporal(op: Int, a: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Days or microseconds of a temporal value, ZERO, or ZERO - E_..."""
    if op == V_DATETIME_PACKED:
        return packed_datetime(buf, at, a)
    if op == V_TIMESTAMP_PACKED:
        return packed_timestamp(buf, at, a)
    if op == V_DATETIME_STRUCT or op == V_TIMESTAMP_STRUCT:  # noqa: PLR1714  no tuple membership here
        return datetime_struct(buf, at, size)
    if op == V_DATE_PACKED:
        return packed_date(buf, at)
    if op == V_DATE_STRUCT:
        return date_struct(buf, at, size)
    if op == V_TIME_PACKED:
        return packed_time(buf, at, a)
    return time_struct(buf, at, size)


@kernel
def _put_temporal(
    layout: Int, op: Int, a: Int, b: Int, buf: Bytes, at: Int, size: Int, out: Bytes, o: Int
) -> Int:
    """Write a temporal value in its form `b`; -E_RANGE for one that the form cannot hold."""
    value = _temporal(op, a, buf, at, size)
    if value <= ZERO:
        return np.int64(ZERO_DATE) if value == ZERO else value - np.int64(ZERO)
    if op == V_TIMESTAMP_PACKED or op == V_TIMESTAMP_STRUCT:  # noqa: PLR1714  no tuple membership here
        return put_iso(layout, out, o, value, a, DATE_PART + CLOCK_PART)
    if b == 1:
        return put_number(layout, out, o, value)
    if b == AS_NANOSECONDS:
        if value > _MOST_NANOSECONDS_US or value < -_MOST_NANOSECONDS_US:
            return np.int64(-E_RANGE)
        return put_number(layout, out, o, value * 1000)
    is_time = op == V_TIME_PACKED or op == V_TIME_STRUCT  # noqa: PLR1714
    if is_time and (value < 0 or value > DAY_US or (b == AS_ISO and value == DAY_US)):
        return np.int64(-E_RANGE)
    if b == AS_MILLISECONDS:
        return put_number(layout, out, o, value // b)
    if is_time:
        return put_iso(layout, out, o, value, fraction_digits(value), CLOCK_PART)
    if op == V_DATE_PACKED or op == V_DATE_STRUCT:  # noqa: PLR1714
        return put_iso(layout, out, o, value * DAY_US, np.int64(0), DATE_PART)
    return put_iso(layout, out, o, value, fraction_digits(value), DATE_PART + CLOCK_PART)


# ── one value ────────────────────


@inlined
def put_cell(
    program: Ints,
    row: Int,
    buf: Bytes,
    at: Int,
    size: Int,
    out: Bytes,
    o: Int,
    pool: Bytes,
    small: Bytes,
    limbs: Ints,
) -> Int:
    """Convert and write one value that is not NULL, by the operation of its program row."""
    layout = program[H_LAYOUT]
    op = program[row + OP]
    a = program[row + ARG_A]
    if op == V_SIGNED:
        return put_number(layout, out, o, little_endian_signed(buf, at, size))
    if op == V_TEXT:
        if not is_utf8(buf, at, size):
            return _put_text_with_halves(layout, out, o, buf, at, size)
        return put_text(layout, out, o, buf, at, size)
    if op == V_UNSIGNED:
        return put_number(layout, out, o, little_endian(buf, at, size))
    if V_DATE_PACKED <= op <= V_TIMESTAMP_STRUCT:
        return _put_temporal(layout, op, a, program[row + ARG_B], buf, at, size, out, o)
    if V_DECIMAL_PACKED <= op <= V_DECIMAL_TEXT or op == V_UNSIGNED_DECIMAL:
        if op == V_DECIMAL_PACKED:
            length = packed_decimal(small, limbs, buf, at, a, program[row + ARG_B])
        elif op == V_DECIMAL_TEXT:
            length = text_decimal(small, limbs, buf, at, size, program[row + ARG_B])
        else:
            length = np.int64(bytes_of_uint64(small, little_endian(buf, at, size)))
        if length < 0:
            return length
        return put_bytes(layout, out, o, small, 0, length)
    if op == V_DOUBLE or op == V_FLOAT or op == V_FLOAT_WIDENED:  # noqa: PLR1714  no tuple membership here
        return _put_floating(layout, op, buf, at, size, out, o)
    if op == V_JSON_BINARY:
        return put_json_binary(layout, a != 0, out, o, buf, at, size, limbs[X_STACK - X_LIMBS :])
    return _put_rare_cell(layout, op, a, program, row, buf, at, size, out, o, pool, small)


@kernel
def _put_floating(layout: Int, op: Int, buf: Bytes, at: Int, size: Int, out: Bytes, o: Int) -> Int:
    """FLOAT and DOUBLE: the bits in Avro, shortest digits in JSON; infinities and NaN are no values of MySQL."""
    bits = little_endian(buf, at, size)
    special = (bits >> np.int64(52)) & 2047 == 2047 if size == 8 else (bits >> np.int64(23)) & 255 == 255
    if special:
        return np.int64(-E_FLOAT)
    if op == V_FLOAT_WIDENED:
        bits = widened_bits(bits)
    if layout != AVRO:
        return put_java_float(out, o, bits) if op == V_FLOAT else put_java_double(out, o, bits)
    if op != V_FLOAT_WIDENED:
        return move(out, o, buf, at, size)
    for index in range(8):
        out[o + index] = np.uint8((bits >> np.int64(8 * index)) & np.int64(255))
    return o + 8


@kernel
def _put_rare_cell(
    layout: Int,
    op: Int,
    a: Int,
    program: Ints,
    row: Int,
    buf: Bytes,
    at: Int,
    size: Int,
    out: Bytes,
    o: Int,
    pool: Bytes,
    small: Bytes,
) -> Int:
    if op == V_SINGLE_BYTE_TEXT:
        return _put_single_byte_text(layout, out, o, buf, at, size, pool, a)
    if op == V_BYTES:
        if a > 0:
            return _put_padded(layout, out, o, buf, at, size, a)
        return put_bytes(layout, out, o, buf, at, size)
    if op == V_JSON_TEXT:
        if not is_utf8(buf, at, size):
            return np.int64(-E_TEXT)
        return _put_compact_json(layout, out, o, buf, at, size)
    if op == V_ENUM:
        return _put_enum(out, o, little_endian(buf, at, size), pool, program, a, program[row + ARG_B])
    if op == V_SET:
        return _put_set(layout, out, o, little_endian(buf, at, size), pool, program, a, program[row + ARG_B])
    if op == V_BITS:
        return _put_bits(layout, out, o, buf, at, size, a, small)
    if op == V_BOOLEAN:
        return _put_boolean(layout, out, o, buf, at, size)
    if op == V_YEAR:
        code = np.int64(buf[at])
        return put_number(layout, out, o, code + 1900 if code > 0 else a)
    if op == V_YEAR_NUMBER:
        year = np.int64(little_endian(buf, at, size))
        if 0 < year < 100:
            year += 2000 if year < 70 else 1900
        return put_number(layout, out, o, year if year > 0 else a)
    return np.int64(-E_OPERATION)


@kernel
def _put_boolean(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    if size != 1:
        return np.int64(-E_LENGTH)
    value = np.int64(buf[at])
    if value > 1:
        return np.int64(-E_BITS)
    if layout == AVRO:
        out[o] = np.uint8(value)
        return o + 1
    word = np.int64(0x65757274) if value == 1 else np.int64(0x736C6166)  # "true", "fals"
    for index in range(4):
        out[o + index] = np.uint8((word >> np.int64(8 * index)) & np.int64(255))
    if value == 1:
        return o + 4
    out[o + 4] = 101
    return o + 5


@kernel
def widened_bits(single: Int) -> Int:
    """Return the bits of a float64 equal to the finite float32 with these bits."""
    sign = (single >> np.int64(31)) & np.int64(1)
    exponent = (single >> np.int64(23)) & np.int64(255)
    fraction = single & np.int64(0x7FFFFF)
    if exponent == 0:
        if fraction == 0:
            return sign << np.int64(63)
        exponent = np.int64(1)
        while fraction & np.int64(0x800000) == 0:
            fraction <<= np.int64(1)
            exponent -= 1
        fraction &= np.int64(0x7FFFFF)
    return (sign << np.int64(63)) | ((exponent + 896) << np.int64(52)) | (fraction << np.int64(29))
