"""What the columns of a relational sink have, as Arrow: the merge job's comments name types, cells of text become arrays. No I/O.

A column of ours has the comment `tidemark <type>`, where the type is Spark's, in JSON but for the quotes of a plain name: a
database has fewer types. Structs, arrays and maps are JSON texts there, in which bytes are base64.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from schemas.type_comments import type_json
from tidemark.verify.text_rows import Cells

Reading = Callable[[Cells], pa.Array]

_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_MOST_DIGITS: Final = 38
WALL_TIME: Final = pa.timestamp("us")
INSTANT: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "date": pa.date32(),
    "timestamp_ntz": WALL_TIME,
    "timestamp": INSTANT,
}


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column: its Arrow type, what is selected of it, and what makes the selected cells an array of that type."""

    name: str
    kind: pa.DataType
    expression: str
    read: Reading


def type_of_comment(comment: str) -> pa.DataType | None:
    """Return the Arrow type of the Spark type that a comment of the merge job names; None for another comment."""
    text = type_json(comment)
    try:
        return None if text is None else _arrow(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return the type of a decimal; a text where it has more digits than Spark's."""
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else pa.large_string()


def _arrow(spark: Any) -> pa.DataType:
    """Return the type; `ValueError`, `KeyError` or `TypeError` for one that is unknown."""
    if isinstance(spark, str):
        decimal = _DECIMAL.fullmatch(spark)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[spark]
    if spark["type"] == "struct":
        return pa.struct([pa.field(field["name"], _arrow(field["type"])) for field in spark["fields"]])
    if spark["type"] == "array":
        return pa.list_(_arrow(spark["elementType"]))
    if spark["type"] == "map":
        return pa.map_(_arrow(spark["keyType"]), _arrow(spark["valueType"]))
    raise ValueError(spark)


# --- cells -----------------------------------------------------------------------------------------------


def texts(cells: Cells) -> pa.Array:
    """Return texts; `pa.ArrowInvalid` for bytes that are not UTF-8."""
    return cells.binary().cast(pa.large_string())


def whole_numbers(cells: Cells) -> pa.Array:
    """Return numbers that are written in digits, as int64."""
    return texts(cells).cast(pa.int64())


def reading_of(kind: pa.DataType) -> Reading:
    """Return what reads cells as that type; dates and times are read as numbers of days or microseconds since 1970."""
    if pa.types.is_large_binary(kind):
        return Cells.binary
    if pa.types.is_large_string(kind):
        return texts
    if pa.types.is_boolean(kind):
        return _booleans
    if pa.types.is_nested(kind):
        return lambda cells: _from_json(texts(cells), kind)
    if pa.types.is_date(kind):
        return lambda cells: whole_numbers(cells).cast(pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        return lambda cells: whole_numbers(cells).cast(kind)
    return lambda cells: texts(cells).cast(kind)


def _booleans(cells: Cells) -> pa.Array:
    numbers = whole_numbers(cells)
    others = pc.and_(pc.not_equal(numbers, 0), pc.not_equal(numbers, 1))
    if pc.any(others).as_py():
        raise pa.ArrowInvalid(f"{pc.filter(numbers, others)[0]} in a column that is boolean")
    return numbers.cast(pa.bool_())


def _from_json(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        values = [None if text is None else _value(json.loads(text, parse_float=Decimal), kind) for text in array.to_pylist()]
    except (ValueError, TypeError, KeyError, AttributeError, InvalidOperation) as error:
        raise pa.ArrowInvalid(f"a JSON text that is no {kind}: {error}") from error
    return pa.array(values, kind)


def _value(found: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as Arrow takes it for a type."""
    if found is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(found.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_value(key, kind.key_type), _value(one, kind.item_type)) for key, one in found.items()]
    if pa.types.is_list(kind):
        return [_value(one, kind.value_type) for one in found]
    return _plain(found, kind)


def _plain(found: Any, kind: pa.DataType) -> Any:
    if pa.types.is_large_binary(kind):
        return base64.b64decode(found, validate=True)
    if pa.types.is_decimal(kind):
        return Decimal(found)
    if pa.types.is_floating(kind):
        return float(found)
    if pa.types.is_integer(kind):
        return int(found)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False, True: True, False: False}[found]
    if pa.types.is_date(kind):
        return date.fromisoformat(found)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(found)
        return moment.replace(tzinfo=moment.tzinfo or UTC) if kind.tz else moment
    return str(found)
