"""Reads the schema-change topic `<name>` to its end: what `tidemark.api.schema_history` makes versions of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kafkaio.committed_reader import CommittedReader, CommittedRecord
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import DecodeError
from tidemark.api.record_decoding import Decoder

if TYPE_CHECKING:
    from schemas.settings import Settings

_WHY_NONE: Final = "records.include_schema_changes is off, or `tidemark run` was never started"


@dataclass(frozen=True, slots=True)
class SchemaTopic:
    """The values of all records that the topic has, in their order. `is_complete`: none were removed from its beginning.

    `missing` says why there is nothing to read, "" where the topic is there.
    """

    records: tuple[Mapping[str, Any], ...]
    is_complete: bool
    missing: str = ""


def read_schema_topic(settings: Settings) -> SchemaTopic:
    """Return what the topic has now, committed records only; errors as `SchemaReader.read`."""
    with SchemaReader(settings) as reader:
        return reader.read()


class SchemaReader:
    """Reads the topic once, and what has come since from then on. Use it in a `with` block, in one thread."""

    def __init__(self, settings: Settings) -> None:
        self._topic = topics.schema_change_topic(settings.name)
        self._decoder = Decoder(settings.format.registry, RegistryAccess.of(settings.format))
        self._reader = CommittedReader(settings.kafka, f"{settings.name}-schemas")
        self._values: list[tuple[int, int, Mapping[str, Any]]] = []
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self) -> SchemaTopic:
        """Return what the topic has now, committed records only.

        Raises `PublishError` if Kafka cannot be read, `DecodeError` and `RegistryError` if a record cannot be decoded.
        """
        reader = self._reader
        if not reader.reached:
            bounds = reader.bounds(reader.partitions(self._topic))
            if not bounds:
                return SchemaTopic((), is_complete=True, missing=f"there is no topic {self._topic}: {_WHY_NONE}")
            reader.begin({one: first for one, (first, _) in bounds.items()})
            self._is_complete = not any(first for first, _ in bounds.values())
        for record in reader.read_to(reader.ends(reader.reached)):
            value = _value(record, self._decoder)
            if value is not None:
                self._values.append((record.partition, record.offset, value))
        records = sorted(self._values, key=lambda one: one[:2])
        return SchemaTopic(tuple(value for _, _, value in records), self._is_complete)


def _value(record: CommittedRecord, decoder: Decoder) -> Mapping[str, Any] | None:
    """Return the payload of a record; None for a record without one."""
    try:
        decoded = decoder.decode(record.value)
    except DecodeError as broken:
        raise DecodeError(f"{record.topic} offset {record.offset} cannot be decoded: {broken}") from broken
    payload = decoded["payload"] if isinstance(decoded, Mapping) else decoded
    return payload if isinstance(payload, Mapping) else None
