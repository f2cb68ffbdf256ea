"""Schema ids for table versions: registers Avro schemas under Confluent's TopicNameStrategy."""

from __future__ import annotations

import threading
from typing import Any, Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas.errors import ConfigError, RegistryAccessError, RegistryError, RegistryUnavailableError
from schemas.registry_access import RegistryAccess, not_the_api
from schemas.settings import FormatSettings
from schemas.waiting import waiting

KEY_SUFFIX: Final = "-key"
VALUE_SUFFIX: Final = "-value"
_REFUSED: Final = (401, 403)
_TIMES_OUT: Final = (408, 429)
_SERVER_FAILS: Final = 500
_NOT_FOUND: Final = 404
_OF_NO_REGISTRY: Final = -1  # the client's error code of an answer that is not the API's: a proxy's, for one
_SHOWN: Final = 200


class SchemaRegistry:
    """A registry that speaks Confluent's API. Ids are cached for the process's life; thread-safe."""

    def __init__(self, url: str, access: RegistryAccess | None = None) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, "timeout": 15, **_security(access or RegistryAccess())})
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, wire: FormatSettings) -> SchemaRegistry:
        """That of the settings, with the password as it is now. Raises `ConfigError`."""
        if wire.registry is None:
            raise ConfigError("format.registry: Avro needs the URL of a schema registry")
        return cls(wire.registry, RegistryAccess.of(wire))

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
            with waiting("registry", self._url, f"the id of a schema of {subject}"):
                return int(self._client.register_schema(subject, Schema(schema, "AVRO")))
        except SchemaRegistryError as error:
            if error.http_status_code in _REFUSED:
                message = (
                    f"the registry at {self._url} refuses the user (HTTP {error.http_status_code}); check "
                    f"format.registry_access"
                )
                raise RegistryAccessError(message) from error
            status, told = error.http_status_code, str(error.error_message)[:_SHOWN]
            if status >= _SERVER_FAILS or status in _TIMES_OUT:
                message = f"the registry at {self._url} cannot take the schema of {subject} now: HTTP {status}: {told}"
                raise RegistryUnavailableError(message) from error
            if status == _NOT_FOUND and error.error_code // 100 != _NOT_FOUND:
                message = not_the_api(self._url, f"HTTP {status}: {told}")
                if error.error_code == _OF_NO_REGISTRY:  # a proxy, perhaps, whose registry is down
                    raise RegistryUnavailableError(message) from error
                raise RegistryError(message) from error
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


def _security(access: RegistryAccess) -> dict[str, Any]:
    """The client's options for who asks and whom it trusts."""
    options = {
        "ssl.ca.location": access.ca,
        "ssl.certificate.location": access.cert,
        "ssl.key.location": access.key,
        "basic.auth.user.info": None if access.user is None else f"{access.user}:{access.secret()}",
    }
    return {name: value for name, value in options.items() if value is not None}
