"""The schemas of a table's records: what the registry, the producer and this sink know of them enters, `WriterSchema`s leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from kafkaio.schema_registry import RegisteredSchema, SchemaRegistry
from schemas.errors import RegistryError, UnsupportedTypeError
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.kafka.producer_schemas import ProducerSchemas
from spark_jobs.merge.used_schemas import Part, UsedSchemas, chronological, reused_ids

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
