"""Kernel for MySQL's binary JSON -> the compact text of the document, as the server would print it, without blanks.

Format: MySQL `sql-common/json_binary.h`. Text: `json_dom.cc` (`wrapper_to_string`, `double_quote`): keys in stored
order, doubles by `my_gcvt` (`is_bare`: whole ones without `.0`, as MySQL 5.7), decimals with their scale, dates as
quoted text, other opaque values as `base64:type<n>:...`. The result is a string of the layout: in a JSON envelope its
quotes and backslashes are escaped once more.

Offsets of a damaged document may point anywhere inside their container, also at the same bytes many times.
So the text is bounded (no honest document is longer than eight times its bytes) and the depth is MySQL's 100.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, Ints, kernel
from rowcodec.floats import put_mysql_double
from rowcodec.memory import move
from rowcodec.ops import AVRO, E_JSON, E_TEXT
from rowcodec.primitives import (
    is_utf8,
    little_endian,
    little_endian_signed,
    needs_no_escape,
    put_base64,
    put_digits,
    put_fixed_digits,
    put_varint,
)

DEPTH: Final = 100
_FRAME: Final = 6  # numbers per open container on the stack
STACK: Final = _FRAME * (DEPTH + 1)
TEXT_FACTOR: Final = 8
TEXT_SLACK: Final = 64
OVERRUN: Final = 256  # one number or decimal, quotes, and up to DEPTH closing brackets

_OBJECT_SMALL, _OBJECT_LARGE, _ARRAY_SMALL, _ARRAY_LARGE, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246
_LINE_BYTES: Final = 57  # the server breaks base64 after 76 characters

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS = 34, 92, 44, 58, 45
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_WORDS = np.frombuffer(b"null true false base64:type", np.uint8).copy()
_GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)


def _short_escapes() -> Bytes:
    table = np.zeros(32, np.uint8)
    for code, letter in ((8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r")):
        table[code] = letter[0]
    return table


_SHORT_ESCAPES = _short_escapes()


# ── strings ────────────────────


@kernel
def _put_quote(layout: Int, out: Bytes, o: Int) -> Int:
    """Write a quote of the document."""
    if layout != AVRO:
        out[o] = _BACKSLASH
        o += 1
    out[o] = _QUOTE
    return o + 1


@kernel
def _put_backslash(layout: Int, out: Bytes, o: Int) -> Int:
    """Write a backslash of the document."""
    if layout != AVRO:
        out[o] = _BACKSLASH
        o += 1
    out[o] = _BACKSLASH
    return o + 1


@kernel
def _put_string(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Write a string of the document, quoted and escaped as the server does (hex in lower case)."""
    o = _put_quote(layout, out, o)
    if needs_no_escape(buf, at, size):
        return _put_quote(layout, out, move(out, o, buf, at, size))
    for index in range(size):
        code = np.int64(buf[at + index])
        if code == _QUOTE:
            o = _put_backslash(layout, out, o)
            o = _put_quote(layout, out, o)
        elif code == _BACKSLASH:
            o = _put_backslash(layout, out, _put_backslash(layout, out, o))
        elif code >= 32:
            out[o] = np.uint8(code)
            o += 1
        else:
            o = _put_control(out, _put_backslash(layout, out, o), code)
    return _put_quote(layout, out, o)


@kernel
def _put_control(out: Bytes, o: Int, code: Int) -> Int:
    letter = _SHORT_ESCAPES[code]
    if letter != 0:
        out[o] = letter
        return o + 1
    out[o] = 117
    out[o + 1] = 48
    out[o + 2] = 48
    out[o + 3] = _HEX[code >> 4]
    out[o + 4] = _HEX[code & 15]
    return o + 5


@kernel
def _variable_length(buf: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Return a length in groups of seven bits, low first, at most five bytes: (length, where data starts), or (-1, 0)."""
    length = np.int64(0)
    for index in range(5):
        if at + index >= end:
            break
        byte = np.int64(buf[at + index])
        length |= (byte & 127) << np.int64(7 * index)
        if byte < 128:
            if length > end - at - index - 1:
                break
            return length, np.int64(at + index + 1)
    return np.int64(-1), np.int64(0)


# ── scalars ────────────────────


@kernel
def _put_word(out: Bytes, o: Int, first: Int, size: Int) -> Int:
    """Part of `_WORDS`; a global array is another type to Numba than the arrays `copy` takes."""
    for index in range(size):
        out[o + index] = _WORDS[first + index]
    return o + size


@kernel
def _put_literal(out: Bytes, o: Int, code: Int) -> Int:
    if code == 0:
        return _put_word(out, o, 0, 4)
    if code == 1:
        return _put_word(out, o, 5, 4)
    if code == 2:
        return _put_word(out, o, 10, 5)
    return np.int64(-E_JSON)


@kernel
def _put_unsigned(out: Bytes, o: Int, value: Int) -> Int:
    """64 bits of an unsigned number as digits."""
    if value >= 0:
        return put_digits(out, o, value)
    # value = 10 * quotient + digit over unsigned 64 bits
    quotient = (value >> np.int64(1)) & np.int64(0x7FFFFFFFFFFFFFFF)
    quotient //= 5
    o = put_digits(out, o, quotient)
    # The product wraps as the 64 bits do, but both are near: subtract in halves to stay inside int64.
    low = (value & np.int64(0xFFFF)) - ((quotient & np.int64(0xFFFF)) * 10 & np.int64(0xFFFF))
    out[o] = np.uint8(48 + (low & np.int64(0xFFFF)))
    return o + 1


@kernel
def _put_fraction(out: Bytes, o: Int, microseconds: Int) -> Int:
    out[o] = 46
    return put_fixed_digits(out, o + 1, microseconds, 6)


@kernel
def _put_clock(out: Bytes, o: Int, hour: Int, clock: Int) -> Int:
    o = put_fixed_digits(out, o, hour, 3 if hour > 99 else 2)
    out[o] = _COLON
    o = put_fixed_digits(out, o + 1, (clock >> 6) & 63, 2)
    out[o] = _COLON
    return put_fixed_digits(out, o + 1, clock & 63, 2)


@kernel
def _put_temporal(layout: Int, kind: Int, out: Bytes, o: Int, packed: Int) -> Int:
    """DATE, TIME, DATETIME and TIMESTAMP from their packed 64 bits (`my_time.cc`)."""
    o = _put_quote(layout, out, o)
    negative = packed < 0
    if negative:
        packed = -packed
    fraction = packed & np.int64(0xFFFFFF)
    clock = packed >> np.int64(24)
    if fraction > 999_999 or packed < 0 or ((clock >> 6) & 63) > 59 or (clock & 63) > 59:
        return np.int64(-E_JSON)
    if kind == _TIME:
        if negative:
            out[o] = _MINUS
            o += 1
        if clock >> 22:
            return np.int64(-E_JSON)
        o = _put_clock(out, o, (clock >> 12) & 1023, clock)
        return _put_quote(layout, out, _put_fraction(out, o, fraction))
    date = clock >> np.int64(17)
    year_month = date >> 5
    if negative or year_month // 13 > 9999 or ((clock >> 12) & 31) > 23:
        return np.int64(-E_JSON)
    o = put_fixed_digits(out, o, year_month // 13, 4)
    out[o] = _MINUS
    o = put_fixed_digits(out, o + 1, year_month % 13, 2)
    out[o] = _MINUS
    o = put_fixed_digits(out, o + 1, date & 31, 2)
    if kind != _DATE:
        out[o] = 32
        o = _put_clock(out, o + 1, (clock >> 12) & 31, clock)
        o = _put_fraction(out, o, fraction)
    return _put_quote(layout, out, o)


@kernel
def _put_decimal(out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Write a DECIMAL: precision, scale, packed digits; printed with its scale and no zeros in front."""
    if size < 2:
        return np.int64(-E_JSON)
    precision = np.int64(buf[at])
    scale = np.int64(buf[at + 1])
    whole = precision - scale
    if precision < 1 or precision > 65 or scale > 30 or whole < 0:
        return np.int64(-E_JSON)
    expected = whole // 9 * 4 + _GROUP_BYTES[whole % 9] + scale // 9 * 4 + _GROUP_BYTES[scale % 9]
    if size != expected + 2:
        return np.int64(-E_JSON)
    p = np.int64(at + 2)
    negative = (np.int64(buf[p]) & 128) == 0
    flip = np.int64(255) if negative else np.int64(0)
    if negative:
        out[o] = _MINUS
        o += 1
    start = o
    top = np.int64(128)
    for part in range(2):
        left = np.int64(whole if part == 0 else scale)
        if part == 1:
            o = _without_leading_zeros(out, start, o)
            if scale > 0:
                out[o] = 46
                o += 1
        while left > 0:
            digits = np.int64(min(left, 9))
            if part == 0 and left % 9 != 0:
                digits = left % 9
            bytes_ = _GROUP_BYTES[digits]
            group = np.int64(0)
            for index in range(bytes_):
                group = (group << 8) | ((np.int64(buf[p + index]) ^ top) ^ flip)
                top = np.int64(0)
            limit = np.int64(1)
            for _ in range(digits):
                limit *= 10
            if group >= limit:
                return np.int64(-E_JSON)
            o = put_fixed_digits(out, o, group, digits)
            p += bytes_
            left -= digits
    return np.int64(o)


@kernel
def _without_leading_zeros(out: Bytes, start: Int, o: Int) -> Int:
    """Strip leading zeros of the digits out[start:o]; one digit stays."""
    zeros = np.int64(0)
    while start + zeros < o - 1 and out[start + zeros] == 48:
        zeros += 1
    if o == start:
        out[o] = 48
        return o + 1
    for index in range(o - start - zeros):
        out[start + index] = out[start + zeros + index]
    return o - zeros


@kernel
def _put_opaque_bytes(layout: Int, out: Bytes, o: Int, kind: Int, buf: Bytes, at: Int, size: Int) -> Int:
    r"""`"base64:type<kind>:<base64>"`; the server breaks lines after 76 characters, printed as `\n`."""
    o = _put_quote(layout, out, o)
    o = _put_word(out, o, 16, 11)
    o = put_digits(out, o, kind)
    out[o] = _COLON
    o += 1
    done = np.int64(0)
    while size - done > _LINE_BYTES:
        o = put_base64(out, o, buf, at + done, np.int64(_LINE_BYTES))
        o = _put_backslash(layout, out, o)
        out[o] = 110
        o += 1
        done += _LINE_BYTES
    o = put_base64(out, o, buf, at + done, size - done)
    return _put_quote(layout, out, o)


@kernel
def _put_opaque(layout: Int, out: Bytes, o: Int, limit: Int, buf: Bytes, at: Int, end: Int) -> Int:
    if at >= end:
        return np.int64(-E_JSON)
    kind = np.int64(buf[at])
    size, start = _variable_length(buf, at + 1, end)
    if size < 0 or o + 2 * size > limit:
        return np.int64(-E_JSON)
    if kind == _DECIMAL:
        return _put_decimal(out, o, buf, start, size)
    if kind == _TIMESTAMP or kind == _DATE or kind == _TIME or kind == _DATETIME:  # noqa: PLR1714
        if size != 8:
            return np.int64(-E_JSON)
        return _put_temporal(layout, kind, out, o, little_endian(buf, start, 8))
    return _put_opaque_bytes(layout, out, o, kind, buf, start, size)


@kernel
def _put_scalar(
    layout: Int, is_bare: bool, kind: Int, out: Bytes, o: Int, limit: Int, buf: Bytes, at: Int, end: Int
) -> Int:
    """Write a scalar whose data starts at `at`; returns the new end or -E_..."""
    width = np.int64(2)
    if kind == _INT32 or kind == _UINT32:  # noqa: PLR1714  numba has no tuple membership here
        width = np.int64(4)
    elif kind == _INT64 or kind == _UINT64 or kind == _DOUBLE:  # noqa: PLR1714
        width = np.int64(8)
    elif kind == _LITERAL or kind == _STRING or kind == _OPAQUE:  # noqa: PLR1714
        width = np.int64(1)
    if at + width > end:
        return np.int64(-E_JSON)
    if kind == _STRING:
        size, start = _variable_length(buf, at, end)
        if size < 0:
            return np.int64(-E_JSON)
        return _put_checked_string(layout, out, o, limit, buf, start, size)
    if kind == _LITERAL:
        return _put_literal(out, o, np.int64(buf[at]))
    if kind == _INT16 or kind == _INT32 or kind == _INT64:  # noqa: PLR1714
        return put_digits(out, o, little_endian_signed(buf, at, width))
    if kind == _UINT16 or kind == _UINT32 or kind == _UINT64:  # noqa: PLR1714
        return _put_unsigned(out, o, little_endian(buf, at, width))
    if kind == _DOUBLE:
        bits = little_endian(buf, at, 8)
        if ((bits >> np.int64(52)) & 2047) == 2047:
            return np.int64(-E_JSON)
        return put_mysql_double(out, o, bits, is_bare)
    if kind == _OPAQUE:
        return _put_opaque(layout, out, o, limit, buf, at, end)
    return np.int64(-E_JSON)


@kernel
def _put_checked_string(layout: Int, out: Bytes, o: Int, limit: Int, buf: Bytes, at: Int, size: Int) -> Int:
    if not is_utf8(buf, at, size):
        return np.int64(-E_TEXT)
    if o + size * (1 if needs_no_escape(buf, at, size) else 7) > limit:
        return np.int64(-E_JSON)
    return _put_string(layout, out, o, buf, at, size)


# ── containers ────────────────────


@kernel
def _open(buf: Bytes, at: Int, end: Int, kind: Int, stack: Ints, depth: Int) -> bool:
    """Push the container whose data starts at `at`; False when it is damaged."""
    large = kind == _OBJECT_LARGE or kind == _ARRAY_LARGE  # noqa: PLR1714
    is_object = kind == _OBJECT_SMALL or kind == _OBJECT_LARGE  # noqa: PLR1714
    width = np.int64(4) if large else np.int64(2)
    if depth >= DEPTH or at + 2 * width > end:
        return False
    count = little_endian(buf, at, width)
    size = little_endian(buf, at + width, width)
    header = 2 * width + count * ((width + 2 if is_object else 0) + 1 + width)
    if size > end - at or header > size:
        return False
    base = depth * _FRAME
    stack[base] = at
    stack[base + 1] = at + size
    stack[base + 2] = count
    stack[base + 3] = 0
    stack[base + 4] = width
    stack[base + 5] = 1 if is_object else 0
    return True


@kernel
def _put_key(layout: Int, out: Bytes, o: Int, limit: Int, buf: Bytes, stack: Ints, base: Int) -> Int:
    """Write the key of the current member and its colon."""
    width = stack[base + 4]
    entry = stack[base] + 2 * width + stack[base + 3] * (width + 2)
    at = stack[base] + little_endian(buf, entry, width)
    size = little_endian(buf, entry + width, 2)
    if at + size > stack[base + 1]:
        return np.int64(-E_JSON)
    o = _put_checked_string(layout, out, o, limit, buf, at, size)
    if o < 0:
        return o
    out[o] = _COLON
    return o + 1


@kernel
def _is_inline(kind: Int, width: Int) -> bool:
    """Return whether the value is in its entry."""
    if kind == _LITERAL or kind == _INT16 or kind == _UINT16:  # noqa: PLR1714
        return True
    return width == 4 and (kind == _INT32 or kind == _UINT32)  # noqa: PLR1714


@kernel
def put_document(
    layout: Int, is_bare: bool, out: Bytes, o: Int, limit: Int, buf: Bytes, start: Int, stop: Int, stack: Ints
) -> Int:
    """Write the text of the document in buf[start:stop]; the new end, or -E_...

    `out` has room for OVERRUN bytes beyond `limit`: one number, and the brackets still open.
    """
    kind = np.int64(buf[start])
    if kind > _ARRAY_LARGE:
        return _put_scalar(layout, is_bare, kind, out, o, limit, buf, start + 1, stop)
    if not _open(buf, start + 1, stop, kind, stack, np.int64(0)):
        return np.int64(-E_JSON)
    depth = np.int64(1)
    out[o] = 123 if kind <= _OBJECT_LARGE else 91
    o += 1
    while depth > 0:
        base = (depth - 1) * _FRAME
        index = stack[base + 3]
        is_object = stack[base + 5] == 1
        if index == stack[base + 2]:
            out[o] = 125 if is_object else 93
            o += 1
            depth -= 1
            if depth > 0:
                stack[base - _FRAME + 3] += 1
            continue
        if o > limit:
            return np.int64(-E_JSON)
        if index > 0:
            out[o] = _COMMA
            o += 1
        width = stack[base + 4]
        entry = stack[base] + 2 * width + index * (1 + width)
        if is_object:
            o = _put_key(layout, out, o, limit, buf, stack, base)
            if o < 0:
                return o
            entry += stack[base + 2] * (width + 2)
        kind = np.int64(buf[entry])
        at = entry + 1
        if not _is_inline(kind, width):
            at = stack[base] + little_endian(buf, entry + 1, width)
        if kind <= _ARRAY_LARGE:
            if not _open(buf, at, stack[base + 1], kind, stack, depth):
                return np.int64(-E_JSON)
            depth += 1
            out[o] = 123 if kind <= _OBJECT_LARGE else 91
            o += 1
            continue
        o = _put_scalar(layout, is_bare, kind, out, o, limit, buf, at, stack[base + 1])
        if o < 0:
            return o
        stack[base + 3] += 1
    return o


@kernel
def put_json_binary(
    layout: Int, is_bare: bool, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int, stack: Ints
) -> Int:
    """Write a JSON column's value as a string of the layout; no bytes at all are the document `null`."""
    limit_size = TEXT_FACTOR * size + TEXT_SLACK
    if layout != AVRO:
        out[o] = _QUOTE
        if size == 0:
            o = _put_word(out, o + 1, 0, 4)
        else:
            o = put_document(layout, is_bare, out, o + 1, o + 2 * limit_size, buf, at, at + size, stack)
        if o < 0:
            return o
        out[o] = _QUOTE
        return o + 1
    # The text's length is before it: its size is guessed from the input's, and the text moved if need be.
    start = o + (1 if size < 64 else (2 if size < 8192 else 5))
    if size == 0:
        end = _put_word(out, start, 0, 4)
    else:
        end = put_document(layout, is_bare, out, start, start + limit_size, buf, at, at + size, stack)
    if end < 0:
        return end
    return _move_behind_length(out, o, start, end - start)


@kernel
def _move_behind_length(out: Bytes, o: Int, start: Int, length: Int) -> Int:
    """Put the length before out[start:start + length], moving the text to stand right behind it."""
    width = np.int64(1)
    rest = length >> np.int64(6)
    while rest > 0:
        width += 1
        rest >>= np.int64(7)
    to = o + width
    if to != start:
        move(out, to, out, start, length)
    put_varint(out, o, length)
    return to + length
