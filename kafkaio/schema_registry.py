"""The schema registry, read over HTTP: which schemas a topic's keys and values were written with.

Only the driver asks; what is known is kept while the registry still has it. One request is enough while the newest version is the
one that is known. A registry that lost its memory numbers versions and ids from 1 again: all of them are fetched then.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol

from schemas.applied.registry_access import RegistryAccess, code_of_registry, not_the_api
from schemas.errors import NoRegistryError, RegistryAccessError, RegistryError, RegistryUnavailableError
from schemas.json_codec import json_field
from schemas.waiting import waiting

_TIMEOUT_S: Final = 10
_ATTEMPTS: Final = 5
_NOT_FOUND: Final = 404
_REFUSED: Final = (401, 403)
_TIMES_OUT: Final = (408, 429)
_SERVER_FAILS: Final = 500
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a subject: the id its records carry, the Avro text, and the version if it was read from a registry."""

    id: int
    text: str = json_field(name="schema")
    version: int = json_field(0, absent=True)

    @property
    def document(self) -> dict[str, Any]:
        """The Avro record; `RegistryError` when the text is no record schema."""
        document = json.loads(self.text)
        if not isinstance(document, dict) or document.get("type") != "record":
            message = f"schema id {self.id} is no Avro record"
            raise RegistryError(message)
        return document


class SchemaRegistry(Protocol):
    """Where schemas come from."""

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return all versions of a subject as they are now, oldest first; none for an unknown subject.

        Raises `RegistryUnavailableError` when the registry does not answer, `RegistryError` when no retry changes its answer.
        """


@dataclass(slots=True)
class HttpRegistry:
    """A registry with Confluent's API. Safe for several threads."""

    url: str
    access: RegistryAccess = field(default_factory=RegistryAccess)
    _known: dict[str, tuple[RegisteredSchema, ...]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return all versions of the subject, by one request if the newest is the one that is known."""
        path = f"subjects/{urllib.parse.quote(subject, safe='')}/versions"
        newest = self._version(f"{path}/latest")
        with self._lock:
            known = self._known.get(subject, ())
        if newest is None:
            found: tuple[RegisteredSchema, ...] = ()
        elif known and known[-1] == newest:
            return known
        else:
            numbers = self._get(path) or ()
            fetched = [self._version(f"{path}/{number}") for number in sorted(numbers)]
            found = tuple(schema for schema in fetched if schema is not None)
        with self._lock:
            self._known[subject] = found
        return found

    def _version(self, path: str) -> RegisteredSchema | None:
        document = self._get(path)
        if document is None:
            return None
        return RegisteredSchema(int(document["id"]), document["schema"], int(document["version"]))

    def _get(self, path: str) -> Any:
        """Return the JSON of a resource; None if the registry does not have it. Short outages are waited out."""
        with waiting("registry", self.url, f"the answer to GET {path}"):
            return self._answer(f"{self.url.rstrip('/')}/{path}")

    def _answer(self, url: str) -> Any:
        kind: type[RegistryError] = RegistryUnavailableError
        for attempt in range(_ATTEMPTS):
            kind = RegistryUnavailableError
            try:
                with self.access.open(url, _TIMEOUT_S) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                with error:
                    answer = error.read()
                problem: Exception | str = error
                if error.code in _REFUSED:
                    message = f"schema registry: GET {url} is refused (HTTP {error.code}); check format.registry_access"
                    raise RegistryAccessError(message) from None
                if error.code == _NOT_FOUND:
                    code = code_of_registry(answer)
                    if code is not None and code // 100 == _NOT_FOUND:
                        return None
                    problem = not_the_api(self.url, f"HTTP 404: {answer.decode(errors='replace')[:_SHOWN]}")
                    kind = RegistryUnavailableError if code is None else NoRegistryError  # of a proxy, or another API's own
                elif error.code < _SERVER_FAILS and error.code not in _TIMES_OUT:
                    kind = RegistryError
            except (OSError, ValueError) as error:
                problem = error
            time.sleep(0.2 * 2**attempt)
        message = f"schema registry: GET {url} failed {_ATTEMPTS} times, last with: {problem}"
        raise kind(message)
