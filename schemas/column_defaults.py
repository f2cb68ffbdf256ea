"""The default of a column as a value: what the server would store in a row that does not name it, as Debezium 3.6 has it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Final

from schemas.columns import YEAR_DIGITS, Column, ColumnType
from schemas.connect_types import DefaultValue

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  DATETIME has no zone: the wall clock counts as UTC
_MILLISECOND_DIGITS: Final = 3
_FIRST_OF_1900: Final = 70
_CENTURY: Final = 100


def column_default(column: Column) -> DefaultValue | None:
    """Return a column's default as its schema carries it, None for none.

    A literal is encoded as the column's values are. CURRENT_TIMESTAMP becomes the epoch (Debezium's
    placeholder), for a nullable TIMESTAMP none; other expressions and texts that are no value of the type give no
    default. A zero or impossible date is none where the column is nullable, else the epoch.
    """
    if not column.has_default or column.default is None:
        return None
    if column.default_is_expression:
        return _current_timestamp_default(column)
    encode = _DEFAULTS.get(column.type)
    if encode is None:
        return None
    try:
        return encode(column, column.default)
    except (ValueError, InvalidOperation, OverflowError):
        return None


def _current_timestamp_default(column: Column) -> DefaultValue | None:
    if not str(column.default).upper().startswith(("CURRENT_TIMESTAMP", "NOW", "LOCALTIME")):
        return None
    if column.type is ColumnType.TIMESTAMP:
        return None if column.nullable else "1970-01-01T00:00:00Z"
    return 0 if column.type is ColumnType.DATETIME else None


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


def _integer_default(column: Column, text: str) -> DefaultValue:
    value = _rounded(text, 0)
    wide = column.type is ColumnType.BIGINT and column.unsigned
    return twos_complement(value) if wide else value


def _year_default(column: Column, text: str) -> DefaultValue:
    year = int(text)
    if 0 < year < _CENTURY:
        return year + (2000 if year < _FIRST_OF_1900 else 1900)
    return year or year_zero(column)


def _decimal_default(column: Column, text: str) -> DefaultValue:
    return twos_complement(_rounded(text, decimal_digits(column)[1]))


def _float_default(column: Column, text: str) -> DefaultValue:
    value = float(text)
    if column.type is ColumnType.DOUBLE or column.length is not None:
        return value
    return _shortest_float32(value)


def _shortest_float32(value: float) -> float:
    single = struct.pack("<f", value)
    exact = float(struct.unpack("<f", single)[0])
    candidates = (float(f"{exact:.{digits}g}") for digits in range(1, 10))
    return next((candidate for candidate in candidates if struct.pack("<f", candidate) == single), exact)


def _bit_default(column: Column, text: str) -> DefaultValue:
    value = int(text[2:-1], 2) if text.lower().startswith("b'") else int(text)
    bits = column.length or 1
    return bool(value) if bits == 1 else value.to_bytes((bits + 7) // 8, "little")


def _is_zero_date(text: str) -> bool:
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def _date_default(column: Column, text: str) -> DefaultValue | None:
    if _is_zero_date(text):
        return None if column.nullable else 0
    return (date.fromisoformat(text[:10]) - _EPOCH.date()).days


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("T", " "))
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _datetime_default(column: Column, text: str) -> DefaultValue | None:
    if _is_zero_date(text):
        return None if column.nullable else 0
    value = _microseconds(_padded_fraction(text))
    return value if (column.precision or 0) > _MILLISECOND_DIGITS else value // 1000


def _padded_fraction(text: str) -> str:
    whole, dot, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6.6}" if dot else whole


def _timestamp_default(column: Column, text: str) -> DefaultValue | None:
    if _is_zero_date(text):
        return None if column.nullable else "1970-01-01T00:00:00Z"
    moment = datetime.fromisoformat(_padded_fraction(text))
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _time_default(_column: Column, text: str) -> DefaultValue:
    sign = -1 if text.startswith("-") else 1
    whole, _, fraction = text.lstrip("+-").partition(".")
    hours, minutes, seconds = (int(part) for part in whole.split(":"))
    return sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(f"{fraction:0<6.6}"))


def _text_default(_column: Column, text: str) -> DefaultValue:
    return text


def _uuid_default(_column: Column, text: str) -> DefaultValue:
    return str(uuid.UUID(text))


def _binary_default(column: Column, text: str) -> DefaultValue:
    value = bytes.fromhex(text[2:]) if text.lower().startswith("0x") else text.encode()
    length = column.length or 0
    return value.ljust(length, b"\0") if column.type is ColumnType.BINARY else value


_DEFAULTS: Final[dict[ColumnType, Callable[[Column, str], DefaultValue | None]]] = {
    ColumnType.TINYINT: _integer_default,
    ColumnType.SMALLINT: _integer_default,
    ColumnType.MEDIUMINT: _integer_default,
    ColumnType.INT: _integer_default,
    ColumnType.BIGINT: _integer_default,
    ColumnType.YEAR: _year_default,
    ColumnType.DECIMAL: _decimal_default,
    ColumnType.FLOAT: _float_default,
    ColumnType.DOUBLE: _float_default,
    ColumnType.BIT: _bit_default,
    ColumnType.DATE: _date_default,
    ColumnType.TIME: _time_default,
    ColumnType.DATETIME: _datetime_default,
    ColumnType.TIMESTAMP: _timestamp_default,
    ColumnType.CHAR: _text_default,
    ColumnType.VARCHAR: _text_default,
    ColumnType.TINYTEXT: _text_default,
    ColumnType.TEXT: _text_default,
    ColumnType.MEDIUMTEXT: _text_default,
    ColumnType.LONGTEXT: _text_default,
    ColumnType.ENUM: _text_default,
    ColumnType.SET: _text_default,
    ColumnType.UUID: _uuid_default,
    ColumnType.INET4: _text_default,
    ColumnType.INET6: _text_default,
    ColumnType.BINARY: _binary_default,
    ColumnType.VARBINARY: _binary_default,
    ColumnType.TINYBLOB: _binary_default,
    ColumnType.BLOB: _binary_default,
    ColumnType.MEDIUMBLOB: _binary_default,
    ColumnType.LONGBLOB: _binary_default,
}


def decimal_digits(column: Column) -> tuple[int, int]:
    """`(precision, scale)` of a DECIMAL column; the server's (10, 0) when nothing is said."""
    return (10 if column.precision is None else column.precision), column.scale or 0
