"""Records of either side as schema and payload: Connect's JSON, plain JSON and Confluent's Avro alike."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import fastavro

from schemas.applied.registry_access import RegistryAccess
from schemas.errors import DecodeError, RegistryError

PAYLOAD: Final = b',"payload":'
FRAME: Final = struct.Struct(">bI")
TIMEOUT_S: Final = 15.0
_TIMES: Final = frozenset({"date", "time", "timestamp"})


@dataclass(frozen=True, slots=True)
class Wire:
    """The bytes of a record as the broker has them; headers are pairs, since a name may be there twice."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One record; key and value are `{"schema": …, "payload": …}`, None where they are null.

    `schema` is Connect's JSON schema block or the registry's Avro schema, None where the record has none. `wire` are the
    bytes that key and value were decoded from, None where they are unknown.
    """

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: Mapping[str, str]
    wire: Wire | None = None


class Decoder:
    """Takes the bytes of keys and values apart. Equal schemas are one and the same object, and stay in memory.

    `registry` is the URL of a registry that speaks Confluent's API; Avro needs it.
    """

    def __init__(self, registry: str | None = None, access: RegistryAccess | None = None) -> None:
        self._registry = registry
        self._access = access or RegistryAccess()
        self._block = cache(json.loads)
        self._avro = cache(self._fetched)

    def decode(self, data: bytes | None) -> Any:
        """Decode schema and payload; None for null, and for a null in Connect's JSON.

        Raises `DecodeError` for Avro that does not fit its schema, and `RegistryError` where its schema is not to be
        had. What is no JSON is a payload of text.
        """
        if data is None:
            return None
        if data[:1] == b"\0":
            return self._from_avro(data)
        head, separator, tail = data.partition(PAYLOAD)
        if separator and head.startswith(b'{"schema":'):
            with contextlib.suppress(ValueError):  # a flat row may have columns of these names
                schema, payload = self._block(head.removeprefix(b'{"schema":')), json.loads(tail[:-1])
                return None if schema is None else {"schema": schema, "payload": payload}
        try:
            payload = json.loads(data)
        except ValueError:
            payload = data.decode("utf-8", "backslashreplace")
        return {"schema": None, "payload": payload}

    def _from_avro(self, data: bytes) -> Any:
        if len(data) < FRAME.size:
            raise DecodeError(f"{len(data)} bytes that begin as Avro's wire format and end before the schema's id")
        _, ident = FRAME.unpack_from(data)
        schema, parsed = self._avro(ident)
        try:
            payload = fastavro.schemaless_reader(io.BytesIO(data[FRAME.size :]), parsed, None)
        except (EOFError, ValueError, IndexError, UnicodeDecodeError) as error:
            raise DecodeError(f"the bytes do not fit the schema with id {ident}: {error!r}") from error
        return {"schema": schema, "payload": payload}

    def _fetched(self, ident: int) -> tuple[Any, Any]:
        """Return the schema of an id as the registry holds it, and parsed."""
        if self._registry is None:
            raise RegistryError("records are Avro: name their schema registry (format.registry, or --registry)")
        url = f"{self._registry.rstrip('/')}/schemas/ids/{ident}"
        try:
            with self._access.open(url, TIMEOUT_S) as answer:
                schema = json.loads(json.load(answer)["schema"])
        except (OSError, ValueError, KeyError) as error:
            reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else str(error)
            raise RegistryError(f"the registry does not report the schema with id {ident} ({url}): {reason}") from error
        return schema, parsed(schema)


def parsed(schema: Any) -> Any:
    """Return an Avro schema to read by: times stay numbers, since Python's know no year 0 and no 25:00:00."""
    return fastavro.parse_schema(_without_times(schema))


def _without_times(node: Any) -> Any:
    if isinstance(node, dict):
        is_time = str(node.get("logicalType", "")).partition("-")[0] in _TIMES
        return {name: _without_times(value) for name, value in node.items() if not (is_time and name == "logicalType")}
    return [_without_times(item) for item in node] if isinstance(node, list) else node
