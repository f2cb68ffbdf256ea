"""The text of a record key in the headers of a primary-key update.

Debezium writes `__debezium.newkey` and `__debezium.oldkey` through Kafka Connect's SimpleHeaderConverter: the
key struct as compact JSON-like text, decimals as plain numbers, bytes as base64 (`Values.convertToString`).
Key changes are rare: this is Python, off the hot path.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import fastavro

from schemas import avro
from schemas.connect import DECIMAL_NAME, ConnectSchema, ConnectType

_FRAME: Final = 5
KeyText = Callable[[bytes], bytes]


def key_text(schema: ConnectSchema, wire: str) -> KeyText:
    """The function that turns a key's bytes, as the codec wrote them, into a header's text (UTF-8)."""
    if wire == "avro":
        parsed = fastavro.parse_schema(json.loads(avro.to_avro(schema)))

        def from_avro(key: bytes) -> bytes:
            values: Any = fastavro.schemaless_reader(io.BytesIO(key[_FRAME:]), parsed)
            return _text(schema, list(values.values()))

        return from_avro

    def from_json(key: bytes) -> bytes:
        document = json.loads(key)
        payload = document["payload"] if wire == "json_schema" else document
        return _text(schema, [payload[field.name] for field in schema.fields])

    return from_json


def _text(schema: ConnectSchema, values: list[Any]) -> bytes:
    parts = (
        f"{json.dumps(field.name, ensure_ascii=False)}:{_value(field.schema, value)}"
        for field, value in zip(schema.fields, values, strict=True)
    )
    return f"{{{','.join(parts)}}}".encode()


def _value(schema: ConnectSchema, value: Any) -> str:
    if isinstance(value, str) and schema.name == DECIMAL_NAME:
        scale = int(dict(schema.parameters)["scale"])
        unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
        value = Decimal(unscaled).scaleb(-scale)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if schema.type is ConnectType.FLOAT64 or schema.type is ConnectType.FLOAT32:
        return repr(float(value))
    return json.dumps(value, ensure_ascii=False)
