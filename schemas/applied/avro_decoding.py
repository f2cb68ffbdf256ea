"""Avro values in Confluent's wire format as Python values. Schemas are fetched by id, once each."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import fastavro

from schemas.errors import DecodeError

FRAME: Final = struct.Struct(">bI")
_TIMES: Final = frozenset({"date", "time", "timestamp"})


@dataclass(frozen=True, slots=True)
class AvroValue:
    """A decoded value: the id of its schema, and the payload."""

    schema_id: int
    payload: Any


class AvroDecoder:
    """A decoder of framed Avro. Equal ids have one schema object, which stays in memory."""

    def __init__(self, fetch: Callable[[int], str]) -> None:
        """`fetch` returns the text of the schema with an id; it raises `RegistryError` for an unknown id."""
        self._fetch = fetch
        self._schemas = cache(self._loaded)

    def decode(self, data: bytes) -> AvroValue:
        """Return the value. Raises `DecodeError` if the bytes do not fit their schema, and the errors of `fetch`."""
        if len(data) < FRAME.size:
            raise DecodeError(f"{len(data)} bytes that begin as Avro's wire format and end before the schema's id")
        _, ident = FRAME.unpack_from(data)
        _, reader = self._schemas(ident)
        try:
            payload = fastavro.schemaless_reader(io.BytesIO(data[FRAME.size :]), reader, None)
        except (EOFError, ValueError, IndexError, UnicodeDecodeError) as error:
            raise DecodeError(f"the bytes do not fit the schema with id {ident}: {error!r}") from error
        return AvroValue(ident, payload)

    def schema(self, ident: int) -> Any:
        """Return the schema with an id, as the registry has it."""
        return self._schemas(ident)[0]

    def _loaded(self, ident: int) -> tuple[Any, Any]:
        schema = json.loads(self._fetch(ident))
        return schema, parsed(schema)


def parsed(schema: Any) -> Any:
    """Return an Avro schema to read by: times stay numbers, since Python's know no year 0 and no 25:00:00."""
    return fastavro.parse_schema(_without_times(schema))


def _without_times(node: Any) -> Any:
    if isinstance(node, dict):
        is_time = str(node.get("logicalType", "")).partition("-")[0] in _TIMES
        return {name: _without_times(value) for name, value in node.items() if not (is_time and name == "logicalType")}
    return [_without_times(item) for item in node] if isinstance(node, list) else node
