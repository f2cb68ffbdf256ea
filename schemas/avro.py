"""Connect schemas as Avro text, the way Confluent's AvroData writes them (`connect.meta.data=true`).

Names are adjusted for Avro as Debezium's `schema.name.adjustment.mode=avro` and
`field.name.adjustment.mode=avro` do, because Avro takes letters, digits and `_` only: every other character
becomes `_`, a leading digit gets a `_` in front (`2024-orders` becomes `_2024_orders`). We do so for every
component of a dotted name, Debezium for the first only, which leaves names Avro does not allow. Two names
of one record that become the same are refused. The JSON format keeps the names as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from schemas.connect_types import (
    DATE_NAME,
    DECIMAL_NAME,
    SOURCE_PARAMETER,
    TIME_NAME,
    TIMESTAMP_NAME,
    ConnectField,
    ConnectSchema,
    ConnectType,
    DefaultValue,
)
from schemas.errors import SchemaMismatchError
from schemas.names import NameMode, adjusted_field_name

DEFAULT_DECIMAL_PRECISION: Final = 64
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_NULL: Final = "null"

_PRIMITIVES: Final = {
    ConnectType.INT8: "int",
    ConnectType.INT16: "int",
    ConnectType.INT32: "int",
    ConnectType.INT64: "long",
    ConnectType.FLOAT32: "float",
    ConnectType.FLOAT64: "double",
    ConnectType.BOOLEAN: "boolean",
    ConnectType.STRING: "string",
    ConnectType.BYTES: "bytes",
}

# Connect's own names that Avro has a word for too, in AvroData's spelling.
_LOGICAL: Final = {
    DECIMAL_NAME: "decimal",
    DATE_NAME: "date",
    TIME_NAME: "time-millis",
    TIMESTAMP_NAME: "timestamp-millis",
}

Node = Any  # an Avro schema node: str, list or dict, as the json module has it


def to_avro(schema: ConnectSchema) -> str:
    """Return the Avro schema as compact JSON text; `SchemaMismatchError` when two field names become the same."""
    return json.dumps(_AvroWriter().node(schema, ""), ensure_ascii=False, separators=(",", ":"))


def avro_field_name(name: str) -> str:
    """Return a column's field name in Avro: other characters than letters, digits and `_` become `_`."""
    adjusted = _NOT_NAME.sub("_", name)
    return f"_{adjusted}" if not adjusted or adjusted[0].isdigit() else adjusted


def avro_full_name(name: str) -> str:
    """Return a dotted schema name with every component made valid for Avro."""
    return ".".join(avro_field_name(part) for part in name.split("."))


class _AvroWriter:
    """Writes one schema; a record's second use is its name, relative where the namespace is the same."""

    def __init__(self) -> None:
        self._records: dict[str, ConnectSchema] = {}

    def node(self, schema: ConnectSchema, namespace: str) -> Node:
        """Return the node of a schema inside `namespace`; a union when it is optional."""
        base = self._base(schema, namespace)
        if not schema.optional:
            return base
        return [_NULL, base] if schema.default is None else [base, _NULL]

    def _base(self, schema: ConnectSchema, namespace: str) -> Node:
        if schema.type is ConnectType.STRUCT:
            return self._record(schema, namespace)
        node = self._container(schema, namespace)
        node.update(_metadata(schema))
        return node["type"] if len(node) == 1 else node

    def _container(self, schema: ConnectSchema, namespace: str) -> dict[str, Node]:
        if schema.items is not None:
            return {"type": "array", "items": self.node(schema.items, namespace)}
        if schema.values is not None:
            return {"type": "map", "values": self.node(schema.values, namespace)}
        return {"type": _PRIMITIVES[schema.type]}

    def _record(self, schema: ConnectSchema, namespace: str) -> Node:
        full_name = avro_full_name(schema.name or "ConnectDefault")
        own_namespace, _, short_name = full_name.rpartition(".")
        if full_name in self._records:
            if self._records[full_name].fields != schema.fields:
                message = f"two different records would be called {full_name} in Avro; rename one"
                raise SchemaMismatchError(message)
            return short_name if own_namespace == namespace else full_name
        self._records[full_name] = schema
        node: dict[str, Node] = {"type": "record", "name": short_name}
        if own_namespace and own_namespace != namespace:
            node["namespace"] = own_namespace
        require_distinct_field_names(full_name, (field.name for field in schema.fields))
        node["fields"] = [self._field(field, own_namespace) for field in schema.fields]
        # A record is written out once, for all columns of its type: it names the source's type of none of them.
        shared = tuple(item for item in schema.parameters if not item[0].startswith(SOURCE_PARAMETER))
        node.update(_metadata(replace(schema, parameters=shared)))
        return node

    def _field(self, field: ConnectField, namespace: str) -> Node:
        node = {"name": avro_field_name(field.name), "type": self.node(field.schema, namespace)}
        if field.schema.doc is not None:
            node["doc"] = field.schema.doc
        if field.schema.default is not None:
            node["default"] = _default(field.schema.default)
        elif field.schema.optional:
            node["default"] = None
        return node


def _metadata(schema: ConnectSchema) -> dict[str, Node]:
    """Return the properties that carry what Avro itself can't say, in AvroData's order."""
    properties: dict[str, Node] = {}
    parameters = dict(schema.parameters)
    is_decimal = schema.name == DECIMAL_NAME
    if is_decimal:
        properties["scale"] = int(parameters["scale"])
        properties["precision"] = int(parameters.get("connect.decimal.precision", DEFAULT_DECIMAL_PRECISION))
    if schema.type in (ConnectType.INT8, ConnectType.INT16):
        properties["connect.type"] = str(schema.type)
    if schema.doc is not None:
        properties["connect.doc"] = schema.doc
    if schema.version is not None:
        properties["connect.version"] = schema.version
    if parameters:
        properties["connect.parameters"] = parameters
    if schema.default is not None:
        properties["connect.default"] = _default(schema.default)
    if schema.name is not None:
        properties["connect.name"] = avro_full_name(schema.name)
    if schema.name in _LOGICAL:
        properties["logicalType"] = _LOGICAL[schema.name]
    return properties


def _default(value: DefaultValue) -> bool | int | float | str:
    """Return a default as Avro's JSON has it: bytes are text, one character per byte (ISO-8859-1)."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


def require_distinct_field_names(record: str, names: Iterable[str], mode: NameMode = "none") -> None:
    """Refuse columns whose names become one and the same in Avro, or in `format.field_names` (`SchemaMismatchError`)."""
    seen: dict[str, str] = {}
    advice = "rename one of them, or use format.field_names: avro_unicode, which keeps names apart"
    if mode == "avro_unicode":
        advice = "rename one of them, or use format.type json and format.field_names none"
    where = "Avro" if mode == "none" else f"format.field_names {mode}"
    for name in names:
        adjusted = avro_field_name(name) if mode == "none" else adjusted_field_name(name, mode)
        if adjusted in seen:
            message = (
                f"columns {seen[adjusted]!r} and {name!r} of {record} are both called {adjusted!r} in {where}; "
                f"{advice}"
            )
            raise SchemaMismatchError(message)
        seen[adjusted] = name
