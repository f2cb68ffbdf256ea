"""Rules of computed columns: both sides have the type of the sink's column, and become columns of common type (see `rules`).

Integers and booleans become int64, FLOAT and DOUBLE their bits, dates and times numbers, texts and bytes large_binary; a decimal
stays one. An array, a struct or a map becomes a text that is equal where the value is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemark.verify.column_rule import ColumnRule, IncomparableError, Value, is_binary

_FLOATS: Final[Mapping[pa.DataType, tuple[pa.DataType, Any, Any]]] = {
    pa.float32(): (pa.uint32(), np.uint32, np.float32),
    pa.float64(): (pa.uint64(), np.uint64, np.float64),
}
Parts = tuple[pa.DataType, Callable[[pa.Array], pa.Array], Callable[[Value], str]]


def image_rule(name: str, sink_name: str | None, kind: pa.DataType) -> ColumnRule:
    """Return the rule of a computed column. `IncomparableError` for a type that cannot be compared."""
    if kind in _FLOATS:
        return _floating(name, sink_name, kind)
    common, convert, show = _parts(name, kind)
    return _rule(name, sink_name, common, convert, show)


def _rule(
    name: str,
    sink_name: str | None,
    common: pa.DataType,
    convert: Callable[[pa.Array], pa.Array],
    show: Callable[[Value], str],
    same: Callable[[Value, Value], bool] = lambda _left, _right: False,
) -> ColumnRule:
    return ColumnRule(
        name=name, sink_name=sink_name, common=common, expression="", from_source=convert, from_sink=convert, literal=_no_literal,
        show=show, same=same,
    )  # fmt: skip


def _no_literal(_value: Value) -> str:
    raise AssertionError("a computed column is no key")


def _parts(name: str, kind: pa.DataType) -> Parts:
    if pa.types.is_boolean(kind):
        return pa.int64(), lambda array: array.cast(pa.int64()), lambda value: "true" if value else "false"
    if pa.types.is_integer(kind):
        return pa.int64(), lambda array: array.cast(pa.int64()), str
    if pa.types.is_decimal(kind):
        return kind, lambda array: array.cast(kind), lambda value: format(value, "f")
    if pa.types.is_date(kind):
        return pa.int64(), lambda array: array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _date
    if pa.types.is_timestamp(kind):
        return pa.int64(), lambda array: array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), _time
    if is_binary(kind):
        return pa.large_binary(), lambda array: array.cast(pa.large_binary()), lambda value: f"0x{value.hex()}"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_binary(), _utf8, lambda value: repr(value.decode("utf-8", "backslashreplace"))
    if pa.types.is_nested(kind):
        return pa.large_binary(), lambda array: _nested(array, kind), lambda value: str(value.decode())
    raise IncomparableError(f"column {name}: {kind} of the sink cannot be compared with what its expression gives")


def _floating(name: str, sink_name: str | None, kind: pa.DataType) -> ColumnRule:
    bits, whole, floating = _FLOATS[kind]

    def number(value: Value) -> float:
        return float(whole(value).view(floating))

    def same(left: Value, right: Value) -> bool:
        return math.isnan(number(left)) and math.isnan(number(right))

    return _rule(name, sink_name, bits, lambda array: array.cast(kind).view(bits), lambda value: repr(number(value)), same)


def _date(value: Value) -> str:
    return str(np.datetime64(value, "D"))


def _time(value: Value) -> str:
    return str(np.datetime64(value, "us")).replace("T", " ")


def _utf8(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string()).cast(pa.large_binary())


def _nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    values = [None if value is None else _text(value, kind).encode() for value in array.to_pylist()]
    return pa.array(values, pa.large_binary())


def _text(value: Any, kind: pa.DataType) -> str:
    return json.dumps(_plain(value, kind), ensure_ascii=True, default=repr)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value whose text is the same where the value is: the order of a map's keys does not count."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [[_plain(key, kind.key_type), _plain(one, kind.item_type)] for key, one in value]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0], default=repr))
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_nested(kind):
        return [_plain(one, kind.value_type) for one in value]
    return value.hex() if isinstance(value, bytes) else value
