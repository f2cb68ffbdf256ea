"""The schema registry: reachability, the path of its API, its rule of compatibility, and whether it keeps what it is given."""

from __future__ import annotations

import json
import re
import shlex
import time
import urllib.error
import urllib.parse
from collections.abc import Iterator
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from schemas import topics
from schemas.applied.registry_access import MEDIA, RegistryAccess, code_of_registry, not_the_api
from schemas.findings import Finding, Remedy, Severity
from tidemark.doctor.area_findings import UncheckedError, listed

if TYPE_CHECKING:
    from schemas.settings import Settings

_ANSWER_S: Final = 10.0
_API_PATHS: Final = ("/apis/ccompat/v7", "", "/api/ccompat/v7", "/schema-registry")
"""Where registries have Confluent's API: Apicurio, Confluent, and common proxies."""
_APICURIO_INFO: Final = "/apis/registry/v2/system/info"
_NOT_RESTRICTING: Final = frozenset({"NONE", "FORWARD"})
_SUBJECTS_S: Final = 6.0
"""How long subjects are asked for, two requests for each."""
_OUR_RECORDS: Final = frozenset({"Envelope", "Key", "Value"})
"""The names of our records: of changes, of keys, and of rows that are unwrapped."""
_REFUSED: Final = frozenset({401, 403})
_OK: Final = 200
_NOT_FOUND: Final = 404
_TIMES_OUT: Final = frozenset({408, 429})
_SERVER_FAILS: Final = 500
_SHOWN: Final = 200
"""How many characters of an answer are shown."""


def registry_findings(settings: Settings, *, subjects: bool = True) -> Iterator[Finding]:
    """Yield what is wrong with the registry. `UncheckedError` where there is none, or it does not answer.

    `subjects`: also with the subjects of our topics, which takes two requests for each.
    """
    if settings.format.type != "avro" or settings.format.registry is None:
        raise UncheckedError(f"format.type is {settings.format.type}: no registry is used")
    yield from _RegistryExamination(settings, settings.format.registry.rstrip("/")).findings(subjects=subjects)


class _RegistryExamination:
    """The questions to a registry."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._settings, self._url, self._access = settings, url, RegistryAccess.of(settings.format)
        parts = urlsplit(url)
        self._root = f"{parts.scheme}://{parts.netloc}"

    def findings(self, *, subjects: bool) -> Iterator[Finding]:
        """Yield all findings."""
        answer = self._subjects()
        config = self._json(f"{self._url}/config")
        rule = config.get("compatibilityLevel") if isinstance(config, dict) else None
        if rule is not None and rule not in _NOT_RESTRICTING:
            yield Finding(
                "registry.compatibility",
                Severity.WARNING,
                f"the registry's rule of compatibility is {rule}",
                "it refuses the schemas of some ALTERs (a column without default, another type), and the table stops",
                self._without_rule("config"),
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
        if subjects:
            yield from listed("registry.subjects", "findings on subjects", self._subject_findings(answer))

    def _without_rule(self, path: str) -> str:
        body = shlex.quote(json.dumps({"compatibility": "NONE"}))
        return f"curl -X PUT -H {shlex.quote(f'Content-Type: {MEDIA}')} --data {body} {self._url}/{path}"

    def _subject_findings(self, subjects: list[Any]) -> Iterator[Finding]:
        """Yield subjects of our topics that have another writer's schema, or a rule of their own that refuses ours."""
        name, delimiter = self._settings.name, self._settings.kafka.topic_delimiter
        patterns = [topics.change_topic_pattern(name, delimiter), topics.snapshot_topic_pattern(name, delimiter)]
        ours = re.compile(f"(?:{'|'.join(patterns)})-(?:key|value)")
        until_s = time.monotonic() + _SUBJECTS_S
        for subject in sorted(str(one) for one in subjects if ours.fullmatch(str(one))):
            if time.monotonic() > until_s:
                raise UncheckedError(f"the subjects from {subject} on: the others took {_SUBJECTS_S:g} s")
            quoted = urllib.parse.quote(subject, safe="")
            config = self._json(f"{self._url}/config/{quoted}")
            rule = config.get("compatibilityLevel") if isinstance(config, dict) else None
            if rule is not None and rule not in _NOT_RESTRICTING:
                evidence = f"the subject {subject} has a rule of compatibility of its own, {rule}"
                what, fix = "it refuses the schemas of some ALTERs, and the table stops", self._without_rule(f"config/{quoted}")
                yield Finding("registry.subject_compatibility", Severity.WARNING, evidence, what, fix, Remedy.SHELL)
            newest = self._json(f"{self._url}/subjects/{quoted}/versions/latest")
            if isinstance(newest, dict) and (stranger := self._stranger(newest)):
                evidence = f"the newest schema of the subject {subject}, version {newest.get('version')}, is {stranger}"
                what = "another program writes to the topic, or registers there: readers take its schema for one of the table"
                fix = f"curl -X DELETE {self._url}/subjects/{quoted}/versions/{newest.get('version')}"
                advice = "after that program was stopped"
                yield Finding("registry.foreign_schema", Severity.ERROR, evidence, what, fix, Remedy.SHELL, advice)

    def _stranger(self, newest: dict[str, Any]) -> str:
        """Return what a schema is that the producer has not written; "" for one of ours."""
        kind = str(newest.get("schemaType") or "AVRO")
        if kind != "AVRO":
            return f"of type {kind}"
        try:
            schema = json.loads(str(newest.get("schema")))
        except ValueError:
            return "no Avro schema"
        if not isinstance(schema, dict) or schema.get("type") != "record":
            return "no record"
        name = str(schema.get("name"))
        return "" if name.rpartition(".")[2] in _OUR_RECORDS else f"a record called {name}"

    def _subjects(self) -> list[Any]:
        """Return all subjects. `UncheckedError` with its finding where there is no list of them."""
        try:
            status, body = self._answer(f"{self._url}/subjects")
        except (OSError, HTTPException) as error:
            why = f"the registry at {self._url} cannot be reached: {getattr(error, 'reason', error)}"
            raise UncheckedError("the registry cannot be reached", [_unreachable(why)]) from error
        if status in _REFUSED:
            evidence, advice = f"the registry at {self._url} answers HTTP {status}", "Check format.registry_access"
            found = Finding("registry.access", Severity.ERROR, evidence, "it refuses the user", advice=advice)
            raise UncheckedError("the registry refuses us", [found])
        subjects = _parsed(body) if status == _OK else None
        if isinstance(subjects, list):
            return subjects
        raise UncheckedError("what answers is no registry", [self._without_list(status, body)])

    def _without_list(self, status: int, body: bytes) -> Finding:
        """Return the finding of an answer without subjects. Only a wrong path is one that no retry outlasts: `registry.path`."""
        code, what = "registry.path", "no schema can be registered"
        said = f"HTTP {status}: {' '.join(body.decode(errors='replace').split())[:_SHOWN]}"
        if status >= _SERVER_FAILS or status in _TIMES_OUT:
            return _unreachable(f"the registry at {self._url}, or a proxy before it, cannot answer now: {said}")
        for path in _API_PATHS:
            if isinstance(self._json(f"{self._root}{path}/subjects"), list):
                fix = f"export TIDEMARK_FORMAT__REGISTRY={self._root}{path}"
                evidence = f"Confluent's API is not at {self._url}, but at {self._root}{path}"
                return Finding(code, Severity.ERROR, evidence, what, fix, Remedy.SETTING)
        evidence = not_the_api(self._url, said)
        number = code_of_registry(body)
        if status == _NOT_FOUND and number is not None and number // 100 != _NOT_FOUND:  # another API's own
            return Finding(code, Severity.ERROR, evidence, what)
        return _unreachable(evidence)

    def _answer(self, url: str) -> tuple[int, bytes]:
        """Return status and body of the answer to a question."""
        try:
            with self._access.open(url, _ANSWER_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _json(self, url: str) -> Any:
        """Return the answer to a question that a registry need not have; None where it has none."""
        try:
            with self._access.open(url, _ANSWER_S) as answer:
                return _parsed(answer.read())
        except (OSError, HTTPException):
            return None


def _parsed(body: bytes) -> Any:
    """Return what a JSON document has; None for anything else."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def _unreachable(evidence: str) -> Finding:
    return Finding("registry.unreachable", Severity.ERROR, evidence, "no schema can be registered", advice="Check format.registry")
