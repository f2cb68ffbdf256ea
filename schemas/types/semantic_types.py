"""The table of semantic types: the schema of a column, its default as a value, the literals whose stored value is certain."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import InvalidOperation
from typing import Final

from schemas.columns import Column
from schemas.connect_types import (
    PRECISE,
    BinaryMode,
    ConnectSchema,
    ConnectType,
    DefaultValue,
    TimeMode,
    ValueModes,
)
from schemas.types import column_defaults as defaults
from schemas.types import connect_bases as bases
from schemas.types.column_facts import Semantic, is_beyond_long, semantic_of

_DAY_US: Final = 86_400_000_000
_MOST_NANOSECONDS_US: Final = (2**63 - 1) // 1000
_DAY: Final = r"\d{4}-\d\d-\d\d"
_FRACTION: Final = r"(\.\d{1,%d})?"
_NUMBER: Final = r"-?\d+(\.\d+)?"


@dataclass(frozen=True, slots=True)
class SemanticType:
    """A row: `connect` is or builds a column's schema, `default` makes a value of the text of its default; None for no values.

    `exact` is the pattern of the literals whose stored value is known without the server; `%d` are a time's digits.
    """

    connect: ConnectSchema | Callable[[Column], ConnectSchema]
    default: Callable[[Column, str], DefaultValue | None] | None = None
    exact: str = r"-?\d+"


SEMANTIC_TYPES: Final = {
    Semantic.INTEGER: SemanticType(bases.integer, defaults.integer),
    Semantic.DECIMAL: SemanticType(bases.decimal, defaults.decimal, _NUMBER),
    Semantic.FLOATING: SemanticType(bases.floating, defaults.floating, rf"{_NUMBER}([eE][+-]?\d+)?"),
    Semantic.BIT: SemanticType(bases.bit, defaults.bit, r"b'[01]+'|\d+"),
    Semantic.YEAR: SemanticType(bases.named(ConnectType.INT32, "io.debezium.time.Year"), defaults.year, r"(19|20)\d\d"),
    Semantic.DATE: SemanticType(bases.named(ConnectType.INT32, "io.debezium.time.Date"), defaults.day, _DAY),
    Semantic.TIME: SemanticType(
        bases.named(ConnectType.INT64, "io.debezium.time.MicroTime"), defaults.time, rf"-?\d{{2,3}}:\d\d:\d\d{_FRACTION}"
    ),
    Semantic.DATETIME: SemanticType(bases.moment, defaults.moment, rf"{_DAY} \d\d:\d\d:\d\d{_FRACTION}"),
    Semantic.TIMESTAMP: SemanticType(
        bases.named(ConnectType.STRING, "io.debezium.time.ZonedTimestamp"), defaults.timestamp
    ),
    Semantic.TEXT: SemanticType(ConnectSchema(ConnectType.STRING), defaults.text),
    Semantic.BINARY: SemanticType(ConnectSchema(ConnectType.BYTES), defaults.binary),
    Semantic.ENUM: SemanticType(bases.members("io.debezium.data.Enum"), defaults.text),
    Semantic.SET: SemanticType(bases.members("io.debezium.data.EnumSet"), defaults.text),
    Semantic.JSON: SemanticType(bases.named(ConnectType.STRING, "io.debezium.data.Json")),
    Semantic.GEOMETRY: SemanticType(bases.GEOMETRY),
    Semantic.POINT: SemanticType(bases.POINT),
    Semantic.VECTOR: SemanticType(bases.VECTOR),
    Semantic.UUID: SemanticType(bases.named(ConnectType.STRING, "io.debezium.data.Uuid"), defaults.uuid_text),
    Semantic.INET: SemanticType(ConnectSchema(ConnectType.STRING), defaults.text),
}


def column_default(column: Column) -> DefaultValue | None:
    """Return a column's default as its schema carries it, None for none.

    A literal is encoded as the column's values are. CURRENT_TIMESTAMP becomes the epoch (Debezium's
    placeholder), for a nullable TIMESTAMP none; other expressions and texts that are no value of the type give no
    default. A zero or impossible date is none if the column is nullable, else the epoch.
    """
    if not column.has_default or column.default is None:
        return None
    if column.default_is_expression:
        return defaults.current_timestamp(column)
    encode = SEMANTIC_TYPES[semantic_of(column)].default
    if encode is None:
        return None
    try:
        return encode(column, column.default)
    except (ValueError, InvalidOperation, OverflowError):
        return None


def column_schema(column: Column, modes: ValueModes = PRECISE) -> ConnectSchema:
    """Return the schema of one column: its base type, optional when nullable, with its default."""
    base = _base(column, modes)
    default = column_default(column)
    if default is not None:
        default = _default_in(column, default, modes)
    return replace(base, optional=base.optional or column.nullable, default=default)


def _base(column: Column, modes: ValueModes) -> ConnectSchema:
    kind = semantic_of(column)
    if kind is Semantic.DECIMAL and modes.decimal != "precise":
        return ConnectSchema(ConnectType.FLOAT64 if modes.decimal == "double" else ConnectType.STRING)
    if is_beyond_long(column) and modes.bigint_unsigned == "long":
        return ConnectSchema(ConnectType.INT64)
    if kind is Semantic.BINARY and modes.binary != "bytes":
        return ConnectSchema(ConnectType.STRING)
    schema = bases.TIMES[modes.time].get(kind) or SEMANTIC_TYPES[kind].connect
    return schema if isinstance(schema, ConnectSchema) else schema(column)


def _default_in(column: Column, default: DefaultValue, modes: ValueModes) -> DefaultValue | None:
    """Return a default as `column_default` gives it, in the look its column has in these modes; None if it has none there."""
    kind = semantic_of(column)
    if kind in bases.TIMES[modes.time] and isinstance(default, int):
        is_milliseconds = kind is Semantic.DATETIME and (column.precision or 0) <= defaults.MILLISECOND_DIGITS
        return temporal_value(kind, default * 1000 if is_milliseconds else default, modes.time)
    if not isinstance(default, bytes):
        return default
    if kind is Semantic.DECIMAL and modes.decimal != "precise":
        text = scaled_text(int.from_bytes(default, "big", signed=True), defaults.decimal_digits(column)[1])
        return float(text) if modes.decimal == "double" else text
    if is_beyond_long(column) and modes.bigint_unsigned == "long":
        return int.from_bytes(default[-8:].rjust(8, b"\0"), "big", signed=True)
    if kind is Semantic.BINARY and modes.binary != "bytes":
        return binary_text(default, modes.binary)
    return default


def temporal_value(kind: Semantic, value: int, mode: TimeMode) -> DefaultValue | None:
    """Days of a DATE, microseconds of a TIME or DATETIME in a mode that converts them; None for what it cannot represent.

    `connect` and `isostring` represent times within a day, `nanoseconds` DATETIMEs of the years 1677 to 2262.
    """
    last = _DAY_US if mode == "connect" else _DAY_US - 1
    if kind is Semantic.TIME and mode in ("connect", "isostring") and not 0 <= value <= last:
        return None
    if mode == "nanoseconds":
        return value * 1000 if abs(value) <= _MOST_NANOSECONDS_US else None
    if mode == "isostring":
        return _iso_text(kind, value)
    return value // 1000 if mode == "connect" and kind is not Semantic.DATE else value


def _iso_text(kind: Semantic, value: int) -> str:
    if kind is Semantic.DATE:
        return f"{defaults.EPOCH.date() + timedelta(days=value)}Z"
    moment = defaults.EPOCH + timedelta(microseconds=value)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    date_part = "" if kind is Semantic.TIME else f"{moment.date()}T"
    return f"{date_part}{moment:%H:%M:%S}{fraction}Z"


def scaled_text(unscaled: int, scale: int) -> str:
    """Return a decimal without exponent, with all `scale` fraction digits (Java's `toPlainString`)."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if scale else ''}{fraction}"


def binary_text(value: bytes, mode: BinaryMode) -> str:
    """Bytes as text: base64 of one of its two alphabets, padded, or lower-case hexadecimal."""
    if mode == "hex":
        return value.hex()
    return (b64encode if mode == "base64" else urlsafe_b64encode)(value).decode()
