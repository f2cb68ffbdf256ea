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
        return _IMAGES[form](document)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not of {form} ({error!r})") from error


def _changelog(document: Document) -> Image:
    return _after(document["op"], {"+I": True, "+U": True, "-U": False, "-D": False}, lambda: document["data"])


def _debezium(document: Document) -> Image:
    return _after(document["op"], {"c": True, "r": True, "u": True, "d": False}, lambda: document["after"])


def _canal(document: Document) -> Image:
    return _after(document["type"], {"INSERT": True, "UPDATE": True, "DELETE": False}, lambda: document["data"][0])


def _maxwell(document: Document) -> Image:
    return _after(document["type"], {"insert": True, "update": True, "delete": False}, lambda: document["data"])


def _after(kind: Any, leaves_row: Mapping[str, bool], row: Callable[[], Any]) -> Image:
    """Return the row if a message of that kind leaves one; `KeyError` for a kind that the format does not have."""
    return _row(row()) if leaves_row[kind] else None


def _row(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise TypeError(f"{found!r} is no row")
    return found


_IMAGES: Final[Mapping[str, Callable[[Document], Image]]] = {
    "changelog-json": _changelog, "debezium-json": _debezium, "canal-json": _canal, "maxwell-json": _maxwell,
}  # fmt: skip


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
