"""Kernels that print doubles and floats: the shortest decimal that reads back as the same number.

The algorithm is Raffaello Giulietti's Schubfach ("The Schubfach way to render doubles", 2021); the table of
powers of ten is computed at import. Three looks of the same digits: Java's (JSON envelopes, as Debezium's),
MySQL's (doubles inside JSON documents).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rowcodec.codec_kernels import Bytes, Int, Unsigned, kernel
from rowcodec.primitives import put_digits, put_fixed_digits

_SMALLEST_POWER: Final = -292
_LARGEST_POWER: Final = 324
_MYSQL_DIGITS: Final = 15  # DBL_DIG: MySQL's my_gcvt prints without exponent from 1e-15 to below 1e15

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_U4 = np.uint64(4)
_U10 = np.uint64(10)
_U32 = np.uint64(32)
_U40 = np.uint64(40)
_U63 = np.uint64(63)
_LOW = np.uint64(0xFFFFFFFF)


def _powers() -> Bytes:
    """High and low 64 bits of ceil(10^k / 2^r) with the top bit set, for each k."""
    table = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), np.uint64)
    for k in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        shift = ((k * 1741647) >> 19) - 127
        numerator = 10**k if k >= 0 else 1
        denominator = 1 if k >= 0 else 10**-k
        if shift >= 0:
            denominator <<= shift
        else:
            numerator <<= -shift
        value = -(-numerator // denominator)
        table[k - _SMALLEST_POWER] = (value >> 64, value & 0xFFFFFFFFFFFFFFFF)
    return table  # type: ignore[return-value]


_POWERS = _powers()


@kernel
def _multiply_high(a: Unsigned, b: Unsigned) -> Unsigned:
    """Return the upper 64 bits of a product of two uint64."""
    a_low = a & _LOW
    a_high = a >> _U32
    b_low = b & _LOW
    b_high = b >> _U32
    low = a_low * b_low
    middle = a_high * b_low + (low >> _U32)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _U32) + (other >> _U32)


@kernel
def _multiply_low(a: Unsigned, b: Unsigned) -> Unsigned:
    """Return the lower 64 bits of a product of two uint64, without an overflow that NumPy would warn of."""
    low = (a & _LOW) * (b & _LOW)
    cross = ((a >> _U32) * (b & _LOW) & _LOW) + ((a & _LOW) * (b >> _U32) & _LOW) + (low >> _U32)
    return ((cross & _LOW) << _U32) | (low & _LOW)


@kernel
def _round_to_odd(high: Unsigned, low: Unsigned, value: Unsigned) -> Unsigned:
    """Upper 64 bits of (high, low) * value, the last bit set when anything below was lost."""
    carried = _multiply_high(low, value)
    middle = _multiply_low(high, value)
    top = _multiply_high(high, value)
    sum_low = (middle & _LOW) + (carried & _LOW)
    sum_high = (middle >> _U32) + (carried >> _U32) + (sum_low >> _U32)
    top += sum_high >> _U32
    rest = ((sum_high & _LOW) << _U32) | (sum_low & _LOW)
    return top | _U1 if rest > _U1 else top


@kernel
def _shortest(significand: Int, binary_exponent: Int, is_closer_below: bool) -> tuple[Int, Int]:
    """(digits, decimal exponent) of significand x 2^binary_exponent; trailing zeros may be left."""
    c = np.uint64(significand)
    q = np.int64(binary_exponent)
    below = _U4 * c - (_U1 if is_closer_below else _U2)
    above = _U4 * c + _U2
    k = (q * 1262611 - (524031 if is_closer_below else 0)) >> np.int64(22)
    h = np.uint64(q + ((-k * 1741647) >> np.int64(19)) + 1)
    high = _POWERS[-k - _SMALLEST_POWER, 0]
    low = _POWERS[-k - _SMALLEST_POWER, 1]
    lower = _round_to_odd(high, low, below << h)
    value = _round_to_odd(high, low, (_U4 * c) << h)
    upper = _round_to_odd(high, low, above << h)
    if c & _U1:
        lower += _U1
        upper -= _U1
    s = value // _U4
    if s >= _U10:
        tens = s // _U10
        is_down = lower <= _U40 * tens
        is_up = _U40 * tens + _U40 <= upper
        if is_down != is_up:
            return np.int64(tens + (_U1 if is_up else _U0)), k + 1
    is_down = lower <= _U4 * s
    is_up = _U4 * s + _U4 <= upper
    if is_down != is_up:
        return np.int64(s + (_U1 if is_up else _U0)), k
    middle = _U4 * s + _U2
    is_up = value > middle or (value == middle and (s & _U1) != _U0)
    return np.int64(s + (_U1 if is_up else _U0)), k


@kernel
def double_digits(bits: Int) -> tuple[Int, Int]:
    """(digits without trailing zeros, exponent) of a finite, non-zero float64: value = digits x 10^exponent."""
    fraction = np.int64(bits) & np.int64(0xFFFFFFFFFFFFF)
    exponent = (np.int64(bits) >> np.int64(52)) & np.int64(2047)
    if exponent != 0:
        digits, power = _shortest(
            fraction | np.int64(1 << 52), exponent - 1075, fraction == 0 and exponent > 1
        )
    else:
        digits, power = _shortest(fraction, np.int64(-1074), False)
    return _stripped(digits, power)


@kernel
def float_digits(bits: Int) -> tuple[Int, Int]:
    """Return the same for a float32: the shortest decimal among those nearer to it than to other float32.

    Schubfach works for any precision as long as the significand fits; float32 has 24 bits.
    """
    fraction = np.int64(bits) & np.int64(0x7FFFFF)
    exponent = (np.int64(bits) >> np.int64(23)) & np.int64(255)
    if exponent != 0:
        digits, power = _shortest(
            fraction | np.int64(1 << 23), exponent - 150, fraction == 0 and exponent > 1
        )
    else:
        digits, power = _shortest(fraction, np.int64(-149), False)
    return _stripped(digits, power)


@kernel
def _stripped(digits: Int, power: Int) -> tuple[Int, Int]:
    while digits % 10 == 0:
        digits //= 10
        power += 1
    return digits, power


@kernel
def _count_digits(number: Int) -> Int:
    count = np.int64(1)
    while number >= 10:
        number //= 10
        count += 1
    return count


@kernel
def _put_zeros(out: Bytes, o: Int, count: Int) -> Int:
    for _ in range(count):
        out[o] = 48
        o += 1
    return o


@kernel
def _put_plain(out: Bytes, o: Int, digits: Int, count: Int, point: Int) -> Int:
    """Without exponent, at least one digit on both sides of the point; 0.digits x 10^point."""
    if point <= 0:
        out[o] = 48
        out[o + 1] = 46
        o = _put_zeros(out, o + 2, -point)
        return put_fixed_digits(out, o, digits, count)
    if count <= point:
        o = put_fixed_digits(out, o, digits, count)
        o = _put_zeros(out, o, point - count)
        out[o] = 46
        out[o + 1] = 48
        return o + 2
    # The whole part's last digit makes room for the point: digits are written shifted by one, then moved.
    put_fixed_digits(out, o + 1, digits, count)
    for index in range(point):
        out[o + index] = out[o + 1 + index]
    out[o + point] = 46
    return o + count + 1


@kernel
def _put_scientific(
    out: Bytes, o: Int, digits: Int, count: Int, point: Int, mark: Int, is_padded: bool
) -> Int:
    """`d.ddd<mark>exponent`; padded: `d.0<mark>...` for a single digit."""
    put_fixed_digits(out, o + 1, digits, count)
    out[o] = out[o + 1]
    if count > 1:
        out[o + 1] = 46
        o += count + 1
    elif is_padded:
        out[o + 1] = 46
        out[o + 2] = 48
        o += 3
    else:
        o += 1
    out[o] = np.uint8(mark)
    return put_digits(out, o + 1, point - 1)


@kernel
def _put_java(out: Bytes, o: Int, digits: Int, power: Int) -> Int:
    count = _count_digits(digits)
    point = power + count
    if -3 < point <= 7:
        return _put_plain(out, o, digits, count, point)
    return _put_scientific(out, o, digits, count, point, 69, True)


@kernel
def put_java_double(out: Bytes, o: Int, bits: Int) -> Int:
    """Write a finite float64 in the look of Java's Double.toString; at most 26 bytes."""
    if bits < 0:
        out[o] = 45
        o += 1
    if (bits & np.int64(0x7FFFFFFFFFFFFFFF)) == 0:
        return _put_plain(out, o, np.int64(0), np.int64(1), np.int64(1))
    digits, power = double_digits(bits)
    return _put_java(out, o, digits, power)


@kernel
def put_java_float(out: Bytes, o: Int, bits: Int) -> Int:
    """Write a finite float32 in the look of Java's Float.toString."""
    if (bits >> np.int64(31)) & 1:
        out[o] = 45
        o += 1
    if (bits & np.int64(0x7FFFFFFF)) == 0:
        return _put_plain(out, o, np.int64(0), np.int64(1), np.int64(1))
    digits, power = float_digits(bits)
    return _put_java(out, o, digits, power)


@kernel
def put_mysql_double(out: Bytes, o: Int, bits: Int, is_bare: bool) -> Int:
    """Write a finite float64 as MySQL prints it inside JSON text (`my_gcvt`).

    A whole number without exponent ends with `.0`; MySQL 5.7 does not write that (`is_bare`).
    A number with a fraction has no exponent from 1e15 on: its digits take no more characters than with one.
    """
    if bits < 0:
        out[o] = 45
        o += 1
    if (bits & np.int64(0x7FFFFFFFFFFFFFFF)) == 0:
        o = _put_plain(out, o, np.int64(0), np.int64(1), np.int64(1))
        return o - 2 if is_bare else o
    digits, power = double_digits(bits)
    count = _count_digits(digits)
    point = power + count
    if -_MYSQL_DIGITS < point <= _MYSQL_DIGITS or 0 < point < count:
        o = _put_plain(out, o, digits, count, point)
        return o - 2 if is_bare and count <= point else o
    return _put_scientific(out, o, digits, count, point, 101, False)
