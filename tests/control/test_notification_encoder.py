"""Notifications as records, in every format."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest

from schemas.errors import ConfigError
from schemas.notifications import Notification
from schemas.settings import FormatSettings
from tests.support.encoded_notifications import Registry, as_avro, as_json, encoder

NOTIFICATION = Notification("s1", "Signal", "REJECTED", 1_700_000_000_123, {"connector_name": "srv", "reason": "nö"})


def test_avro_is_read_by_the_schemas_it_registered() -> None:
    registry, wire = Registry(), FormatSettings(type="avro", registry="http://registry")
    key, value = encoder(wire, registry).encode(NOTIFICATION)
    subjects = registry.subjects
    assert list(subjects) == ["srv.notifications-key", "srv.notifications-value"]
    assert struct.unpack(">bI", key[:5]) == (0, 41)
    assert struct.unpack(">bI", value[:5]) == (0, 42)
    schemas = [fastavro.parse_schema(json.loads(schema)) for schema in subjects.values()]
    assert fastavro.schemaless_reader(io.BytesIO(key[5:]), schemas[0]) == {"id": "s1"}
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[1]) == NOTIFICATION.value()


def test_json_comes_with_and_without_schemas() -> None:
    key, value = as_json(NOTIFICATION)
    assert (json.loads(key), json.loads(value)) == ({"id": "s1"}, NOTIFICATION.value())
    key, value = as_json(NOTIFICATION, schemas=True)
    assert json.loads(value)["payload"] == NOTIFICATION.value()
    assert json.loads(key)["schema"]["name"] == "io.debezium.connector.common.NotificationKey"


def test_avro_without_a_registry_says_which_setting_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"format\.registry"):
        encoder(FormatSettings(type="avro")).encode(NOTIFICATION)


@pytest.mark.parametrize("text", ["", "nö", "unknown \N{PILE OF POO}", "x" * 200])
def test_bytes_are_those_of_the_wire_format(text: str) -> None:
    """As they were written before one encoder wrote all records: the lengths and the branch of the union by hand."""
    data = {"connector_name": text} if text else {}
    body = b"".join(avro_string(one) for one in (text, "T", "A")) + b"\x02"
    body += avro_long(len(data)) + b"".join(avro_string(one) for pair in data.items() for one in pair) + b"\0" * bool(data)
    key, value = as_avro(Notification(text, "A", "T", 1_700_000_000_123, data))
    assert key == b"\0\0\0\0\x29" + avro_string(text)
    assert value == b"\0\0\0\0\x2a" + body + avro_long(1_700_000_000_123)


def avro_string(text: str) -> bytes:
    return avro_long(len(text.encode())) + text.encode()


def avro_long(value: int) -> bytes:
    zigzag, written = value << 1, bytearray()
    while zigzag > 0x7F:
        written.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    return bytes((*written, zigzag))
