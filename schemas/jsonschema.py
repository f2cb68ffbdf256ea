"""Connect schemas as the `schema` block of Connect's JsonConverter (`schemas.enable=true`)."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from schemas.connect_types import ConnectSchema, ConnectType, DefaultValue


def to_json_schema(schema: ConnectSchema) -> dict[str, Any]:
    """Return the block of a schema, keys in JsonConverter's order; bytes defaults are base64."""
    block: dict[str, Any] = {"type": str(schema.type)}
    if schema.items is not None:
        block["items"] = to_json_schema(schema.items)
    if schema.keys is not None and schema.values is not None:
        block["keys"] = to_json_schema(schema.keys)
        block["values"] = to_json_schema(schema.values)
    if schema.type is ConnectType.STRUCT:
        block["fields"] = [{**to_json_schema(field.schema), "field": field.name} for field in schema.fields]
    block["optional"] = schema.optional
    if schema.name is not None:
        block["name"] = schema.name
    if schema.version is not None:
        block["version"] = schema.version
    if schema.doc is not None:
        block["doc"] = schema.doc
    if schema.parameters:
        block["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        block["default"] = _default(schema.default)
    return block


def _default(value: DefaultValue) -> bool | int | float | str:
    return b64encode(value).decode() if isinstance(value, bytes) else value
