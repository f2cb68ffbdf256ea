"""Notifications as records, in every format."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest

from producer.control.notification_encoder import NotificationEncoder
from schemas.errors import ConfigError
from schemas.notifications import Notification
from schemas.settings import FormatSettings

TOLD = Notification("s1", "Signal", "REJECTED", 1_700_000_000_123, {"connector_name": "srv", "reason": "nö"})


def test_avro_is_read_by_the_schemas_it_registered() -> None:
    subjects: dict[str, str] = {}

    def register(subject: str, schema: str) -> int:
        subjects[subject] = schema
        return 40 + len(subjects)

    wire = FormatSettings(type="avro", registry="http://registry")
    key, value = NotificationEncoder("srv", wire, register).encode(TOLD)
    assert list(subjects) == ["srv.notifications-key", "srv.notifications-value"]
    assert struct.unpack(">bI", key[:5]) == (0, 41)
    assert struct.unpack(">bI", value[:5]) == (0, 42)
    schemas = [fastavro.parse_schema(json.loads(schema)) for schema in subjects.values()]
    assert fastavro.schemaless_reader(io.BytesIO(key[5:]), schemas[0]) == {"id": "s1"}
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[1]) == TOLD.value()


def test_json_comes_with_and_without_schemas() -> None:
    key, value = NotificationEncoder("srv", FormatSettings(type="json")).encode(TOLD)
    assert (json.loads(key), json.loads(value)) == ({"id": "s1"}, TOLD.value())
    key, value = NotificationEncoder("srv", FormatSettings(type="json", schemas=True)).encode(TOLD)
    assert json.loads(value)["payload"] == TOLD.value()
    assert json.loads(key)["schema"]["name"] == "io.debezium.connector.common.NotificationKey"


def test_avro_without_a_registry_says_which_setting_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"format\.registry"):
        NotificationEncoder("srv", FormatSettings(type="avro")).encode(TOLD)
