"""Values of the memory twin: a value and a type of Spark enter, the value as a column of that type has it leaves. Pure."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pyspark.sql import types as T  # noqa: N812 - the usual name

_INTEGER_BITS: Final = ((T.ByteType, 8), (T.ShortType, 16), (T.IntegerType, 32), (T.LongType, 64))
_NUMBER: Final = re.compile(r"[+-]?\d+")


def converted(value: Any, kind: T.DataType) -> Any:
    """Return a value as a column of another type has it; None for one that the type does not have."""
    if value is None:
        return None
    if isinstance(kind, T.StringType):
        return str(value)
    for integer, bits in _INTEGER_BITS:
        if isinstance(kind, integer):
            return parsed(str(value), kind) if -(1 << bits - 1) <= int(value) < 1 << bits - 1 else None
    return value


def parsed(text: str, kind: T.DataType) -> Any:
    """Return the value of a text of a sweep; None for one that the type does not have."""
    if isinstance(kind, T.BinaryType):
        return bytes.fromhex(text)
    if isinstance(kind, tuple(integer for integer, _ in _INTEGER_BITS)):
        return int(text) if _NUMBER.fullmatch(text) else None
    if isinstance(kind, T.DecimalType):
        try:
            return Decimal(text)
        except InvalidOperation:
            return None
    return text
