"""Records that are not rows (transactions, heartbeats ...): payloads in, bytes in the format of all other records out.

A few per transaction at most: this is Python, off the hot path.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import fastavro

from schemas import avro, jsonschema, topics
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from producer.kafka.registry import SchemaIdRegistry
    from schemas.connect_types import ConnectSchema
    from schemas.settings import FormatSettings

_FRAME: Final = struct.Struct(">bI")


class RecordEncoder:
    """Encodes keys and values of one topic: Avro in Confluent wire format, or JSON with or without schemas.

    The schemas are registered when the first record is encoded (`RegistryError` when they can't be).
    """

    def __init__(
        self,
        topic: str,
        key: ConnectSchema,
        value: ConnectSchema,
        wire: FormatSettings,
        registry: SchemaIdRegistry | None,
    ) -> None:
        self.topic = topic
        self._wire = wire
        self._registry = registry
        self._parts = ((topics.key_subject(topic), key), (topics.value_subject(topic), value))
        self._ready: list[tuple[bytes, Any]] = []

    def encode(self, key: Mapping[str, Any], value: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Key and value of a record, from payloads that fit the schemas."""
        if not self._ready:
            self._ready = [self._prepared(subject, schema) for subject, schema in self._parts]
        write = self._avro if self._wire.type == "avro" else self._json
        return write(*self._ready[0], key), write(*self._ready[1], value)

    def _prepared(self, subject: str, schema: ConnectSchema) -> tuple[bytes, Any]:
        """Return what is before a payload, and the parsed Avro schema."""
        if self._wire.type != "avro":
            block = jsonschema.to_json_schema(schema) if self._wire.schemas else None
            return (b"" if block is None else b'{"schema":%b,"payload":' % _compact(block)), None
        if self._registry is None:
            message = "format.registry: Avro needs the URL of a schema registry"
            raise ConfigError(message)
        text = avro.to_avro(schema)
        frame = _FRAME.pack(0, self._registry.register(subject, text))
        return frame, fastavro.parse_schema(json.loads(text))

    @staticmethod
    def _avro(frame: bytes, schema: Any, payload: Mapping[str, Any]) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, payload)
        return frame + body.getvalue()

    @staticmethod
    def _json(head: bytes, _schema: Any, payload: Mapping[str, Any]) -> bytes:
        return head + _compact(payload) + (b"}" if head else b"")


def _compact(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
