"""The state topic as its readers see it: records enter, `State` leaves. Clients stay with producer, command and merge job.

The topic is compacted: the newest record of a key counts, one without a value deletes the document. It belongs to one source, which
is therefore the source of every position and table in it: the documents do not name it, `State` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from schemas.delay_histogram import RecentDelays
from schemas.documents import (
    AsideDocument,
    CatalogDocument,
    ColumnsDocument,
    CoverageDocument,
    DatabasesDocument,
    InexactDocument,
    OffsetDocument,
    RequestDocument,
    SchemaIdDocument,
    TaskDocument,
    TopicsDocument,
    UnseenStatementsDocument,
    WindowDocument,
)
from schemas.errors import StateError
from schemas.identity import SourceId
from schemas.json_codec import decode, encode
from schemas.liveness import Sign
from schemas.overriding import override
from schemas.position import SourcePosition
from schemas.schema_changes import DefaultCharsets, TableModel

D = TypeVar("D")

PARTITIONS: Final = 2
OFFSET_PARTITION: Final = 0
DOCUMENT_PARTITION: Final = 1
KINDS: Final[Mapping[str, type[Any]]] = {
    OffsetDocument.KEY: OffsetDocument,
    Sign.KEY: Sign,
    DatabasesDocument.KEY: DatabasesDocument,
    DefaultCharsets.KEY: DefaultCharsets,
    InexactDocument.KEY: InexactDocument,
    CoverageDocument.KEY: CoverageDocument,
    UnseenStatementsDocument.KEY: UnseenStatementsDocument,
    RequestDocument.PREFIX: RequestDocument,
    TaskDocument.PREFIX: TaskDocument,
    TaskDocument.CHILDREN: TaskDocument,
    WindowDocument.PREFIX: WindowDocument,
    TopicsDocument.PREFIX: TopicsDocument,
    SchemaIdDocument.PREFIX: SchemaIdDocument,
    AsideDocument.PREFIX: AsideDocument,
    ColumnsDocument.PREFIX: ColumnsDocument,
    RecentDelays.PREFIX: RecentDelays,
    CatalogDocument.PREFIX: CatalogDocument,
    TableModel.PREFIX: TableModel,
}
"""The class of a document by its key, or by what its key begins with, up to the first slash."""


def kind_of(key: str) -> type[Any] | None:
    """Return the class of the document with this key; None for one of a newer version."""
    head, slash, _ = key.partition("/")
    return KINDS.get(head + slash)


def partition_of(key: str) -> int:
    """Return the partition of the state topic that a document is in."""
    return OFFSET_PARTITION if key == OffsetDocument.KEY else DOCUMENT_PARTITION


def value_of(document: object) -> bytes:
    """Return the record's value for a document: a dataclass, or its JSON form."""
    return json.dumps(document if isinstance(document, Mapping) else encode(document), separators=(",", ":")).encode()


def parse(kind: type[D], key: str, document: object) -> D:
    """Return the document of a JSON form; `StateError` if it is none, or if only a newer version understands it."""
    versions = getattr(kind, "VERSIONS", None)
    if versions is not None and isinstance(document, Mapping) and document.get("v", 1) not in versions:
        message = f"the document {key} in the state topic is of version {document['v']}: a newer Tidemark wrote it, start that one"
        raise StateError(message)
    try:
        return decode(kind, document)
    except (KeyError, TypeError, ValueError) as error:
        message = (
            f"the document {key} in the state topic cannot be understood ({error!r}): {document!r}; "
            f"a newer version may have written it"
        )
        raise StateError(message) from error


class State(Mapping[str, Any]):
    """The documents of a state topic at one moment.

    As a mapping it gives the JSON form by key; `one` and `all` give dataclasses, and raise `StateError` for what they do not
    understand.
    """

    def __init__(self, documents: Mapping[str, Any], source: SourceId) -> None:
        self._documents = documents
        self._parsed: dict[tuple[type[Any], str], Mapping[str, Any]] = {}
        self.source = source

    @override
    def __getitem__(self, key: str) -> Any:
        return self._documents[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    @override
    def __len__(self) -> int:
        return len(self._documents)

    def one(self, kind: type[D]) -> D | None:
        """Return the document of a kind that has one key; None if there is none."""
        key: str = getattr(kind, "KEY")  # noqa: B009 - the kinds share no base
        return parse(kind, key, self._documents[key]) if key in self._documents else None

    def all(self, kind: type[D], prefix: str | None = None) -> Mapping[str, D]:
        """Return the documents of a kind by key, in the order of their first records; `prefix`: only those whose keys begin so."""
        wanted: str = prefix if prefix is not None else getattr(kind, "PREFIX")  # noqa: B009 - as in `one`
        if (kind, wanted) not in self._parsed:
            found = {key: parse(kind, key, one) for key, one in self._documents.items() if key.startswith(wanted)}
            self._parsed[kind, wanted] = found
        return self._parsed[kind, wanted]

    @property
    def committed(self) -> SourcePosition | None:
        """Return the transaction boundary up to which everything is in Kafka; None before the first start."""
        offset = self.one(OffsetDocument)
        return None if offset is None else offset.boundary.of(self.source)


class StateRecords:
    """The records of a state topic, applied in their order. `skipped` are prefixes of keys whose documents are not kept."""

    def __init__(self, topic: str, source: SourceId, skipped: tuple[str, ...] = ()) -> None:
        self._topic = topic
        self._source = source
        self._skipped = tuple(prefix.encode() for prefix in skipped)
        self._documents: dict[str, Any] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record; `StateError` if it is not one of ours. A record without a key says nothing."""
        if key is None or (self._skipped and key.startswith(self._skipped)):
            return
        try:
            name = key.decode()
            if value is None:
                self._documents.pop(name, None)
            else:
                self._documents[name] = json.loads(value)
        except ValueError as error:
            message = f"topic {self._topic} has a record that is not one of ours: {error}"
            raise StateError(message) from error

    @property
    def state(self) -> State:
        """Return the live documents as they are now; later records do not change it."""
        return State(dict(self._documents), self._source)
