"""Rules of numbers: integers and YEAR become int64 or decimals, FLOAT and DOUBLE their bits, BIT(n) bytes. No I/O."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mysqlio.quoting import quoted
from schemas.columns import YEAR_DIGITS, Column, ColumnType
from tidemark.verify.column_rule import Parts, is_binary, refuse
from tidemark.verify.text_rows import Cells

_BIGINT_DIGITS: Final = 20
_DECIMAL128_DIGITS: Final = 38
_DECIMAL256_DIGITS: Final = 76


def integer_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of an integer of at most eight bytes, with a sign."""
    if sink_type is not None and pa.types.is_decimal(sink_type):
        return _decimal_parts(column, sink_type, _BIGINT_DIGITS, 0)
    if sink_type is not None and not pa.types.is_signed_integer(sink_type):
        raise refuse(column, sink_type, "an integer")
    return _int64_parts(quoted(column.name)) | {"ordered": True}


def _int64_parts(expression: str) -> Parts:
    return {
        "common": pa.int64(),
        "expression": expression,
        "from_source": lambda cells: cells.binary().cast(pa.large_string()).cast(pa.int64()),
        "from_sink": lambda array: array.cast(pa.int64()),
        "literal": str,
        "show": str,
    }


def year_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a YEAR."""
    if sink_type is not None and not pa.types.is_signed_integer(sink_type):
        raise refuse(column, sink_type, "an integer")
    name = quoted(column.name)
    if column.display == YEAR_DIGITS:  # MariaDB's YEAR(2) is shown as two digits
        return _int64_parts(f"({name} + IF({name} + 0 < 70, 2000, 1900))")
    return _int64_parts(name)


def big_unsigned_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a BIGINT UNSIGNED."""
    if sink_type is not None and not (
        pa.types.is_decimal(sink_type) or pa.types.is_signed_integer(sink_type)
    ):
        raise refuse(column, sink_type, "decimal(20,0)")
    return _decimal_parts(column, sink_type, _BIGINT_DIGITS, 0)


def decimal_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a DECIMAL."""
    if sink_type is not None and not pa.types.is_decimal(sink_type):  # a text need not be a number: what a cast gives
        raise refuse(column, sink_type, "a decimal, or a string where it has more than 38 digits")
    return _decimal_parts(column, sink_type, column.precision or 10, column.scale or 0)


def _decimal_parts(column: Column, sink_type: pa.DataType | None, precision: int, scale: int) -> Parts:
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


def floating_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a FLOAT or DOUBLE."""
    if sink_type is not None and not pa.types.is_floating(sink_type):
        raise refuse(column, sink_type, "float or double")
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


def bit_rule(column: Column, sink_type: pa.DataType | None) -> Parts:
    """Return the rule of a BIT."""
    expression = f"{quoted(column.name)} + 0"
    if (column.length or 1) == 1:
        if sink_type is not None and not pa.types.is_boolean(sink_type):
            raise refuse(column, sink_type, "boolean")
        return _int64_parts(expression)
    if sink_type is not None and not is_binary(sink_type):
        raise refuse(column, sink_type, "binary")
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
