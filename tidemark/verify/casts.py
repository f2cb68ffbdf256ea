"""Columns whose sink type is not that of the source's values: what a cast gives is compared.

A column that was dropped and added again with another type, or swapped by RENAME, is in the sink as wide as both types:
text, bytes, or a wider number or time. It takes the new type when every row was read again; until then the sink's values are
read as the source's type. The common type is binary: `0x00` and the value's text, or `0x01` and what the sink has where that is
no value of the source's type, which no value equals.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from schemas.columns import Column, ColumnType
from schemas.types.column_facts import ADDRESS_TYPES, SPATIAL_TYPES

Value = Any
Reader = Callable[[Value], Value]

_VALUE: Final = b"\0"
_OTHER: Final = b"\1"
_INTEGER: Final = re.compile(r"-?\d+")
_MOMENT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_EPOCH_DAYS: Final = 719_163
_DAYS_OF_400_YEARS: Final = 146_097
_DAY_US: Final = 86_400_000_000
INTEGERS: Final = frozenset(
    {ColumnType.TINYINT, ColumnType.SMALLINT, ColumnType.MEDIUMINT, ColumnType.INT, ColumnType.BIGINT}
)
_WHOLE: Final = INTEGERS | {ColumnType.YEAR, ColumnType.TIME}
_FLOATING: Final = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})
TEXTS: Final = frozenset(
    {
        ColumnType.CHAR,
        ColumnType.VARCHAR,
        ColumnType.TINYTEXT,
        ColumnType.TEXT,
        ColumnType.MEDIUMTEXT,
        ColumnType.LONGTEXT,
        ColumnType.ENUM,
        ColumnType.SET,
        *ADDRESS_TYPES,
    }
)


def can_hold(column: Column, sink: pa.DataType) -> bool:
    """Return whether the merge job makes a column of that type out of one that has the source's type now."""
    if pa.types.is_large_binary(sink) or pa.types.is_binary(sink) or pa.types.is_binary_view(sink):
        return True
    if pa.types.is_string(sink) or pa.types.is_large_string(sink) or pa.types.is_string_view(sink):
        return reader(column) is not None
    number = pa.types.is_signed_integer(sink) or pa.types.is_decimal(sink)
    if column.type is ColumnType.BIT:
        return bool(number) and (column.length or 1) == 1
    if column.type in _WHOLE:
        return bool(number or sink == pa.float64())
    if column.type is ColumnType.DATE:
        return bool(pa.types.is_timestamp(sink) and sink.tz is None)
    return bool(number) and column.type in _FLOATING


def reader(column: Column) -> Reader | None:
    """Return what reads a value of the sink as the source's type has it (`ValueError`: it is none); None for bytes."""
    kind = column.type
    if kind in _WHOLE:
        return _whole
    if kind in SPATIAL_TYPES:
        return _geometry
    if kind in TEXTS or kind is ColumnType.JSON:
        return lambda value: value.encode()
    if kind is ColumnType.BIT and (column.length or 1) == 1:
        return _bit
    return _READERS.get(kind)


def to_binary(array: pa.Array) -> pa.Array:
    """Values of the source's common type as this module compares them."""
    values = [None if value is None else _VALUE + _text(value) for value in array.to_pylist()]
    return pa.array(values, type=pa.large_binary())


def read(array: pa.Array, column: Column) -> pa.Array:
    """Values of the sink, read as the source's type, as this module compares them."""
    as_source = reader(column)
    return pa.array([_read(value, as_source) for value in array.to_pylist()], type=pa.large_binary())


def value_of(compared: bytes, common: pa.DataType) -> Value:
    """Return the value of the source's common type; `ValueError` for one that the source's type does not have."""
    if compared[:1] != _VALUE:
        raise ValueError("no value of the source's type")
    if pa.types.is_large_binary(common):
        return compared[1:]
    text = compared[1:].decode()
    return Decimal(text) if pa.types.is_decimal(common) else int(text)


def shown(compared: bytes) -> str:
    """Return a value that is none of the source's type, for people."""
    return repr(compared[1:].decode("utf-8", "backslashreplace"))


def _read(value: Value, as_source: Reader | None) -> bytes | None:
    if value is None:
        return None
    raw = value if isinstance(value, bytes) else str(value).encode()
    if as_source is None:
        return _VALUE + raw
    try:
        return _VALUE + _text(as_source(value.decode() if isinstance(value, bytes) else value))
    except (ValueError, InvalidOperation, OverflowError, KeyError, TypeError, struct.error):
        return _OTHER + raw


def _text(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return format(value.normalize() if value else Decimal(0), "f").encode()
    return str(value).encode()


# --- the sink's values as the source's types --------------------------------------------------------------


def _whole(value: Value) -> int:
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise ValueError(value)
    if int(value) != value and not isinstance(value, str):
        raise ValueError(value)
    return int(value)


def _bit(value: Value) -> int:
    return {"true": 1, "false": 0, 1: 1, 0: 0}[value]


def _decimal(value: Value) -> Decimal:
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError(value)
    return number


def _float(value: Value) -> int:
    return int(np.float32(float(value)).view(np.uint32))


def _double(value: Value) -> int:
    return int(np.float64(float(value)).view(np.uint64))


def _moment(value: Value) -> int:
    """Microseconds since 1970."""
    found = _MOMENT.fullmatch(value.isoformat(" ") if isinstance(value, datetime) else value)
    if found is None:
        raise ValueError(value)
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    days = date(year or 400, month, day).toordinal() - _EPOCH_DAYS - (0 if year else _DAYS_OF_400_YEARS)
    seconds = (hour * 60 + minute) * 60 + second
    return days * _DAY_US + seconds * 1_000_000 + int(f"{found.group(7) or '':0<6}")


def _date(value: Value) -> int:
    days, clock = divmod(_moment(value), _DAY_US)
    if clock:
        raise ValueError(value)
    return days


def _geometry(value: Value) -> bytes:
    document = json.loads(value)
    wkb = base64.b64decode(document.get("wkb") or "", validate=True)
    return int(document.get("srid") or 0).to_bytes(4, "little", signed=True) + wkb if wkb else b""


def _vector(value: Value) -> bytes:
    numbers = json.loads(value)
    return struct.pack(f"<{len(numbers)}f", *numbers)


_READERS: Final[dict[ColumnType, Reader]] = {
    ColumnType.DECIMAL: _decimal,
    ColumnType.FLOAT: _float,
    ColumnType.DOUBLE: _double,
    ColumnType.DATE: _date,
    ColumnType.DATETIME: _moment,
    ColumnType.TIMESTAMP: _moment,
    ColumnType.VECTOR: _vector,
}
