"""Records of either side as schema and payload: Connect's JSON, plain JSON and Confluent's Avro alike."""

from __future__ import annotations

import contextlib
import json
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from schemas.applied.avro_decoding import AvroDecoder
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import RegistryError

PAYLOAD: Final = b',"payload":'
TIMEOUT_S: Final = 15.0


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
        self._avro = AvroDecoder(self._fetched)

    def decode(self, data: bytes | None) -> Any:
        """Decode schema and payload; None for null, and for a null in Connect's JSON.

        Raises `DecodeError` for Avro that does not fit its schema, and `RegistryError` where its schema is not to be
        had. What is no JSON is a payload of text.
        """
        if data is None:
            return None
        if data[:1] == b"\0":
            value = self._avro.decode(data)
            return {"schema": self._avro.schema(value.schema_id), "payload": value.payload}
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

    def _fetched(self, ident: int) -> str:
        """Return the text of the schema with an id, as the registry has it."""
        if self._registry is None:
            raise RegistryError("records are Avro: name their schema registry (format.registry, or --registry)")
        url = f"{self._registry.rstrip('/')}/schemas/ids/{ident}"
        try:
            with self._access.open(url, TIMEOUT_S) as answer:
                return str(json.load(answer)["schema"])
        except (OSError, ValueError, KeyError) as error:
            reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else str(error)
            raise RegistryError(f"the registry does not report the schema with id {ident} ({url}): {reason}") from error
