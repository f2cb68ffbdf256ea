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
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import fastavro

from schemas import avro
from schemas.connect_types import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    ConnectSchema,
    ConnectType,
)

_FRAME: Final = 5
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  as the schemas have it, without a zone
# Connect's own times as `Values.convertToString` has them, unquoted; it chooses the form by the value, we by the type.
_FORMATS: Final[dict[str | None, Callable[[datetime], str]]] = {
    DATE_NAME: lambda moment: moment.date().isoformat(),
    TIME_NAME: lambda moment: f"{moment.time().isoformat('milliseconds')}Z",
    TIMESTAMP_NAME: lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z",
}
KeyText = Callable[[bytes], bytes]


def key_text(schema: ConnectSchema, wire: str) -> KeyText:
    """Return the function that turns a key's bytes, as the codec wrote them, into a header's text (UTF-8)."""
    if wire == "avro":
        parsed = fastavro.parse_schema(json.loads(avro.to_avro(_with_plain_times(schema))))

        def from_avro(key: bytes) -> bytes:
            values: Any = fastavro.schemaless_reader(io.BytesIO(key[_FRAME:]), parsed)
            return _text(schema, list(values.values()))

        return from_avro

    def from_json(key: bytes) -> bytes:
        document = json.loads(key)
        payload = document["payload"] if wire == "json_schema" else document
        return _text(schema, [payload[field.name] for field in schema.fields])

    return from_json


def _with_plain_times(schema: ConnectSchema) -> ConnectSchema:
    """Return the same key, Connect's own times as the numbers they are on the wire."""
    fields = tuple(
        replace(field, schema=replace(field.schema, name=None)) if field.schema.name in _FORMATS else field
        for field in schema.fields
    )
    return replace(schema, fields=fields)


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
    if schema.name in _FORMATS and value is not None:
        milliseconds = value * _DAY_MS if schema.name == DATE_NAME else value
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
        return _FORMATS[schema.name](moment)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if schema.type is ConnectType.FLOAT64 or schema.type is ConnectType.FLOAT32:
        return repr(float(value))
    return json.dumps(value, ensure_ascii=False)
