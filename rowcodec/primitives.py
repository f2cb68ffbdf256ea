"""Kernels for the smallest things: copying, little and big endian, varints, digits, text checks, base64.

Conventions of all kernels: `buf` is what is read, `out` what is written, `o` the next free byte of `out`. Who
calls has checked that the bytes read exist and that `out` has room. Words are used where they fit (`memory`).
"""

from __future__ import annotations

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, kernel
from rowcodec.memory import load_word, load_word_big, move
from rowcodec.ops import AVRO

_QUOTE = 34
_BACKSLASH = 92
_TEN = np.uint64(10)
_ZERO_DIGIT = np.uint64(48)
_HIGH_BITS = np.int64(-0x7F7F7F7F7F7F7F80)
_EACH_1 = np.int64(0x0101010101010101)
_EACH_32 = np.int64(0x2020202020202020)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()


def _short_escapes() -> Bytes:
    table = np.zeros(32, np.uint8)
    for code, letter in ((8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r")):
        table[code] = letter[0]
    return table


_SHORT_ESCAPES = _short_escapes()


@kernel
def little_endian(buf: Bytes, at: Int, size: Int) -> Int:
    """Return an unsigned little-endian number of 0 to 8 bytes, as int64 (64-bit values keep their bits)."""
    if at + 8 <= buf.size:
        word = load_word(buf, at)
        return word if size >= 8 else word & ((np.int64(1) << np.int64(8 * size)) - 1)
    value = np.int64(0)
    for index in range(size):
        value |= np.int64(buf[at + index]) << np.int64(8 * index)
    return value


@kernel
def little_endian_signed(buf: Bytes, at: Int, size: Int) -> Int:
    """Return a little-endian two's complement number of 1 to 8 bytes."""
    shift = np.int64(64 - 8 * size)
    return (little_endian(buf, at, size) << shift) >> shift


@kernel
def big_endian(buf: Bytes, at: Int, size: Int) -> Int:
    """Return an unsigned big-endian number of 0 to 8 bytes, as int64."""
    if at + 8 <= buf.size:
        word = load_word_big(buf, at)
        if size >= 8:
            return word
        mask = (np.int64(1) << np.int64(8 * size)) - 1
        return (word >> np.int64(64 - 8 * size)) & mask if size > 0 else np.int64(0)
    value = np.int64(0)
    for index in range(size):
        value = (value << np.int64(8)) | np.int64(buf[at + index])
    return value


@kernel
def put_varint(out: Bytes, o: Int, value: Int) -> Int:
    """Avro's int and long: zigzag, seven bits a byte; at most 10 bytes."""
    number = np.int64(value)
    rest = (number << np.int64(1)) ^ (number >> np.int64(63))
    while rest & np.int64(-128):
        out[o] = np.uint8((rest & np.int64(0x7F)) | np.int64(0x80))
        o += 1
        rest = (rest >> np.int64(7)) & np.int64(0x01FFFFFFFFFFFFFF)
    out[o] = np.uint8(rest)
    return o + 1


@kernel
def put_fixed_digits(out: Bytes, o: Int, value: Int, size: Int) -> Int:
    """Write a non-negative number in exactly `size` digits."""
    rest = np.uint64(value)
    digit_at = o + size - 1
    while digit_at >= o:
        tens = rest // _TEN
        out[digit_at] = np.uint8(rest - tens * _TEN + _ZERO_DIGIT)
        rest = tens
        digit_at -= 1
    return o + size


@kernel
def put_digits(out: Bytes, o: Int, value: Int) -> Int:
    """Write an int64 as decimal text; at most 20 bytes."""
    rest = np.int64(value)
    if rest < 0:
        out[o] = 45
        o += 1
        if rest == np.int64(-9223372036854775808):
            return put_fixed_digits(out, put_fixed_digits(out, o, 9223372036, 10), 854775808, 9)
        rest = -rest
    size = 1
    limit = np.int64(10)
    while size < 19 and rest >= limit:
        size += 1
        if size < 19:
            limit *= 10
    return put_fixed_digits(out, o, rest, size)


@kernel
def put_number(layout: Int, out: Bytes, o: Int, value: Int) -> Int:
    """Write an integer in the layout: varint in Avro, digits in JSON."""
    if layout == AVRO:
        return put_varint(out, o, value)
    return put_digits(out, o, value)


@kernel
def is_ascii(buf: Bytes, at: Int, size: Int) -> bool:
    """Return whether all bytes are below 0x80."""
    index = np.int64(0)
    seen = np.int64(0)
    while index + 8 <= size:
        seen |= load_word(buf, at + index)
        index += 8
    seen |= little_endian(buf, at + index, size - index)
    return bool((seen & _HIGH_BITS) == 0)


@kernel
def is_utf8(buf: Bytes, at: Int, size: Int) -> bool:
    """Return whether the bytes are well-formed UTF-8 (no surrogates, no overlong forms, up to U+10FFFF)."""
    if is_ascii(buf, at, size):
        return True
    p = np.int64(at)
    end = p + np.int64(size)
    while p < end:
        lead = np.int64(buf[p])
        if lead < 0x80:
            p += 1
            continue
        low = np.int64(0x80)
        high = np.int64(0xBF)
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = np.int64(0xA0)
            elif lead == 0xED:
                high = np.int64(0x9F)
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = np.int64(0x90)
            elif lead == 0xF4:
                high = np.int64(0x8F)
        else:
            return False
        if p + more >= end:
            return False
        second = np.int64(buf[p + 1])
        if second < low or second > high:
            return False
        for index in range(2, more + 1):
            if (np.int64(buf[p + index]) & 0xC0) != 0x80:
                return False
        p += more + 1
    return True


@kernel
def put_escaped_byte(out: Bytes, o: Int, code: Int) -> Int:
    """Write one byte of a JSON string, escaped as Jackson does; at most 6 bytes."""
    if code == _QUOTE or code == _BACKSLASH:  # noqa: PLR1714  numba has no tuple membership here
        out[o] = _BACKSLASH
        out[o + 1] = np.uint8(code)
        return o + 2
    if code >= 32:
        out[o] = np.uint8(code)
        return o + 1
    out[o] = _BACKSLASH
    letter = _SHORT_ESCAPES[code]
    if letter != 0:
        out[o + 1] = letter
        return o + 2
    out[o + 1] = 117
    out[o + 2] = 48
    out[o + 3] = 48
    out[o + 4] = _HEX[code >> 4]
    out[o + 5] = _HEX[code & 15]
    return o + 6


@kernel
def _special_bits(word: Int) -> Int:
    """Not zero where a byte of the word is below 32, a quote or a backslash (Hacker's Delight, 6-1)."""
    quotes = word ^ np.int64(0x2222222222222222)
    slashes = word ^ np.int64(0x5C5C5C5C5C5C5C5C)
    found = ((word - _EACH_32) & ~word) | ((quotes - _EACH_1) & ~quotes) | ((slashes - _EACH_1) & ~slashes)
    return found & _HIGH_BITS


@kernel
def needs_no_escape(buf: Bytes, at: Int, size: Int) -> bool:
    """Return whether a JSON string can hold the bytes as they are."""
    index = np.int64(0)
    special = np.int64(0)
    while index + 8 <= size:
        special |= _special_bits(load_word(buf, at + index))
        index += 8
    while index < size:
        code = np.int64(buf[at + index])
        if code < 32 or code == _QUOTE or code == _BACKSLASH:  # noqa: PLR1714  no tuple membership here
            return False
        index += 1
    return bool(special == 0)


@kernel
def has_control(buf: Bytes, at: Int, size: Int) -> bool:
    """Return whether a control character (a byte below 32) is among the bytes."""
    index = np.int64(0)
    below = np.int64(0)
    while index + 8 <= size:
        word = load_word(buf, at + index)
        below |= (word - _EACH_32) & ~word & _HIGH_BITS
        index += 8
    while index < size:
        if buf[at + index] < 32:
            return True
        index += 1
    return bool(below != 0)


@kernel
def put_escaped(out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """UTF-8 text as the inside of a JSON string; at most 6 bytes per byte."""
    if needs_no_escape(buf, at, size):
        return move(out, o, buf, at, size)
    for index in range(size):
        o = put_escaped_byte(out, o, np.int64(buf[at + index]))
    return o


@kernel
def put_text(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Write a string in the layout: length and bytes in Avro, quoted in JSON."""
    if layout == AVRO:
        return move(out, put_varint(out, o, size), buf, at, size)
    out[o] = _QUOTE
    o = put_escaped(out, o + 1, buf, at, size)
    out[o] = _QUOTE
    return o + 1


@kernel
def put_base64(out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Base64 with padding (RFC 4648, section 4); 4 bytes for every 3 begun."""
    whole = size - size % 3
    index = np.int64(0)
    while index < whole:
        group = big_endian(buf, at + index, 3)
        out[o] = _BASE64[group >> 18]
        out[o + 1] = _BASE64[(group >> 12) & 63]
        out[o + 2] = _BASE64[(group >> 6) & 63]
        out[o + 3] = _BASE64[group & 63]
        o += 4
        index += 3
    rest = size - whole
    if rest == 0:
        return o
    group = big_endian(buf, at + whole, rest) << np.int64(8 * (3 - rest))
    out[o] = _BASE64[group >> 18]
    out[o + 1] = _BASE64[(group >> 12) & 63]
    out[o + 2] = _BASE64[(group >> 6) & 63] if rest == 2 else np.uint8(61)
    out[o + 3] = 61
    return o + 4


@kernel
def put_bytes(layout: Int, out: Bytes, o: Int, buf: Bytes, at: Int, size: Int) -> Int:
    """Write bytes in the layout: length and bytes in Avro, base64 text in JSON."""
    if layout == AVRO:
        return move(out, put_varint(out, o, size), buf, at, size)
    out[o] = _QUOTE
    o = put_base64(out, o + 1, buf, at, size)
    out[o] = _QUOTE
    return o + 1
