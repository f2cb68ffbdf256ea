"""The defaults of columns as values, of each semantic type: a text enters, the value that the schema carries leaves."""

from __future__ import annotations

import struct
import uuid
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final

from schemas.columns import YEAR_DIGITS, Column
from schemas.connect_types import DefaultValue
from schemas.types.column_facts import FACTS, FLOAT_BYTES, Semantic, fixed_length, is_beyond_long, semantic_of

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  DATETIME has no zone: the wall clock counts as UTC
MILLISECOND_DIGITS: Final = 3
_FIRST_OF_1900: Final = 70
_CENTURY: Final = 100


def current_timestamp(column: Column) -> DefaultValue | None:
    """Return the default of a column whose default is an expression: of the current time the epoch, else none."""
    if not str(column.default).upper().startswith(("CURRENT_TIMESTAMP", "NOW", "LOCALTIME")):
        return None
    if semantic_of(column) is Semantic.TIMESTAMP:
        return None if column.nullable else "1970-01-01T00:00:00Z"
    return 0 if semantic_of(column) is Semantic.DATETIME else None


def twos_complement(value: int) -> bytes:
    """Big-endian two's complement in as few bytes as the value needs (Java's `BigInteger.toByteArray`)."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def year_zero(column: Column) -> int:
    """Return the year that 0 is: of two digits those of 2000."""
    return 2000 if column.display == YEAR_DIGITS else 0


def _rounded(text: str, scale: int) -> int:
    with localcontext() as context:
        context.prec = 100
        return int(Decimal(text).scaleb(scale).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def integer(column: Column, text: str) -> DefaultValue:
    """Return the default of an integer, of a BIGINT UNSIGNED as the bytes of a Decimal."""
    value = _rounded(text, 0)
    return twos_complement(value) if is_beyond_long(column) else value


def year(column: Column, text: str) -> DefaultValue:
    """Return the default of a YEAR, of two digits or four."""
    number = int(text)
    if 0 < number < _CENTURY:
        return number + (2000 if number < _FIRST_OF_1900 else 1900)
    return number or year_zero(column)


def decimal(column: Column, text: str) -> DefaultValue:
    """Return the default of a DECIMAL as the bytes of its unscaled value."""
    return twos_complement(_rounded(text, decimal_digits(column)[1]))


def floating(column: Column, text: str) -> DefaultValue:
    """Return the default of a FLOAT or DOUBLE."""
    value = float(text)
    is_single = FACTS[column.type].size == FLOAT_BYTES and column.length is None
    return _shortest_float32(value) if is_single else value


def _shortest_float32(value: float) -> float:
    single = struct.pack("<f", value)
    exact = float(struct.unpack("<f", single)[0])
    candidates = (float(f"{exact:.{digits}g}") for digits in range(1, 10))
    return next((candidate for candidate in candidates if struct.pack("<f", candidate) == single), exact)


def bit(column: Column, text: str) -> DefaultValue:
    """Return the default of a BIT: a boolean of one bit, else little-endian bytes."""
    value = int(text[2:-1], 2) if text.lower().startswith("b'") else int(text)
    bits = column.length or 1
    return bool(value) if bits == 1 else value.to_bytes((bits + 7) // 8, "little")


def _is_zero_date(text: str) -> bool:
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def day(column: Column, text: str) -> DefaultValue | None:
    """Return the default of a DATE as days since 1970."""
    if _is_zero_date(text):
        return None if column.nullable else 0
    return (date.fromisoformat(text[:10]) - EPOCH.date()).days


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text.replace("T", " ")) - EPOCH) // timedelta(microseconds=1)


def moment(column: Column, text: str) -> DefaultValue | None:
    """Return the default of a DATETIME as milliseconds, or as microseconds if it has more than three digits."""
    if _is_zero_date(text):
        return None if column.nullable else 0
    value = _microseconds(_padded_fraction(text))
    return value if (column.precision or 0) > MILLISECOND_DIGITS else value // 1000


def _padded_fraction(text: str) -> str:
    whole, dot, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6.6}" if dot else whole


def timestamp(column: Column, text: str) -> DefaultValue | None:
    """Return the default of a TIMESTAMP as text in UTC."""
    if _is_zero_date(text):
        return None if column.nullable else "1970-01-01T00:00:00Z"
    instant = datetime.fromisoformat(_padded_fraction(text))
    fraction = f".{instant.microsecond:06d}".rstrip("0") if instant.microsecond else ""
    return f"{instant:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def time(_column: Column, text: str) -> DefaultValue:
    """Return the default of a TIME as microseconds."""
    sign = -1 if text.startswith("-") else 1
    whole, _, fraction = text.lstrip("+-").partition(".")
    hours, minutes, seconds = (int(part) for part in whole.split(":"))
    return sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(f"{fraction:0<6.6}"))


def text(_column: Column, text: str) -> DefaultValue:
    """Return the default of a text, as it is."""
    return text


def uuid_text(_column: Column, text: str) -> DefaultValue:
    """Return the default of a UUID as the server prints it."""
    return str(uuid.UUID(text))


def binary(column: Column, text: str) -> DefaultValue:
    """Return the default of bytes, padded if each value has the same length."""
    value = bytes.fromhex(text[2:]) if text.lower().startswith("0x") else text.encode()
    return value.ljust(fixed_length(column), b"\0")


def decimal_digits(column: Column) -> tuple[int, int]:
    """`(precision, scale)` of a DECIMAL column; the server's (10, 0) when nothing is said."""
    return (10 if column.precision is None else column.precision), column.scale or 0
