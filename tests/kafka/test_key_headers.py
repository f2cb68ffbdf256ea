"""The text of keys in headers, where a time is in the key."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from producer.kafka.key_headers import key_text
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import TimeMode, ValueModes
from schemas.types.connect import key_schema

KINDS = (("d", ColumnType.DATE), ("t", ColumnType.TIME), ("m", ColumnType.DATETIME))
TABLE = TableSchema("db", "t", tuple(Column(name, kind, nullable=False) for name, kind in KINDS), ("d", "t", "m"))
KEYS: dict[TimeMode, tuple[dict[str, Any], str]] = {
    "connect": (
        {"d": -141438, "t": 45296789, "m": 1577934245678},
        '{"d":1582-10-04,"t":12:34:56.789Z,"m":2020-01-02T03:04:05.678Z}',
    ),
    "isostring": (
        {"d": "1582-10-04Z", "t": "12:34:56Z", "m": "2020-01-02T03:04:05Z"},
        '{"d":"1582-10-04Z","t":"12:34:56Z","m":"2020-01-02T03:04:05Z"}',
    ),
    "nanoseconds": (
        {"d": -141438, "t": 45296000000000, "m": 1577934245000000000},
        '{"d":-141438,"t":45296000000000,"m":1577934245000000000}',
    ),
}


@pytest.mark.parametrize("wire", ["avro", "json", "json_schema"])
@pytest.mark.parametrize("mode", KEYS)
def test_times_in_keys_are_reported_in_every_mode_and_format(mode: TimeMode, wire: str) -> None:
    payload, expected = KEYS[mode]
    schema = key_schema(TABLE, "p", ValueModes(time=mode))
    assert schema is not None
    if wire == "avro":
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(to_avro(schema))), payload)
        key = bytes(5) + stream.getvalue()
    else:
        key = json.dumps({"schema": {}, "payload": payload} if wire == "json_schema" else payload).encode()
    assert key_text(schema, wire)(key).decode() == expected
