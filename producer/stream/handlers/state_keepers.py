"""Participants around objects that only collect changed documents: schema ids, the catalog, topics, facts of a start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from producer.stream.ports import CheckpointWork

if TYPE_CHECKING:
    from producer.kafka.schema_ids import SchemaIds
    from producer.kafka.tables import TableTopics
    from producer.stream.ports import Document, State
    from schemas.position import Position


class SchemaIdDocuments:
    """What the schema ids in records mean: durable with the first record that has the id, even of a part."""

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids

    def restore(self, state: State) -> None:
        """Take over the ids that were ever used."""
        self._ids.restore(state)

    def prepare(self, _boundary: Position, now_s: float) -> CheckpointWork:
        """Return the documents of new ids."""
        return CheckpointWork(documents=self.prepare_part(now_s))

    def prepare_part(self, _now_s: float) -> Mapping[str, Document]:
        """Return the documents of new ids."""
        return self._ids.pop_unsaved()

    def committed(self, boundary: Position) -> None:
        """Do nothing: documents are returned once."""


class TopicDocuments:
    """The topics of captured tables and their partition counts, which must not change."""

    def __init__(self, tables: TableTopics) -> None:
        self._tables = tables

    def restore(self, state: State) -> None:
        """Take over the tables that have topics."""
        self._tables.restore(state)

    def prepare(self, _boundary: Position, now_s: float) -> CheckpointWork:
        """Return the documents of new tables; `StateError` where a topic has other partitions now."""
        self._tables.require_unchanged(now_s)
        return CheckpointWork(documents=self._tables.pop_unsaved())

    def prepare_part(self, now_s: float) -> Mapping[str, Document]:
        """Return no documents; `StateError` where a topic has other partitions now."""
        self._tables.require_unchanged(now_s)
        return {}

    def committed(self, boundary: Position) -> None:
        """Do nothing: documents are returned once."""


class CatalogDocuments:
    """The columns of tables that the log does not name. They are restored before reading starts (`producer.resume`)."""

    def __init__(self, pop_unsaved: Callable[[], Mapping[str, Document]]) -> None:
        self._pop_unsaved = pop_unsaved

    def restore(self, state: State) -> None:
        """Do nothing: where reading starts depends on them, so they are restored before."""

    def prepare(self, _boundary: Position, _now_s: float) -> CheckpointWork:
        """Return the documents that changed."""
        return CheckpointWork(documents=self._pop_unsaved())

    def committed(self, boundary: Position) -> None:
        """Do nothing: documents are returned once."""


class StartDocuments:
    """What a start has found out about the source: written with its first checkpoint, where it is new. None deletes a document."""

    def __init__(self, documents: Mapping[str, Mapping[str, Any] | None]) -> None:
        self._documents: dict[str, Document] = dict(documents)

    def restore(self, state: State) -> None:
        """Drop the documents that an earlier start has written."""
        self._documents = {key: document for key, document in self._documents.items() if document != state.get(key)}

    def is_due(self, _boundary: Callable[[], Position] | None, _now_s: float) -> bool:
        """Return whether there are any: with them the position where a first start begins is durable, before the first event."""
        return bool(self._documents)

    def add(self, documents: Mapping[str, Document]) -> None:
        """Write these documents with the next checkpoint."""
        self._documents = {**self._documents, **documents}

    def prepare(self, _boundary: Position, _now_s: float) -> CheckpointWork:
        """Return the documents of this start, once."""
        documents, self._documents = self._documents, {}
        return CheckpointWork(documents=documents)

    def committed(self, boundary: Position) -> None:
        """Do nothing: documents are returned once."""
