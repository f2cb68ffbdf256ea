"""The schemas of a table's records: what the registry, the producer and this sink know of them enters, `WriterSchema`s leave.

The schemas that this sink has used are kept beside its tables. A registry may lose its memory; the records in Kafka keep the ids it
gave, and are read by what is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar, Final, Literal

import structlog

from kafkaio.schema_registry import RegisteredSchema, SchemaRegistry
from schemas.errors import RegistryError, SinkError, UnsupportedTypeError
from schemas.json_codec import Form, decode, encode, json_field
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.kafka.producer_schemas import ProducerSchemas
from spark_jobs.store.files import LocalFiles

Part = Literal["key", "value"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TableSchemas:
    """The schemas of one table's keys and values, in the order in which they were first seen."""

    JSON: ClassVar = Form(head=lambda _: {"v": _VERSION})

    key: tuple[RegisteredSchema, ...] = json_field((), required=True)
    value: tuple[RegisteredSchema, ...] = json_field((), required=True)

    def of(self, part: Part) -> tuple[RegisteredSchema, ...]:
        """Return those of keys, or of values."""
        return self.key if part == "key" else self.value


class UsedSchemas:
    """The schemas of each table, a file per table. Safe for several threads that have tables of their own."""

    def __init__(self, files: LocalFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._tables: dict[str, TableSchemas] = {}
        self._lock = Lock()

    def known(self, table: str, part: Part) -> tuple[RegisteredSchema, ...]:
        """Return what is kept of a table, `table` being its folder below the sink. `SinkError` where the file is damaged."""
        return self._load(table).of(part)

    def noted(self, table: str, part: Part, found: Sequence[RegisteredSchema]) -> tuple[RegisteredSchema, ...]:
        """Keep what the registry has now, and return all, in the order in which each schema was first seen.

        A schema that got another id keeps its rank. An id is listed twice if the registry has given it to two schemas.
        """
        known = self._load(table)
        both = list(known.of(part))
        for one in found:
            if not any(_same(one, other) for other in both):
                both.append(one)
        if len(both) > len(known.of(part)):
            known = replace(known, key=tuple(both)) if part == "key" else replace(known, value=tuple(both))
            self._save(table, known)
        texts = [_parsed(one.text) for one in known.of(part)]
        return tuple(sorted(known.of(part), key=lambda one: texts.index(_parsed(one.text))))

    def _load(self, table: str) -> TableSchemas:
        with self._lock:
            known = self._tables.get(table)
        if known is None:
            known = self._read(table)
            with self._lock:
                self._tables[table] = known
        return known

    def _save(self, table: str, known: TableSchemas) -> None:
        self._files.write(self._path(table), json.dumps(encode(known)))
        with self._lock:
            self._tables[table] = known

    def _path(self, table: str) -> str:
        return f"{self._folder}/{table}/schemas.json"

    def _read(self, table: str) -> TableSchemas:
        try:
            return decode(TableSchemas, json.loads(self._files.read(self._path(table))))
        except FileNotFoundError:
            return TableSchemas()
        except (OSError, ValueError, KeyError, TypeError) as error:
            where = self._files.location(self._path(table))
            message = f"cannot read the schemas kept in {where}: {error}; remove the file, the registry is asked again"
            raise SinkError(message) from error


def reused_ids(schemas: Sequence[RegisteredSchema]) -> frozenset[int]:
    """Return the ids that two schemas have: a registry that lost its memory has given them again."""
    seen: dict[int, RegisteredSchema] = {}
    return frozenset(one.id for one in schemas if not _same(one, seen.setdefault(one.id, one)))


def chronological(
    answer: Sequence[RegisteredSchema], given: Sequence[RegisteredSchema]
) -> tuple[RegisteredSchema, ...]:
    """Return what a registry answers and what the producer has used, oldest first.

    An id that the producer has used means what the producer says, whatever the registry has of it. The order is the registry's;
    what that has lost comes before what the producer used next.
    """
    if not given or [(one.id, one.text) for one in answer] == [(one.id, one.text) for one in given]:
        return tuple(answer)  # nothing to parse, as in nearly every batch
    order = [_parsed(one.text) for one in answer]
    rank = len(order)
    for one in reversed(given):
        text = _parsed(one.text)
        if text in order:
            rank = order.index(text)
        else:
            order.insert(rank, text)
    used = {one.id: one for one in given}
    both = [*given, *(one for one in answer if one.id not in used)]
    return tuple(sorted(both, key=lambda one: order.index(_parsed(one.text))))


def _same(one: RegisteredSchema, other: RegisteredSchema) -> bool:
    """Whether id and schema are the same, however the registry lays out its text."""
    return one.id == other.id and (one.text == other.text or _parsed(one.text) == _parsed(other.text))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


log = structlog.get_logger()

LOST_WAIT_S: Final = 30.0
_PAUSE_S: Final = 0.5
LOST: Final = (
    "the schema registry no longer has {}: a producer that runs registers it again, at the latest with the table's next snapshot; "
    "then tidemark quarantine retry"
)

Found = dict[Part, tuple[RegisteredSchema, ...]]


@dataclass(slots=True)
class SchemaSources:
    """Where schemas come from. Safe for several threads that have tables of their own.

    `used` are the schemas that this sink ever used, `given` those that the producer keeps. `lost` are the subjects that nobody has
    any more, and since when. `stops` says whether the job is being stopped. `kept` are folders of tables that an earlier attempt at
    the batch has read: they are read by the schemas that are kept of them. `answers` are those of this batch, for all its steps.
    """

    registry: SchemaRegistry
    used: UsedSchemas
    given: ProducerSchemas = field(default_factory=ProducerSchemas)
    stops: Callable[[], bool] = field(default=lambda: False)
    lost: dict[str, float] = field(default_factory=dict)
    writers: dict[tuple[str, int, str], WriterSchema | None] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    answers: dict[str, tuple[RegisteredSchema, ...]] = field(default_factory=dict)

    def begin(self, kept: frozenset[str]) -> None:
        """Begin a batch in which the tables of these folders are read by what is kept of them."""
        self.kept = kept
        self.answers.clear()
        self.given.begin()

    def of_batch(self, folder: str, part: Part, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the schemas of a subject in this batch: what was answered first, or what is kept."""
        if folder in self.kept:
            return self.used.known(folder, part)
        if subject not in self.answers:
            self.answers[subject] = self.of(subject)
        return self.answers[subject]

    def of(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return what the registry has of a subject now, and what the producer keeps of it; oldest first."""
        answer = self.registry.versions(subject)
        return chronological(answer, self.given.of(subject, answer))

    def waited_for(self, table: str, subjects: Mapping[Part, str], lost: Sequence[str]) -> Found:
        """Return the schemas of the subjects once none is lost any more, or when time is up; `self.lost` names the lost ones.

        The producer registers them again. All tables wait once, together: a registry that lost one subject has often lost all.
        """
        until = min([*self.lost.values(), time.monotonic()]) + LOST_WAIT_S
        for subject in lost:
            if subject not in self.lost:
                self.lost[subject] = time.monotonic()
                log.error("merge.schema_lost", table=table, subject=subject, waits_s=LOST_WAIT_S)
        while True:
            found = {part: self.of(subject) for part, subject in subjects.items()}
            self.answers |= {subject: found[part] for part, subject in subjects.items()}
            if all(found[part] for part, subject in subjects.items() if subject in lost) or time.monotonic() >= until:
                return found
            if self.stops():
                message = f"the job was stopped while it waited for the registry: {LOST.format(' and '.join(lost))}"
                raise RegistryError(message)
            time.sleep(_PAUSE_S)

    def usable(
        self,
        folder: str,
        subject: str,
        part: Part,
        found: Sequence[RegisteredSchema],
        build: Callable[[RegisteredSchema], WriterSchema],
    ) -> list[WriterSchema]:
        """Return the writers of a subject, oldest first, and keep their schemas; records of schemas without one are quarantined."""
        schemas = self.used.noted(folder, part, found)
        reused = reused_ids(schemas)
        writers: list[WriterSchema] = []
        for schema in schemas:
            name = (subject, schema.id, schema.text)
            if name not in self.writers:
                self.writers[name] = built(subject, schema, build)
                if schema.id in reused:
                    log.error("merge.schema_id_reused", subject=subject, schema_id=schema.id)
            writer = self.writers[name]
            if writer is None or (part == "key" and schema.id in reused):
                continue  # if two keys fit, it is unknown which one was meant
            if not any((one.id, one.text) == (writer.id, writer.text) for one in writers):
                writers.append(writer)
        return writers


def built(subject: str, schema: RegisteredSchema, build: Callable[[RegisteredSchema], WriterSchema]) -> WriterSchema | None:
    """Return the writer of a schema; None for one that no source table has."""
    try:
        return build(schema)
    except (RegistryError, UnsupportedTypeError, ArithmeticError, ValueError, KeyError, TypeError) as error:
        log.warning("merge.schema_not_usable", subject=subject, schema_id=schema.id, reason=str(error))
        return None
