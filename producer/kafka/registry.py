"""Schema ids for table versions: registers Avro schemas under Confluent's TopicNameStrategy."""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas.errors import RegistryError, RegistryUnavailableError

KEY_SUFFIX: Final = "-key"
VALUE_SUFFIX: Final = "-value"


class SchemaRegistry:
    """A registry that speaks Confluent's API. Ids are cached for the process's life; thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, "timeout": 15})
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def register(self, subject: str, schema: str) -> int:
        """Id of the schema under the subject, registered now if it is new; else `RegistryError` in words.

        `RegistryUnavailableError` while the registry does not answer: trying again may help.
        """
        with self._lock:
            known = self._ids.get((subject, schema))
            if known is None:
                known = self._ids[subject, schema] = self._register(subject, schema)
            return known

    def close(self) -> None:
        """Give the connection up. (The client's own `close` is newer than the oldest client we take.)"""
        self._client.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _register(self, subject: str, schema: str) -> int:
        try:
            return int(self._client.register_schema(subject, Schema(schema, "AVRO")))
        except SchemaRegistryError as error:
            message = (
                f"the registry at {self._url} refuses the schema of {subject}: {error.error_message}; if its "
                f"compatibility rule forbids the change, set the subject to NONE or FORWARD"
            )
            raise RegistryError(message) from error
        except (
            Exception
        ) as error:  # the HTTP library's own classes, which differ between versions of the client
            message = f"the registry at {self._url} cannot be reached: {error}; check format.registry"
            raise RegistryUnavailableError(message) from error
