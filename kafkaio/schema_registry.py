"""The schema registry over HTTP: schemas are registered, and the versions of a subject are read.

The versions of a subject are kept while the registry still has them. One request is enough while the newest version is the
one that is known. A registry that lost its memory numbers versions and ids from 1 again: all of them are fetched then.
"""

from __future__ import annotations

import contextlib
import json
import math
import ssl
import time
import urllib.error
import urllib.parse
from dataclasses import dataclass, field
from http.client import HTTPException, IncompleteRead
from threading import Lock
from typing import Any, Final, Protocol

from schemas.applied.registry_access import RegistryAccess, code_of_registry, not_the_api
from schemas.errors import (
    ConfigError,
    NoRegistryError,
    RegistryAccessError,
    RegistryError,
    RegistryUnavailableError,
)
from schemas.json_codec import json_field
from schemas.waiting import WAITS, waiting

_TIMEOUT_S: Final = 15.0
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.2
_CERTIFICATES_S: Final = 60.0
"""After so long certificates are loaded again: a proxy may answer to one that has expired, and not end the connection."""
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
    _context: ssl.SSLContext | None = None
    _loaded_s: float = -math.inf

    def require_access(self) -> None:
        """Raise `ConfigError` if the password or a certificate cannot be read."""
        self.access.headers()
        self._load_certificates()

    def _load_certificates(self) -> None:
        self._context, self._loaded_s = self.access.tls(self.url), time.monotonic()

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema under a subject, which has it from now on; errors as `versions`."""
        what, document = f"the schema of {subject}", {"schema": schema, "schemaType": "AVRO"}
        answer = self._asked(what, f"{_of_subject(subject)}/versions", document)
        if not isinstance(answer, dict) or "id" not in answer:
            raise NoRegistryError(not_the_api(self.url, f"no id for {what}"))
        return int(answer["id"])

    def subjects(self) -> list[str]:
        """Return the subjects that have schemas; errors as `versions`."""
        return list(self._asked("the list of its subjects", "subjects"))

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return all versions of the subject, by one request if the newest is the one that is known."""
        path = f"{_of_subject(subject)}/versions"
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

    def text_of(self, ident: int) -> str:
        """Return the text of the schema with an id; `RegistryError` for an unknown id, and the errors of `versions`."""
        document = self._get(f"schemas/ids/{ident}")
        if document is None:
            message = f"the registry at {self.url} has no schema with id {ident}: was it replaced by another?"
            raise RegistryError(message)
        return str(document["schema"])

    def _version(self, path: str) -> RegisteredSchema | None:
        document = self._get(path)
        if document is None:
            return None
        return RegisteredSchema(int(document["id"]), document["schema"], int(document["version"]))

    def _get(self, path: str) -> Any:
        """Return the JSON of a resource; None if the registry does not have it."""
        url = f"{self.url.rstrip('/')}/{path}"
        try:
            with waiting("registry", self.url, f"the answer to GET {path}"):
                return self._answer(path)
        except _RefusedError as error:
            if error.is_missing:
                return None
            if error.kind is RegistryAccessError:
                message = f"schema registry: GET {url} is refused (HTTP {error.status}); check format.registry_access"
            elif error.kind is RegistryUnavailableError:
                message = f"schema registry: GET {url} failed {_ATTEMPTS} times, last with: {error.problem(self.url)}"
            else:
                message = f"schema registry: GET {url} failed: {error.problem(self.url)}"
            raise error.kind(message) from None

    def _asked(self, what: str, path: str, document: object = None) -> Any:
        """Return the JSON of an answer to one who registers schemas."""
        try:
            with waiting("registry", self.url, what):
                return self._answer(path, document)
        except _RefusedError as error:
            status, kind = error.status, error.kind
            if kind is RegistryAccessError:
                message = f"the registry at {self.url} refuses the user (HTTP {status}); check format.registry_access"
            elif not status:
                message = f"the registry at {self.url} cannot be reached: {error}; check format.registry"
            elif error.is_of_no_registry:
                message = error.problem(self.url)
            elif kind is RegistryUnavailableError:
                message = f"the registry at {self.url} cannot serve {what} now: {error.problem(self.url)}"
            else:
                message = (
                    f"the registry at {self.url} refuses {what}: {error}; if its compatibility rule forbids the change, set the "
                    f"subject to NONE or FORWARD"
                )
            raise kind(message) from None

    def _answer(self, path: str, document: object = None) -> Any:
        """Return the JSON of an answer. Short outages are waited out. `_RefusedError` without a result."""
        refused = _RefusedError(0, b"")
        for attempt in range(_ATTEMPTS):
            if attempt and WAITS.is_ending:
                break
            if attempt:
                time.sleep(_PAUSE_S * 2 ** (attempt - 1))
            try:
                if time.monotonic() - self._loaded_s > _CERTIFICATES_S:
                    self._load_certificates()
                with self.access.open(f"{self.url.rstrip('/')}/{path}", _TIMEOUT_S, document, self._context) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                refused = _RefusedError(error.code, _body_of(error))
            except (OSError, ValueError, HTTPException) as error:
                refused = _RefusedError(0, str(error).encode())
                with contextlib.suppress(ConfigError):  # certificates may have been replaced, or are at this moment
                    self._load_certificates()
            if refused.kind is not RegistryUnavailableError:
                break
        raise refused


class _RefusedError(Exception):
    """No result: the status of the last answer, 0 without one, and its body or the reason."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._code = code_of_registry(body)
        text = body.decode(errors="replace")
        super().__init__(str(json.loads(text).get("message", text)) if self._code is not None else text)

    @property
    def is_missing(self) -> bool:
        """Whether the registry says itself that it does not have the resource."""
        return self.status == _NOT_FOUND and self._code is not None and self._code // 100 == _NOT_FOUND

    @property
    def is_of_no_registry(self) -> bool:
        """Whether the answer is one of a proxy, or of another API: a path that is not found."""
        return self.status == _NOT_FOUND and not self.is_missing

    @property
    def kind(self) -> type[RegistryError]:
        """The class of the error: whether a retry may help."""
        status = self.status
        if status in _REFUSED:
            return RegistryAccessError
        if not status or status >= _SERVER_FAILS or status in _TIMES_OUT or (self.is_of_no_registry and self._code is None):
            return RegistryUnavailableError
        return NoRegistryError if self.is_of_no_registry else RegistryError

    def problem(self, url: str) -> str:
        """Return the problem, for a message."""
        answer = f"HTTP {self.status}: {str(self)[:_SHOWN]}" if self.status else str(self)
        return not_the_api(url, answer) if self.is_of_no_registry else answer


def _body_of(error: urllib.error.HTTPError) -> bytes:
    """Return what came of the body: the answer's status is known, even if the connection ends here."""
    try:
        with error:
            return error.read()
    except IncompleteRead as incomplete:
        return incomplete.partial
    except (OSError, HTTPException):
        return b""


def _of_subject(subject: str) -> str:
    return f"subjects/{urllib.parse.quote(subject, safe='')}"
