"""Column rules: what a source column and its sink column have in common, and how each side gets there.

A rule is made for a pair (source column, type of the sink column). Both sides become Arrow arrays of one
*common* type, in which equal values are equal bits:

============================  =======================================================
source type                   common type
============================  =======================================================
integers, YEAR, BIT(1)        int64
BIGINT UNSIGNED, DECIMAL      decimal128, or decimal256 where it must be
FLOAT, DOUBLE                 uint32, uint64: the bits of the number
DATE · DATETIME, TIME         int64: days · microseconds
CHAR ... TEXT, ENUM, SET      large_binary: UTF-8
JSON                          large_binary: without space between tokens, see `json_text`
UUID, INET4, INET6            large_binary: UTF-8
BIT(n), BINARY ... BLOB       large_binary
spatial                       large_binary: the SRID in four bytes, then WKB
VECTOR                        large_binary: little-endian floats
============================  =======================================================

Zero and impossible dates are NULL, as in the sink; where the column is NOT NULL they are what records have for them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from mysqlio.quoting import quoted
from schemas.columns import Column, ColumnType
from schemas.types.column_facts import SPATIAL_TYPES
from tidemark.verify import casts, json_text
from tidemark.verify.column_rule import ColumnRule, IncomparableError, Parts, Value, is_binary, refuse
from tidemark.verify.number_rules import (
    big_unsigned_rule,
    bit_rule,
    decimal_rule,
    floating_rule,
    integer_rule,
    year_rule,
)
from tidemark.verify.text_rows import Cells
from tidemark.verify.time_rules import calendar_date_rule, clock_time_rule, timestamp_rule, wall_time_rule

_BYTES: Final = frozenset(
    {
        ColumnType.BINARY,
        ColumnType.VARBINARY,
        ColumnType.TINYBLOB,
        ColumnType.BLOB,
        ColumnType.MEDIUMBLOB,
        ColumnType.LONGBLOB,
    }
)
_GEOMETRY: Final = frozenset({"srid", "wkb"})
_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")

def rule(column: Column, sink_name: str | None, sink_type: pa.DataType | None) -> ColumnRule:
    """Return the rule of a pair of columns; `sink_type` None means that the sink has no such column.

    Where the sink still has a type that also holds what the column was before, what a cast gives is compared (`casts`).
    Raises `IncomparableError` when the sink's type cannot hold what the source's type means.
    """
    maker = _maker(column)
    try:
        made = maker(column, sink_type)
    except IncomparableError:
        if sink_type is None or not casts.can_hold(column, sink_type):
            raise
        made = _cast(column, maker)
    return ColumnRule(name=column.name, sink_name=sink_name, **made)


def _cast(column: Column, maker: Callable[[Column, pa.DataType | None], Parts]) -> Parts:
    """Return the rule of a column whose sink is of another type, and may come to have its own while it is read."""
    own = ColumnRule(name=column.name, sink_name=None, **maker(column, None))

    def value(compared: bytes) -> Value:
        return casts.value_of(compared, own.common)

    def from_sink(array: pa.Array) -> pa.Array:
        try:
            exact = maker(column, array.type)
        except IncomparableError:
            return casts.read(array, column)
        same_type = exact["common"] == own.common
        return casts.to_binary(exact["from_sink"](array)) if same_type else casts.read(array, column)

    def literal(compared: bytes) -> str:
        try:
            return own.literal(value(compared))
        except ValueError:
            return "NULL"  # no row of the source

    def show(compared: bytes) -> str:
        try:
            return own.show(value(compared))
        except ValueError:
            return casts.shown(compared)

    def same(left: bytes, right: bytes) -> bool:
        try:
            return own.same(value(left), value(right))
        except ValueError:
            return False

    return {
        "common": pa.large_binary(),
        "expression": own.expression,
        "from_source": lambda cells: casts.to_binary(own.from_source(cells)),
        "from_sink": from_sink,
        "literal": literal,
        "show": show,
        "same": same,
    }


def _maker(column: Column) -> Callable[[Column, pa.DataType | None], Parts]:
    kind = column.type
    if kind in casts.INTEGERS:
        return big_unsigned_rule if kind is ColumnType.BIGINT and column.unsigned else integer_rule
    if kind in casts.TEXTS:
        return _text
    if kind in _BYTES:
        return _bytes
    return _OTHERS[kind]


# --- strings and bytes ------------------------------------------------------------------------------------


def _text(column: Column, sink_type: pa.DataType | None) -> Parts:
    if sink_type is not None and not _is_text(sink_type):
        raise refuse(column, sink_type, "string")
    return {
        "common": pa.large_binary(),
        "expression": quoted(column.name),
        "from_source": _text_cells,
        "from_sink": _utf8,
        "literal": _text_literal,
        "show": lambda value: repr(value.decode("utf-8", "backslashreplace")),
    }


def _json(column: Column, sink_type: pa.DataType | None) -> Parts:
    return _text(column, sink_type) | {
        "from_source": lambda cells: json_text.compact(cells.binary()),
        "from_sink": json_text.compact,
        "show": lambda value: value.decode("utf-8", "backslashreplace"),
        "same": json_text.same,
    }


def _bytes(column: Column, sink_type: pa.DataType | None) -> Parts:
    if sink_type is not None and not is_binary(sink_type):
        raise refuse(column, sink_type, "binary")
    return {
        "common": pa.large_binary(),
        "expression": quoted(column.name),
        "from_source": Cells.binary,
        "from_sink": lambda array: array.cast(pa.large_binary()),
        "literal": lambda value: f"x'{value.hex()}'",
        "show": lambda value: f"0x{value.hex()}",
    }


def _spatial(column: Column, sink_type: pa.DataType | None) -> Parts:
    if sink_type is not None and not (pa.types.is_struct(sink_type) and _names(sink_type) >= _GEOMETRY):
        raise refuse(column, sink_type, "a struct of srid and wkb")
    return _bytes(column, None) | {"from_sink": _geometries}


def _names(kind: pa.DataType) -> set[str]:
    return {field.name for field in kind}


def _geometries(array: pa.Array) -> pa.Array:
    values = [
        None
        if value is None
        else (int(value["srid"] or 0).to_bytes(4, "little", signed=True) if value["wkb"] else b"")
        + (value["wkb"] or b"")
        for value in array.to_pylist()
    ]
    return pa.array(values, type=pa.large_binary())


def _vector(column: Column, sink_type: pa.DataType | None) -> Parts:
    if sink_type is not None and not (pa.types.is_list(sink_type) or pa.types.is_large_list(sink_type)):
        raise refuse(column, sink_type, "an array of float")
    return _bytes(column, None) | {"from_sink": _vectors}


def _vectors(array: pa.Array) -> pa.Array:
    values = [None if value is None else struct.pack(f"<{len(value)}f", *value) for value in array.to_pylist()]
    return pa.array(values, type=pa.large_binary())


def _text_literal(value: bytes) -> str:
    text = value.decode()
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"


def _text_cells(cells: Cells) -> pa.Array:
    """Texts as the server sends them; halves of surrogate pairs, which are no characters, as records have them: `?`."""
    array = cells.binary()
    try:
        array.cast(pa.large_string())
    except pa.ArrowInvalid:
        values = [None if value is None else _HALF.sub(b"?", value) for value in array.to_pylist()]
        return pa.array(values, type=pa.large_binary())
    return array


def _utf8(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string()).cast(pa.large_binary())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


_OTHERS: Final[dict[ColumnType, Callable[[Column, pa.DataType | None], Parts]]] = {
    ColumnType.DECIMAL: decimal_rule,
    ColumnType.FLOAT: floating_rule,
    ColumnType.DOUBLE: floating_rule,
    ColumnType.BIT: bit_rule,
    ColumnType.YEAR: year_rule,
    ColumnType.DATE: calendar_date_rule,
    ColumnType.DATETIME: wall_time_rule,
    ColumnType.TIMESTAMP: timestamp_rule,
    ColumnType.TIME: clock_time_rule,
    ColumnType.JSON: _json,
    ColumnType.VECTOR: _vector,
    **dict.fromkeys(SPATIAL_TYPES, _spatial),
}
