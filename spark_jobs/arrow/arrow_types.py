"""Types of the sink in Arrow: which one a Spark type is, and values of one type as a wider one has them (`spark_types.widened`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import UnsupportedTypeError

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME has no zone
_TEXT: Final = (T.StringType, T.BinaryType)

_TYPES: Final[Mapping[type[T.DataType], pa.DataType]] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
}


class UnsupportedBatchError(UnsupportedTypeError):
    """Raised for a batch with a value that only the JVM reads as the JVM does: it takes the batch."""


def arrow_type(kind: T.DataType) -> pa.DataType:
    """Return the Arrow type of a column; `UnsupportedTypeError` if it has none here."""
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(item.name, arrow_type(item.dataType)) for item in kind.fields])
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    found = _TYPES.get(type(kind))
    if found is None or (isinstance(kind, T.StringType) and kind != T.StringType()):
        raise UnsupportedTypeError(f"columns of the type {kind.simpleString()} are written by the JVM")
    return found


def widening(given: T.DataType, kind: T.DataType) -> Callable[[pa.Array], pa.Array] | None:
    """Return how values of a type become those of a type that has all of them, None if they are the same.

    Raises `UnsupportedTypeError` where only the JVM does as the JVM does.
    """
    if given == kind:
        return None
    target = arrow_type(kind)
    if isinstance(kind, _TEXT):
        text = _text_of(given)
        return lambda values: _cast(text(values), target)
    if isinstance(given, T.DateType) and isinstance(kind, T.TimestampNTZType):
        return lambda values: _cast(_cast(values, pa.timestamp("s")), target)
    if isinstance(given, (T.StructType, T.ArrayType)):
        raise UnsupportedTypeError(f"{given.simpleString()} becomes {kind.simpleString()}")
    return lambda values: _cast(values, target)


def _text_of(given: T.DataType) -> Callable[[pa.Array], pa.Array]:
    if isinstance(given, (*_TEXT, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)):
        as_binary = isinstance(given, T.BinaryType)
        return (lambda values: values) if as_binary else (lambda values: _cast(values, pa.string()))
    if isinstance(given, (T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType)):
        return lambda values: pa.array([_text(value) for value in _listed(values)], pa.string())
    raise UnsupportedTypeError(f"texts of {given.simpleString()} are those of Java")


def _listed(values: pa.Array) -> list[Any]:
    try:
        found: list[Any] = values.to_pylist()
    except (ValueError, OverflowError) as error:
        raise UnsupportedBatchError(f"a date or time is outside of the years 1 to 9999: {error}") from error
    return found


def _text(value: Any) -> str | None:
    """Return the text that a cast of Spark gives a constant."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if value.microsecond else text
    if isinstance(value, float):
        raise UnsupportedTypeError("texts of floating point numbers are those of Java")
    return value.isoformat() if isinstance(value, dt.date) else f"{value:f}" if isinstance(value, Decimal) else str(value)


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return pc.cast(values, target)
    except pa.ArrowInvalid as error:
        raise UnsupportedBatchError(f"a value is not one of {target}: {error}") from error


def constant(value: Any, kind: T.DataType, count: int) -> pa.Array:
    """Return an array of one value (`spark_types.literal`), as Python has it; `UnsupportedTypeError` if the JVM must write it."""
    target = arrow_type(kind)
    if value is None:
        return pa.nulls(count, target)
    if isinstance(kind, (T.StructType, T.ArrayType)):
        raise UnsupportedTypeError(f"a default of the type {kind.simpleString()}")
    if isinstance(kind, T.StringType):
        value = _text(value)
    elif isinstance(kind, T.BinaryType):
        value = bytes(value) if isinstance(value, (bytes, bytearray)) else (_text(value) or "").encode()
    elif isinstance(kind, T.TimestampNTZType) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    elif isinstance(kind, (T.FloatType, T.DoubleType)):
        value = float(value)
    elif isinstance(kind, T.DecimalType):
        value = Decimal(value)
    elif isinstance(value, bool) and not isinstance(kind, T.BooleanType):
        value = int(value)
    try:
        one = pa.array([value], target)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise UnsupportedTypeError(f"the default {value!r} is none of {kind.simpleString()}: {error}") from error
    return pa.repeat(one[0], count)
