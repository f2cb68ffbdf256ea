"""The schemas of a table's records that this sink has used, kept beside its tables.

What enters: what the registry answers for a subject now. What leaves: all schemas that the table's records may have been written
with, oldest first. A registry may lose its memory; the records in Kafka keep the ids it gave, and are read by what is kept here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar, Final, Literal

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import SinkError
from schemas.json_codec import Form, decode, encode, json_field
from spark_jobs.store.files import FileStore

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

    def __init__(self, files: FileStore, folder: str) -> None:
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
