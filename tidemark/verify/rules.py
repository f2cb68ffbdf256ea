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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.columns import ADDRESS_BYTES, SPATIAL_TYPES, YEAR_DIGITS, Column, ColumnType
from schemas.connect import column_default
from tidemark.verify import casts, json_text, temporal
from tidemark.verify.text_rows import Cells

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US: Final = 86_400_000_000
_YEAR_ZERO: Final = -719_528  # its first day
_YEAR_ONE: Final = -719_162
_DAYS_OF_400_YEARS: Final = 146_097
_INTEGERS: Final = frozenset(
    {ColumnType.TINYINT, ColumnType.SMALLINT, ColumnType.MEDIUMINT, ColumnType.INT, ColumnType.BIGINT}
)
_TEXTS: Final = frozenset(
    {
        ColumnType.CHAR,
        ColumnType.VARCHAR,
        ColumnType.TINYTEXT,
        ColumnType.TEXT,
        ColumnType.MEDIUMTEXT,
        ColumnType.LONGTEXT,
        ColumnType.ENUM,
        ColumnType.SET,
        *ADDRESS_BYTES,
    }
)
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
_BIGINT_DIGITS: Final = 20
_DECIMAL128_DIGITS: Final = 38
_DECIMAL256_DIGITS: Final = 76
_GEOMETRY: Final = frozenset({"srid", "wkb"})
_SHOWN_CHARACTERS: Final = 200
_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_MILLISECOND_DIGITS: Final = 3

Value = Any
_Parts = dict[str, Any]


class IncomparableError(Exception):
    """Source and sink column have no common type; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """How one column of both sides becomes comparable.

    `expression` is what is selected from the source. `from_source` takes the cells of that expression,
    `from_sink` an array of the sink column; both give arrays of the common type. `same` compares two common
    values that are not equal bits. `literal` writes a common value as SQL, for key columns.
    `sink_name` is None for a column the sink does not have: all NULL there.
    """

    name: str
    sink_name: str | None
    common: pa.DataType
    expression: str
    from_source: Callable[[Cells], pa.Array]
    from_sink: Callable[[pa.Array], pa.Array]
    literal: Callable[[Value], str]
    show: Callable[[Value], str]
    same: Callable[[Value, Value], bool] = lambda _left, _right: False
    ordered: bool = False  # an int64 that the server orders as numbers do

    def equal(self, left: Value, right: Value) -> bool:
        """Return whether two common values (None is NULL) are the same value."""
        if left is None or right is None:
            return left is right
        return bool(left == right) or self.same(left, right)

    def shown(self, value: Value) -> str:
        """Return a value for people; long ones are cut."""
        if value is None:
            return "NULL"
        text = self.show(value)
        return (
            text
            if len(text) <= _SHOWN_CHARACTERS
            else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
        )


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


def _cast(column: Column, maker: Callable[[Column, pa.DataType | None], _Parts]) -> _Parts:
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


def quoted(name: str) -> str:
    """Return an identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"




def _maker(column: Column) -> Callable[[Column, pa.DataType | None], _Parts]:
    kind = column.type
    if kind in _INTEGERS:
        return _big_unsigned if kind is ColumnType.BIGINT and column.unsigned else _integer
    if kind in _TEXTS:
        return _text
    if kind in _BYTES:
        return _bytes
    return _OTHERS[kind]


def _refuse(column: Column, sink_type: pa.DataType, wanted: str) -> IncomparableError:
    ours = f"column {column.name}: {column.type.upper()} of the source"
    return IncomparableError(f"{ours} needs {wanted} in the sink, which has {sink_type}")


# --- numbers ----------------------------------------------------------------------------------------------


def _integer(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and pa.types.is_decimal(sink_type):
        return _decimal_parts(column, sink_type, _BIGINT_DIGITS, 0)
    if sink_type is not None and not pa.types.is_signed_integer(sink_type):
        raise _refuse(column, sink_type, "an integer")
    return _int64_parts(quoted(column.name)) | {"ordered": True}


def _int64_parts(expression: str) -> _Parts:
    return {
        "common": pa.int64(),
        "expression": expression,
        "from_source": lambda cells: cells.binary().cast(pa.large_string()).cast(pa.int64()),
        "from_sink": lambda array: array.cast(pa.int64()),
        "literal": str,
        "show": str,
    }


def _year(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not pa.types.is_signed_integer(sink_type):
        raise _refuse(column, sink_type, "an integer")
    name = quoted(column.name)
    if column.length == YEAR_DIGITS:  # MariaDB's YEAR(2) is shown as two digits
        return _int64_parts(f"({name} + IF({name} + 0 < 70, 2000, 1900))")
    return _int64_parts(name)


def _big_unsigned(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not (
        pa.types.is_decimal(sink_type) or pa.types.is_signed_integer(sink_type)
    ):
        raise _refuse(column, sink_type, "decimal(20,0)")
    return _decimal_parts(column, sink_type, _BIGINT_DIGITS, 0)


def _decimal(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not pa.types.is_decimal(sink_type):  # a text need not be a number: what a cast gives
        raise _refuse(column, sink_type, "a decimal, or a string where it has more than 38 digits")
    return _decimal_parts(column, sink_type, column.precision or 10, column.scale or 0)


def _decimal_parts(column: Column, sink_type: pa.DataType | None, precision: int, scale: int) -> _Parts:
    whole, fraction = precision - scale, scale
    if sink_type is not None and pa.types.is_decimal(sink_type):
        whole = max(whole, sink_type.precision - sink_type.scale)
        fraction = max(fraction, sink_type.scale)
    if sink_type is not None and pa.types.is_integer(sink_type):
        whole = max(whole, _BIGINT_DIGITS)
    if whole + fraction <= _DECIMAL128_DIGITS:
        common = pa.decimal128(whole + fraction, fraction)
    else:
        common = pa.decimal256(min(whole + fraction, _DECIMAL256_DIGITS), fraction)
    return {
        "common": common,
        "expression": quoted(column.name),
        "from_source": lambda cells: cells.binary().cast(pa.large_string()).cast(common),
        "from_sink": lambda array: _widened(array).cast(common),
        "literal": lambda value: format(value, "f"),
        "show": lambda value: format(value, "f"),
    }


def _widened(array: pa.Array) -> pa.Array:
    """Integers by way of decimal(19,0): Arrow casts them to no smaller precision."""
    return array.cast(pa.decimal128(19, 0)) if pa.types.is_integer(array.type) else array


def _float(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not pa.types.is_floating(sink_type):
        raise _refuse(column, sink_type, "float or double")
    wide = column.type is ColumnType.DOUBLE or (sink_type is not None and sink_type == pa.float64())
    floating, bits = (pa.float64(), pa.uint64()) if wide else (pa.float32(), pa.uint32())
    name = quoted(column.name)
    return {
        "common": bits,
        # times one, not plus zero: that would turn -0.0 into 0.0. Either makes the server print all digits.
        "expression": f"{name} * 1e0",
        "from_source": lambda cells: (
            cells.binary().cast(pa.large_string()).cast(pa.float64()).cast(floating).view(bits)
        ),
        "from_sink": lambda array: array.cast(floating).view(bits),
        "literal": lambda value: repr(_unbits(value, wide=wide)),
        "show": lambda value: repr(_unbits(value, wide=wide)),
    }


def _unbits(value: int, *, wide: bool) -> float:
    if wide:
        return float(np.uint64(value).view(np.float64))
    return float(np.uint32(value).view(np.float32))


def _bit(column: Column, sink_type: pa.DataType | None) -> _Parts:
    expression = f"{quoted(column.name)} + 0"
    if (column.length or 1) == 1:
        if sink_type is not None and not pa.types.is_boolean(sink_type):
            raise _refuse(column, sink_type, "boolean")
        return _int64_parts(expression)
    if sink_type is not None and not _is_binary(sink_type):
        raise _refuse(column, sink_type, "binary")
    size = (int(column.length or 1) + 7) // 8
    return {
        "common": pa.large_binary(),
        "expression": expression,
        "from_source": lambda cells: _bit_bytes(cells, size),
        "from_sink": lambda array: array.cast(pa.large_binary()),
        "literal": lambda value: str(int.from_bytes(value, "little")),
        "show": lambda value: f"b'{int.from_bytes(value, 'little'):b}' ({value.hex()})",
    }


def _bit_bytes(cells: Cells, size: int) -> pa.Array:
    """Return the number a BIT(n) prints as, in `size` bytes, the lowest first: as records carry it."""
    numbers = cells.binary().cast(pa.large_string()).cast(pa.uint64())
    words = np.ascontiguousarray(numbers.fill_null(0).to_numpy(zero_copy_only=False).astype("<u8"))
    matrix = words.view(np.uint8).reshape(-1, 8)[:, :size]
    return pa.array(_rows_of(matrix), type=pa.large_binary(), mask=cells.nulls)


def _rows_of(matrix: NDArray[np.uint8]) -> list[bytes]:
    flat, width = matrix.tobytes(), matrix.shape[1]
    return [flat[at : at + width] for at in range(0, len(flat), width)]


# --- times ------------------------------------------------------------------------------------------------


def _date(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not pa.types.is_date32(sink_type):
        raise _refuse(column, sink_type, "date")
    return {
        "common": pa.int64(),
        "expression": quoted(column.name),
        "from_source": lambda cells: _with_zero(temporal.dates(cells), column),
        "from_sink": lambda array: array.cast(pa.int32()).cast(pa.int64()),
        "literal": lambda value: f"'{_date_text(value)}'",
        "show": _date_text,
    }


def _datetime(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not (pa.types.is_timestamp(sink_type) and sink_type.tz is None):
        raise _refuse(column, sink_type, "timestamp without time zone")
    return _micros_parts(column)


def _timestamp(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not (pa.types.is_timestamp(sink_type) and sink_type.tz is not None):
        raise _refuse(column, sink_type, "timestamp with time zone")
    return _micros_parts(column)


def _micros_parts(column: Column) -> _Parts:
    fraction = column.precision or 0
    return {
        "common": pa.int64(),
        "expression": quoted(column.name),
        "from_source": lambda cells: _with_zero(temporal.datetimes(cells, fraction), column),
        "from_sink": _micros,
        "literal": lambda value: f"'{_datetime_text(value)}'",
        "show": _datetime_text,
    }


def _with_zero(array: pa.Array, column: Column) -> pa.Array:
    """Return the dates that records have: a column that is NOT NULL has its default, else the epoch, for what is no date."""
    return array if column.nullable else array.fill_null(_zero(column))


def _zero(column: Column) -> int:
    default = column_default(column)
    if isinstance(default, str):  # a TIMESTAMP
        return (datetime.fromisoformat(default) - _EPOCH) // timedelta(microseconds=1)
    if not isinstance(default, int):
        return 0
    in_milliseconds = column.type is ColumnType.DATETIME and (column.precision or 0) <= _MILLISECOND_DIGITS
    return default * 1000 if in_milliseconds else default


def _micros(array: pa.Array) -> pa.Array:
    return array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64())


def _time(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not pa.types.is_int64(sink_type):
        raise _refuse(column, sink_type, "bigint")
    fraction = column.precision or 0
    return {
        "common": pa.int64(),
        "expression": quoted(column.name),
        "from_source": lambda cells: temporal.times(cells, fraction),
        "from_sink": lambda array: array,
        "literal": lambda value: f"'{_time_text(value)}'",
        "show": _time_text,
    }


def _date_text(days: int) -> str:
    if _YEAR_ZERO <= days < _YEAR_ONE:  # the server has this year, Python has not
        return f"0000{_date_text(days + _DAYS_OF_400_YEARS)[4:]}"
    try:
        return (_EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return f"day {days} from 1970-01-01"


def _datetime_text(micros: int) -> str:
    days, clock = divmod(micros, _DAY_US)
    return f"{_date_text(days)} {_time_text(clock)}"


def _time_text(micros: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


# --- strings and bytes ------------------------------------------------------------------------------------


def _text(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not _is_text(sink_type):
        raise _refuse(column, sink_type, "string")
    return {
        "common": pa.large_binary(),
        "expression": quoted(column.name),
        "from_source": _text_cells,
        "from_sink": _utf8,
        "literal": _text_literal,
        "show": lambda value: repr(value.decode("utf-8", "backslashreplace")),
    }


def _json(column: Column, sink_type: pa.DataType | None) -> _Parts:
    return _text(column, sink_type) | {
        "from_source": lambda cells: json_text.compact(cells.binary()),
        "from_sink": json_text.compact,
        "show": lambda value: value.decode("utf-8", "backslashreplace"),
        "same": json_text.same,
    }


def _bytes(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not _is_binary(sink_type):
        raise _refuse(column, sink_type, "binary")
    return {
        "common": pa.large_binary(),
        "expression": quoted(column.name),
        "from_source": Cells.binary,
        "from_sink": lambda array: array.cast(pa.large_binary()),
        "literal": lambda value: f"x'{value.hex()}'",
        "show": lambda value: f"0x{value.hex()}",
    }


def _spatial(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not (pa.types.is_struct(sink_type) and _names(sink_type) >= _GEOMETRY):
        raise _refuse(column, sink_type, "a struct of srid and wkb")
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


def _vector(column: Column, sink_type: pa.DataType | None) -> _Parts:
    if sink_type is not None and not (pa.types.is_list(sink_type) or pa.types.is_large_list(sink_type)):
        raise _refuse(column, sink_type, "an array of float")
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


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


_OTHERS: Final[dict[ColumnType, Callable[[Column, pa.DataType | None], _Parts]]] = {
    ColumnType.DECIMAL: _decimal,
    ColumnType.FLOAT: _float,
    ColumnType.DOUBLE: _float,
    ColumnType.BIT: _bit,
    ColumnType.YEAR: _year,
    ColumnType.DATE: _date,
    ColumnType.DATETIME: _datetime,
    ColumnType.TIMESTAMP: _timestamp,
    ColumnType.TIME: _time,
    ColumnType.JSON: _json,
    ColumnType.VECTOR: _vector,
    **dict.fromkeys(SPATIAL_TYPES, _spatial),
}
