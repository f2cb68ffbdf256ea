"""Whether a payload of Connect's JSON fits its own schema, as any converter that reads it demands. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_INTEGERS: Final = {f"int{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)}


class Misfits:
    """Finds values that their schema does not allow; Avro and records without schemas are not looked at.

    What is read in Avro fits: it could not be read otherwise.
    """

    def of(self, part: Mapping[str, Any]) -> Iterator[str]:
        """Yield what does not fit in a key or value of schema and payload, with its path."""
        schema = part["schema"]
        if isinstance(schema, dict) and "fields" in schema and all("field" in item for item in schema["fields"]):
            yield from _misfits(schema, part["payload"], "")


def _misfits(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    kind = schema["type"]
    if value is None:
        if not schema["optional"]:
            yield f"{where}: null is not optional"
    elif kind == "struct" and isinstance(value, dict):
        fields: Sequence[Mapping[str, Any]] = schema["fields"]
        if [item["field"] for item in fields] != [*value]:
            yield f"{where}: fields {[*value]} are not those of the schema"
            return
        for item in fields:
            yield from _misfits(item, value[item["field"]], f"{where}.{item['field']}")
    elif kind == "array" and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _misfits(schema["items"], item, f"{where}[{number}]")
    elif not _is_of(kind, value):
        yield f"{where}: {value!r} is no {kind}"


def _is_of(kind: str, value: Any) -> bool:
    if kind in _INTEGERS:
        return type(value) is int and value in _INTEGERS[kind]
    if kind == "bytes":
        return isinstance(value, str) and _is_base64(value)
    if kind in ("float", "double", "float32", "float64"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return (kind == "boolean" and isinstance(value, bool)) or (kind == "string" and isinstance(value, str)) or kind == "map"


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
