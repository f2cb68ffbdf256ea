"""Rows in messages of mirrors, as docs/sinks/formats.md has them: the image that a message leaves, and its values as Arrow (pure).

This is not the code that writes them: verify must not share what it checks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

Document = Mapping[str, Any]
Image = Mapping[str, Any] | None


def image_of(form: str, document: Document) -> Image:
    """Return the row that is there after a message in a format, None after a delete. Raises `ValueError` for no such message."""
    try:
        kind, leaves_row, row_of = _FORMATS[form]
        return _row(row_of(document)) if leaves_row[document[kind]] else None
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not of {form} ({error!r})") from error


def _row(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise TypeError(f"{found!r} is no row")
    return found


_FORMATS: Final[Mapping[str, tuple[str, Mapping[str, bool], Callable[[Document], Any]]]] = {
    "changelog-json": ("op", {"+I": True, "+U": True, "-U": False, "-D": False}, lambda document: document["data"]),
    "debezium-json": ("op", {"c": True, "r": True, "u": True, "d": False}, lambda document: document["after"]),
    "canal-json": ("type", {"INSERT": True, "UPDATE": True, "DELETE": False}, lambda document: document["data"][0]),
    "maxwell-json": ("type", {"insert": True, "update": True, "delete": False}, lambda document: document["data"]),
}
"""By format: the member that has the kind of a message, whether a row is there after each kind, and the row."""


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of JSON, or the texts that canal-json has of them, as an array. Raises `ValueError` and errors of Arrow."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array([None if value is None else _value(value, kind) for value in values], kind)


def _value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: None if value.get(field.name) is None else _value(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [None if one is None else _value(one, kind.value_type) for one in value]
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else {"true": True, "false": False}[value]
    if pa.types.is_integer(kind):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            raise ValueError(f"{value!r} is no whole number")
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64.b64decode(value, validate=True)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")  # noqa: TRY004 - as any other wrong value
    return value
