"""The schema registry: reachability, the path of its API, its rule of compatibility, and whether it keeps what it is given."""

from __future__ import annotations

import json
import shlex
import urllib.error
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from schemas.applied.registry_access import RegistryAccess, not_the_api
from schemas.findings import Finding, Remedy, Severity
from tidemark.doctor.unchecked import UncheckedError

if TYPE_CHECKING:
    from schemas.settings import Settings

_ANSWER_S: Final = 10.0
_API_PATHS: Final = ("/apis/ccompat/v7", "", "/api/ccompat/v7", "/schema-registry")
"""Where registries have Confluent's API: Apicurio, Confluent, and common proxies."""
_APICURIO_INFO: Final = "/apis/registry/v2/system/info"
_NOT_RESTRICTING: Final = frozenset({"NONE", "FORWARD"})
_REFUSED: Final = frozenset({401, 403})
_MEDIA: Final = "Content-Type: application/vnd.schemaregistry.v1+json"


def registry_findings(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the registry. `UncheckedError` where there is none, or it does not answer."""
    if settings.format.type != "avro" or settings.format.registry is None:
        raise UncheckedError(f"format.type is {settings.format.type}: no registry is used")
    yield from _RegistryExamination(settings.format.registry.rstrip("/"), RegistryAccess.of(settings.format)).findings()


class _RegistryExamination:
    """The questions to a registry."""

    def __init__(self, url: str, access: RegistryAccess) -> None:
        self._url, self._access = url, access
        parts = urlsplit(url)
        self._root = f"{parts.scheme}://{parts.netloc}"

    def findings(self) -> Iterator[Finding]:
        """Yield all findings."""
        answer = self._reached()
        if not isinstance(answer, list):
            found = self._wrong_path()
            raise UncheckedError("what answers is no registry", [found])
        config = self._json(f"{self._url}/config")
        rule = config.get("compatibilityLevel") if isinstance(config, dict) else None
        if rule is not None and rule not in _NOT_RESTRICTING:
            body = shlex.quote(json.dumps({"compatibility": "NONE"}))
            yield Finding(
                "registry.compatibility",
                Severity.WARNING,
                f"the registry's rule of compatibility is {rule}",
                "it refuses the schemas of some ALTERs (a column without default, another type), and the table stops",
                f"curl -X PUT -H {shlex.quote(_MEDIA)} --data {body} {self._url}/config",
                Remedy.SHELL,
            )
        info = self._json(f"{self._root}{_APICURIO_INFO}")
        if isinstance(info, dict) and "in memory" in str(info.get("name", "")).lower():
            yield Finding(
                "registry.in_memory",
                Severity.WARNING,
                f"the registry is {info['name']}",
                "a restart loses all schemas; the producer registers its own again, those of other writers are gone",
                advice="Run it with a storage that lasts (Apicurio: SQL or KafkaSQL)",
            )

    def _reached(self) -> Any:
        """Return the answer to a question for the subjects; None where what answers does not know it."""
        try:
            with self._access.open(f"{self._url}/subjects", _ANSWER_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in _REFUSED:
                evidence, advice = f"the registry at {self._url} answers HTTP {error.code}", "Check format.registry_access"
                found = Finding("registry.access", Severity.ERROR, evidence, "it refuses the user", advice=advice)
                raise UncheckedError("the registry refuses us", [found]) from error
            return None
        except ValueError:
            return None
        except OSError as error:
            evidence = f"the registry at {self._url} cannot be reached: {getattr(error, 'reason', error)}"
            advice = "Check format.registry"
            found = Finding("registry.unreachable", Severity.ERROR, evidence, "no schema can be registered", advice=advice)
            raise UncheckedError("the registry cannot be reached", [found]) from error

    def _wrong_path(self) -> Finding:
        """Return the finding of an address that has not the API; with the address that has it, where one is found."""
        for path in _API_PATHS:
            if isinstance(self._json(f"{self._root}{path}/subjects"), list):
                fix = f"export TIDEMARK_FORMAT__REGISTRY={self._root}{path}"
                evidence = f"Confluent's API is not at {self._url}, but at {self._root}{path}"
                return Finding("registry.path", Severity.ERROR, evidence, "no schema can be registered", fix, Remedy.SETTING)
        evidence = not_the_api(self._url, "no list of subjects")
        return Finding("registry.path", Severity.ERROR, evidence, "no schema can be registered")

    def _json(self, url: str) -> Any:
        """Return the answer to a question that a registry need not have; None where it has none."""
        try:
            with self._access.open(url, _ANSWER_S) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError):
            return None
