"""Markers: the records of a snapshot topic that are not rows (DESIGN, "Snapshots").

A marker is one record per partition of a table's snapshot topic, key `MARKER_KEY`, value UTF-8 JSON. The log reader writes it last
in a Kafka transaction, after a flush. What each promises:

* every marker: all changes of the table at or before `position` are below `change_offsets` in the change topic (end offset,
  exclusive; a partition without an entry has none), and no snapshot row with a version below `horizon` will ever be written again.
* `heartbeat`: nothing more.
* `open`, `close`: the low watermark and the high watermark of a window; `close` comes after all rows of the chunk are committed.
* `load`: the merge job shall read the chunk of an open window itself, by the query that the marker has, with the version `low`. It
  answers with a row of the signal table (`schemas.loads`); the close marker comes after the answer.
* `complete`: every chunk of the table in that request is closed. With a `sweep` it is of the children that one foreign key has for
  some parents: rows with these values below `first_bound` that were not read again are gone.
* `floor`: rows below `position` are gone from the source (truncate, drop ...) and must never return.

Positions and horizons are those of the marker's `source`. Markers of versions that knew one source do not name it: `source` is None
then, which is the source whose topics the reader reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from schemas.errors import DecodeError
from schemas.identity import SourceId
from schemas.json_codec import Form, decode, encode, json_field
from schemas.position import Position

MARKER_KEY: Final = b"tidemark:marker"
MARKER_VERSION: Final = 1

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows whose `columns` have one of these values, as texts: numbers as such, binary columns in hexadecimal."""

    columns: tuple[str, ...]
    values: frozenset[tuple[str, ...]]

    def __post_init__(self) -> None:
        if not self.columns or any(len(value) != len(self.columns) for value in self.values):
            message = f"a sweep of {len(self.columns)} columns with other values"
            raise ValueError(message)


class MarkerType(StrEnum):
    """The kinds of markers."""

    HEARTBEAT = "heartbeat"
    OPEN = "open"
    LOAD = "load"
    CLOSE = "close"
    COMPLETE = "complete"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What every marker says. `partition` is the one it is written to, of `partitions` in all."""

    JSON: ClassVar = Form(head=lambda marker: {"v": MARKER_VERSION, "type": str(marker.type)})
    type: ClassVar[MarkerType]

    position: Position
    horizon: Position
    partitions: int
    partition: int = json_field(0, required=True)
    table: str
    source: SourceId | None = json_field(None, omits_default=True)
    change_offsets: Offsets = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the record's value: UTF-8 JSON, keys in a fixed order."""
        return json.dumps(encode(self), ensure_ascii=False, separators=(",", ":")).encode()

    def for_partitions(self) -> tuple[Marker, ...]:
        """Return the same marker once per partition."""
        return tuple(replace(self, partition=partition) for partition in range(self.partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatMarker(Marker):
    """How far the log reader is: `position` is its committed transaction boundary."""

    type: ClassVar[MarkerType] = MarkerType.HEARTBEAT


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMarker(Marker):
    """What open and close share: the window, its request and the number of its chunk."""

    window: str
    request: str
    chunk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMarker(WindowMarker):
    """The open row was seen in the log."""

    type: ClassVar[MarkerType] = MarkerType.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMarker(WindowMarker):
    """The barrier of the window was read in the log: the merge job reads the rows of `query` from now on.

    The rows have the version `low`, which is in the log's file `file`, and the mark `snapshot` in their source block. `server` is
    the identity of the server that must be asked; `key_schema` (None for a table without a key) and `value_schema` are the schemas
    that the rows are encoded with, by their ids in the registry. Chunks of one `generation` of a request are disjoint: with the
    next one the table was divided once more, in the same process of the producer.
    """

    type: ClassVar[MarkerType] = MarkerType.LOAD

    low: Position
    query: str
    server: str
    value_schema: int
    key_schema: int | None = None
    file: str = json_field("", omits_default=True)
    snapshot: str = json_field("incremental", omits_default=True)
    generation: int = json_field(0, omits_default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseMarker(WindowMarker):
    """The close row was seen in the log: every row of the chunk is committed.

    `rows` counts the chunk's rows per partition; `first_offsets` is where the rows of a partition begin. With `loaded` the rows
    were not written to Kafka: the sink that answered the window's load marker has them, and no other.
    """

    type: ClassVar[MarkerType] = MarkerType.CLOSE

    rows: Offsets = field(default_factory=dict)
    first_offsets: Offsets = field(default_factory=dict)
    loaded: bool = json_field(default=False, omits_default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteMarker(Marker):
    """All chunks of the table in that request are closed; `first_bound` is the smallest bound of its windows.

    `whole_table` is False for a snapshot with a condition: no sweep then, or only of the rows that `sweep` names.
    """

    type: ClassVar[MarkerType] = MarkerType.COMPLETE

    request: str
    first_bound: Position
    whole_table: bool
    rows: int
    sweep: Sweep | None = json_field(None, omits_default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorMarker(Marker):
    """Rows below `position` are gone, and `reason` says why (truncate, drop, create, rename).

    `cause` is the statement that took them, "" in markers of older versions. `empty`: the table had no row at all at that position,
    and every later one is in the log: it is consistent from there on.
    """

    type: ClassVar[MarkerType] = MarkerType.FLOOR

    reason: str
    empty: bool = json_field(default=False, omits_default=True)
    cause: str = json_field("", omits_default=True)


_KINDS: Final[Mapping[MarkerType, type[Marker]]] = {
    kind.type: kind for kind in (HeartbeatMarker, OpenMarker, LoadMarker, CloseMarker, CompleteMarker, FloorMarker)
}


def is_marker(key: bytes | None) -> bool:
    """Return whether a snapshot topic's record is a marker, by its key."""
    return key == MARKER_KEY


def parse_marker(value: bytes, source: SourceId | None = None) -> Marker:
    """Return the marker of a record's value; `DecodeError` if it is none. Unknown keys are ignored.

    `source` is that of the topic: a marker that names none has it.
    """
    try:
        document: Any = json.loads(value)
        version = document["v"]
        if version != MARKER_VERSION:
            message = f"marker version {version!r} is not known; upgrade this reader"
            raise DecodeError(message)
        marker = decode(_KINDS[MarkerType(document["type"])], document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"not a marker: {type(error).__name__} {error}"
        raise DecodeError(message) from error
    return marker if marker.source is not None or source is None else replace(marker, source=source)
