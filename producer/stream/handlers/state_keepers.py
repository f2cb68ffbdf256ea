"""Participants around objects that only collect changed documents: schema ids, the catalog, topics, facts of a start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from producer.stream.ports import CheckpointParticipant, CheckpointWork
from schemas.overriding import override

if TYPE_CHECKING:
    from producer.catalog import TrackedTables
    from producer.kafka.schema_ids import SchemaIds
    from producer.kafka.tables import TableTopics
    from producer.stream.ports import Document, State
    from schemas.position import Position


class SchemaIdDocuments(CheckpointParticipant):
    """What the schema ids in records mean: durable with the first record that has the id, even of a part."""

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids

    @override
    def restore(self, state: State) -> None:
        self._ids.restore(state)

    @override
    def prepare(self, _boundary: Position, now_s: float) -> CheckpointWork:
        return CheckpointWork(documents=self.prepare_part(now_s))

    def prepare_part(self, _now_s: float) -> Mapping[str, Document]:
        """Return the documents of new ids."""
        return self._ids.pop_unsaved()


class TopicDocuments(CheckpointParticipant):
    """The topics of captured tables and their partition counts, which must not change."""

    def __init__(self, tables: TableTopics) -> None:
        self._tables = tables

    @override
    def restore(self, state: State) -> None:
        self._tables.restore(state)

    @override
    def prepare(self, _boundary: Position, now_s: float) -> CheckpointWork:
        self._tables.require_unchanged(now_s)
        return CheckpointWork(documents=self._tables.pop_unsaved())

    def prepare_part(self, now_s: float) -> Mapping[str, Document]:
        """Return no documents; `StateError` where a topic has other partitions now."""
        self._tables.require_unchanged(now_s)
        return {}


class CatalogDocuments(CheckpointParticipant):
    """The columns of tables that the log does not name. They are restored before reading starts (`producer.resume`)."""

    def __init__(self, tracked: TrackedTables) -> None:
        self._tracked = tracked

    @override
    def prepare(self, _boundary: Position, _now_s: float) -> CheckpointWork:
        return CheckpointWork(documents=self._tracked.pop_unsaved())


class StartDocuments(CheckpointParticipant):
    """What a start has found out about the source: written with its first checkpoint, where it is new. None deletes a document."""

    def __init__(self, documents: Mapping[str, Mapping[str, Any] | None]) -> None:
        self._documents: dict[str, Document] = dict(documents)

    @override
    def restore(self, state: State) -> None:
        self._documents = {key: document for key, document in self._documents.items() if document != state.get(key)}

    def is_due(self, _boundary: Callable[[], Position] | None, _now_s: float) -> bool:
        """Return whether there are any: with them the position where a first start begins is durable, before the first event."""
        return bool(self._documents)

    def add(self, documents: Mapping[str, Document]) -> None:
        """Write these documents with the next checkpoint."""
        self._documents = {**self._documents, **documents}

    @override
    def prepare(self, _boundary: Position, _now_s: float) -> CheckpointWork:
        documents, self._documents = self._documents, {}
        return CheckpointWork(documents=documents)
