"""Schema ids for table versions: registers Avro schemas under Confluent's TopicNameStrategy."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from typing import Final

import structlog

from kafkaio.schema_registry import HttpRegistry
from producer.kafka.schema_ids import SchemaIds
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import (
    ConfigError,
    RegistryError,
    RegistryLostError,
    RegistryUnavailableError,
    SecretError,
)
from schemas.settings import FormatSettings
from schemas.topics import GENERATION

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 15.0
_JOIN_S: Final = 5.0
KEY_SUFFIX: Final = "-key"
VALUE_SUFFIX: Final = "-value"
_NAMED: Final = 5


class SchemaIdRegistry:
    """A registry that speaks Confluent's API. Ids are cached for the process's life; thread-safe.

    `used` are the ids of records in Kafka: within a subject none of them ever stands for a second schema, also where a registry
    that lost its memory gives it again.
    """

    def __init__(self, url: str, access: RegistryAccess | None = None, used: SchemaIds | None = None) -> None:
        self._client = HttpRegistry(url, access or RegistryAccess())
        self._client.require_access()
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._used = used or SchemaIds()

    @classmethod
    def of(cls, wire: FormatSettings, used: SchemaIds | None = None) -> SchemaIdRegistry:
        """Return the registry of the settings, with the current password. Raises `ConfigError`."""
        if wire.registry is None:
            raise ConfigError("format.registry: Avro needs the URL of a schema registry")
        return cls(wire.registry, RegistryAccess.of(wire), used)

    def register(self, subject: str, schema: str) -> int:
        """Id of the schema under the subject, registered now if it is new; else `RegistryError` with a clear error.

        `RegistryUnavailableError` while the registry does not answer: retrying may help.
        """
        with self._lock:
            known = self._ids.get((subject, schema))
            if known is None:
                known = self._ids[subject, schema] = self._unique_id(subject, schema)
            return known

    def lost_subjects(self) -> list[str]:
        """Return the subjects with schemas registered here that the registry has no longer. One request, however many there are.

        `RegistryError` as `register`.
        """
        with self._lock:
            known = {subject for subject, _ in self._ids}
        if not known:
            return []
        return sorted(known.difference(self._client.subjects()))

    def register_again(self, subjects: Collection[str]) -> list[str]:
        """Register what was registered of these subjects again, the smallest id first.

        Return those whose schemas got other ids, or are refused now; `RegistryUnavailableError` where it is to be asked once more.
        """
        with self._lock:
            known = sorted((ident, name) for name, ident in self._ids.items() if name[0] in subjects)
        moved: set[str] = set()
        for ident, name in known:
            try:
                if self._unique_id(*name) != ident:
                    moved.add(name[0])
            except RegistryUnavailableError:
                raise
            except RegistryError as error:
                log.warning("registry.refused_again", subject=name[0], error=str(error))
                moved.add(name[0])
        return sorted(moved)

    def _unique_id(self, subject: str, schema: str) -> int:
        """Return the id of the schema; if records have that id for another schema, the id of an equivalent text."""
        text = schema
        for number in range(self._used.count(subject) + 1):
            ident = self._client.register(subject, text)
            if self._used.note(subject, ident, text):
                return ident
            log.warning("registry.id_given_again", subject=subject, schema_id=ident)
            text = _made_distinct(schema, number + 2)
        message = (
            f"the registry at {self._client.url} gives {subject} ids that its records have for other schemas: it lost its memory, "
            f"and the records could not be distinguished; use a registry that gives each text an id of its own"
        )
        raise RegistryError(message)


class RegistryWatch:
    """A thread that asks every so often whether the registry still has what was registered, and registers it again.

    One request each time, whatever the number of tables and records. Where a schema gets another id, `problem` says so: records
    must not be written with the old one any longer, which takes a new start. A registry that does not answer is asked again.
    """

    def __init__(self, registry: SchemaIdRegistry, every_s: float = LOOK_EVERY_S) -> None:
        self._registry, self._every_s = registry, every_s
        self._ended = threading.Event()
        self._unfinished: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="registry-watch", daemon=True)
        self.problem: RegistryLostError | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def look(self) -> None:
        """Look once, and register again what is lost. `RegistryError` where the registry cannot be asked."""
        lost = sorted(self._unfinished.union(self._registry.lost_subjects()))
        if not lost:
            return
        log.error("registry.subjects_lost", subjects=lost)
        self._unfinished.update(lost)
        moved = self._registry.register_again(lost)
        self._unfinished.clear()
        log.warning("registry.registered_again", subjects=lost, with_other_ids=moved)
        if moved:
            message = (
                f"the schema registry lost {', '.join(lost[:_NAMED])}{', ...' if len(lost) > _NAMED else ''}, and gives other ids "
                f"to the same schemas now: the log is read further from the last commit with these"
            )
            self.problem = RegistryLostError(message)

    def _run(self) -> None:
        while self.problem is None and not self._ended.wait(self._every_s):
            try:
                self.look()
            except (RegistryError, SecretError) as error:  # a password may be rotated at this moment
                log.warning("registry.not_looked_at", error=str(error))
            except Exception:
                log.exception("registry.not_looked_at")


def _made_distinct(schema: str, number: int) -> str:
    """Return the same Avro schema with a property that has no meaning: another text, which gets another id."""
    document = json.loads(schema)
    typed = document if isinstance(document, dict) else {"type": document}
    return json.dumps({**typed, GENERATION: number}, ensure_ascii=False, separators=(",", ":"))
