"""The schema of each id in records, kept for good: a registry may lose its memory, records keep their ids."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from schemas.documents import SchemaIdDocument
from schemas.json_codec import encode
from schemas.state import parse


class SchemaIds:
    """The ids that were ever used in a subject, each a document of the state topic. Thread-safe.

    A document is durable with the first record that has its id: both are in one Kafka transaction. (Rows of a chunk reader may be
    readable a moment before.)
    """

    def __init__(self, documents: Mapping[str, Any] | None = None) -> None:
        self._schemas: dict[str, dict[int, str]] = {}
        self._unsaved: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self.restore(documents or {})

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Take over the ids that earlier processes used."""
        with self._lock:
            for key, document in documents.items():
                if key.startswith(SchemaIdDocument.PREFIX):
                    one = parse(SchemaIdDocument, key, document)
                    self._schemas.setdefault(one.subject, {})[one.id] = one.schema

    def note(self, subject: str, ident: int, schema: str) -> bool:
        """Keep what an id stands for in a subject; False where it stands for another schema there already."""
        with self._lock:
            known = self._schemas.setdefault(subject, {})
            if ident in known:
                return known[ident] == schema or json.loads(known[ident]) == json.loads(schema)
            known[ident] = schema
            document = SchemaIdDocument(subject, ident, schema)
            self._unsaved[document.key] = encode(document)
            return True

    def count(self, subject: str) -> int:
        """Return how many ids were used in the subject."""
        with self._lock:
            return len(self._schemas.get(subject, ()))

    def take_unsaved(self) -> dict[str, dict[str, Any]]:
        """Return the documents that are new since the last call."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
            return unsaved
