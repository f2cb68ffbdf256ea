"""Values in SQL: a text enters, a literal that the column's type has leaves. Pure."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pyspark.sql import types as T  # noqa: N812 - the usual name

Literal = Callable[[Any], str | None]
"""Returns a Python value (int, Decimal, float, bool, str, bytes, date, datetime) as SQL; None where SQL cannot have it."""

INTEGERS: Final[tuple[type[T.DataType], ...]] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBER: Final = re.compile(r"[+-]?\d{1,40}")
_TRUTH: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def parsed(text: str, kind: T.DataType) -> Any:
    """Return the value of a text; None for one that the type does not have. Bytes are in hex digits."""
    try:
        return _parsed(text, kind)
    except (ValueError, InvalidOperation):
        return None


def _parsed(text: str, kind: T.DataType) -> Any:
    if isinstance(kind, T.StringType):
        return text
    if isinstance(kind, T.BinaryType):
        return bytes.fromhex(text)
    if isinstance(kind, INTEGERS):
        return int(text) if _NUMBER.fullmatch(text) else None
    if isinstance(kind, T.DecimalType):
        number = Decimal(text)
        return number if number.is_finite() else None
    if isinstance(kind, T.BooleanType):
        return _TRUTH.get(text.lower())
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        real = float(text)
        return real if math.isfinite(real) else None
    return _moment(text, kind)


def _moment(text: str, kind: T.DataType) -> dt.date | None:
    if isinstance(kind, T.DateType):
        return dt.date.fromisoformat(text)
    return dt.datetime.fromisoformat(text) if isinstance(kind, (T.TimestampType, T.TimestampNTZType)) else None


def plain(value: Any, kind: T.DataType) -> Any:
    """Return a constant of an evolution as the column has it: nested values are JSON texts there."""
    if isinstance(kind, (T.StructType, T.ArrayType, T.MapType)) and value is not None:
        return json.dumps(value, separators=(",", ":"), default=str)
    return bytes(value) if isinstance(value, bytearray) else value


def number_text(value: float | Decimal) -> str:
    """Return a number as SQL has it."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def moment_text(value: dt.date) -> str:
    """Return a date, or a time in UTC, as `YYYY-MM-DD[ HH:MM:SS.ffffff]`."""
    if not isinstance(value, dt.datetime):
        return value.isoformat()
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return value.isoformat(" ", "microseconds")
