"""Kernels for DECIMAL: packed digits or decimal text -> the unscaled number's big-endian two's complement.

Up to 18 digits fit an int64; up to 81 go through little-endian limbs of 32 bits in `limbs` (int64, 9 used).
Packed form: MySQL `strings/decimal.cc`, `decimal2bin`: groups of nine digits in four bytes, shorter groups in
fewer; the first bit is the inverted sign, and negative numbers have all bits inverted.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, Ints, kernel
from rowcodec.memory import store_word_big
from rowcodec.ops import E_DECIMAL
from rowcodec.primitives import big_endian

LIMBS: Final = 9
MAX_DIGITS: Final = 81
_SMALL_DIGITS: Final = 18
_LOW = 0xFFFFFFFF

_POWERS = np.array([10**exponent for exponent in range(19)], np.int64)
_GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)


def packed_size(precision: int, scale: int) -> int:
    """Return bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    return int(whole // 9 * 4 + _GROUP_BYTES[whole % 9] + scale // 9 * 4 + _GROUP_BYTES[scale % 9])


@kernel
def bytes_of_int64(small: Bytes, value: Int) -> Int:
    """Write the minimal two's complement of an int64 to the start of `small`; returns its size (1 to 8)."""
    number = np.int64(value)
    magnitude = number ^ (number >> np.int64(63))
    size = 1
    rest = magnitude >> np.int64(7)
    while rest != 0:
        size += 1
        rest >>= np.int64(8)
    store_word_big(small, 0, number << np.int64(8 * (8 - size)))
    return size


@kernel
def bytes_of_uint64(small: Bytes, value: Int) -> Int:
    """Return the same for an unsigned 64-bit number held in an int64's bits; 1 to 9 bytes."""
    if value >= 0:
        return bytes_of_int64(small, value)
    small[0] = 0
    store_word_big(small, 1, value)
    return 9


@kernel
def multiply_add(limbs: Ints, factor: Int, addend: Int) -> Int:
    """Limbs := limbs * factor + addend (factor up to 10^9); returns the carry out, 0 when it fitted."""
    carry = np.int64(addend)
    for index in range(LIMBS):
        total = limbs[index] * np.int64(factor) + carry
        limbs[index] = total & np.int64(_LOW)
        carry = total >> np.int64(32)
    return carry


@kernel
def bytes_of_limbs(small: Bytes, limbs: Ints, negative: bool) -> Int:
    """Write the minimal two's complement of +-limbs to the start of `small`; returns its size (1 to 37)."""
    top = LIMBS - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    if top < 0:
        small[0] = 0
        return 1
    if negative:  # -m = ~(m - 1)
        index = 0
        while limbs[index] == 0:
            limbs[index] = np.int64(_LOW)
            index += 1
        limbs[index] -= 1
    bits = np.int64(0)
    for index in range(LIMBS):
        rest = limbs[index]
        count = np.int64(0)
        while rest != 0:
            count += 1
            rest >>= np.int64(1)
        if count > 0:
            bits = np.int64(32) * index + count
    size = bits // 8 + 1
    flip = np.int64(255) if negative else np.int64(0)
    for index in range(size):
        byte = size - 1 - index
        limb = limbs[byte >> 2] if (byte >> 2) < LIMBS else np.int64(0)
        small[index] = np.uint8(((limb >> np.int64(8 * (byte & 3))) & np.int64(255)) ^ flip)
    return size


@kernel
def packed_decimal(small: Bytes, limbs: Ints, buf: Bytes, at: Int, precision: Int, scale: Int) -> Int:
    """Write the unscaled bytes of a packed DECIMAL into `small`; return the size, or -E_DECIMAL.

    The caller has located `packed_size(precision, scale)` bytes at `at`.
    """
    negative = (np.int64(buf[at]) & 0x80) == 0
    flip = np.int64(-1) if negative else np.int64(0)
    sign = np.int64(0x80)
    whole = precision - scale
    short = precision <= _SMALL_DIGITS
    value = np.int64(0)
    if not short:
        for index in range(LIMBS):
            limbs[index] = 0
    p = np.int64(at)
    # Whole part: the short group first, then nines; fraction: nines, then the short group.
    left = np.int64(whole if whole > 0 else scale)
    in_whole = whole > 0
    while left > 0:
        digits = left % 9 if in_whole and left % 9 != 0 else min(left, np.int64(9))
        size = _GROUP_BYTES[digits]
        group = big_endian(buf, p, size) ^ flip ^ (sign << np.int64(8 * (size - 1)))
        group &= (np.int64(1) << np.int64(8 * size)) - 1
        sign = np.int64(0)
        power = _POWERS[digits]
        if group >= power:
            return -E_DECIMAL
        if short:
            value = value * power + group
        elif multiply_add(limbs, power, group) != 0:
            return -E_DECIMAL
        p += size
        left -= digits
        if left == 0 and in_whole:
            in_whole = False
            left = np.int64(scale)
    if short:
        return bytes_of_int64(small, -value if negative else value)
    return bytes_of_limbs(small, limbs, negative)


@kernel
def text_decimal(small: Bytes, limbs: Ints, buf: Bytes, at: Int, size: Int, scale: Int) -> Int:
    """Return the unscaled bytes of a decimal text with exactly `scale` fraction digits; the size, or -E_DECIMAL."""
    p = np.int64(at)
    end = p + np.int64(size)
    negative = size > 0 and buf[p] == 45
    if negative:
        p += 1
    if p >= end or end - p > MAX_DIGITS:
        return -E_DECIMAL
    short = end - p <= _SMALL_DIGITS
    value = np.int64(0)
    if not short:
        for index in range(LIMBS):
            limbs[index] = 0
    point = np.int64(-1)
    group = np.int64(0)
    pending = np.int64(0)
    while p < end:
        code = np.int64(buf[p])
        p += 1
        if code == 46 and point < 0:
            point = p
            continue
        if code < 48 or code > 57:
            return -E_DECIMAL
        group = group * 10 + (code - 48)
        pending += 1
        if pending == 9:
            if short:
                value = value * _POWERS[9] + group
            else:
                multiply_add(limbs, _POWERS[9], group)
            group = np.int64(0)
            pending = np.int64(0)
    fraction = end - point if point >= 0 else np.int64(0)
    if fraction != scale or (point >= 0 and scale == 0):
        return -E_DECIMAL
    if short:
        value = value * _POWERS[pending] + group
        return bytes_of_int64(small, -value if negative else value)
    multiply_add(limbs, _POWERS[pending], group)
    return bytes_of_limbs(small, limbs, negative)
