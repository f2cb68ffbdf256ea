"""Markers: the records of a snapshot topic that are not rows (DESIGN, "Snapshots").

A marker is one record per partition of a table's snapshot topic, key `MARKER_KEY`, value UTF-8 JSON. The log
reader writes it last in a Kafka transaction, after a flush. What each promises:

* every marker: all changes of the table at or before `position` lie below `change_offsets` in the change
  topic (end offset, exclusive; a partition without an entry holds none), and no snapshot row with a version
  below `horizon` will ever be written again.
* `heartbeat`: nothing more.
* `open`, `close`: a window's borders in the log; `close` comes after all rows of the chunk are committed.
* `complete`: every chunk of the table in that request is closed. With a `sweep` it is of the children that one
  foreign key has for some parents: rows with these values below `first_bound` that were not read again are gone.
* `floor`: rows below `position` are gone from the source (truncate, drop ...) and must never return.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from schemas.errors import DecodeError
from schemas.position import Position

MARKER_KEY: Final = b"tidemark:marker"
MARKER_VERSION: Final = 1

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows whose `columns` have one of these values, as texts: numbers as such, binary columns in hexadecimal."""

    columns: tuple[str, ...]
    values: frozenset[tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return {"columns": list(self.columns), "values": [list(value) for value in sorted(self.values)]}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Sweep:
        """A sweep out of its JSON form; `KeyError`, `TypeError` or `ValueError` when it is none."""
        columns = tuple(_text(name) for name in document["columns"])
        values = frozenset(tuple(_text(part) for part in value) for value in document["values"])
        if not columns or any(len(value) != len(columns) for value in values):
            message = f"a sweep of {len(columns)} columns with other values"
            raise ValueError(message)
        return Sweep(columns, values)


class MarkerType(StrEnum):
    """The kinds of markers."""

    HEARTBEAT = "heartbeat"
    OPEN = "open"
    CLOSE = "close"
    COMPLETE = "complete"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What every marker says. `partition` is the one it is written to, of `partitions` in all."""

    type: ClassVar[MarkerType]

    table: str
    position: Position
    horizon: Position
    partitions: int
    partition: int = 0
    change_offsets: Offsets = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The record's value: UTF-8 JSON, keys in a fixed order."""
        document = {
            "v": MARKER_VERSION,
            "type": str(self.type),
            "position": self.position.text,
            "horizon": self.horizon.text,
            "partitions": self.partitions,
            "partition": self.partition,
            "table": self.table,
            "change_offsets": _offsets_out(self.change_offsets),
            **self._details(),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    def for_partitions(self) -> tuple[Marker, ...]:
        """The same marker once per partition."""
        return tuple(replace(self, partition=partition) for partition in range(self.partitions))

    def _details(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatMarker(Marker):
    """How far the log reader is: `position` is its committed border."""

    type: ClassVar[MarkerType] = MarkerType.HEARTBEAT


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMarker(Marker):
    """What open and close share: the window, its request and the number of its chunk."""

    window: str
    request: str
    chunk: int

    def _details(self) -> dict[str, Any]:
        return {"window": self.window, "request": self.request, "chunk": self.chunk}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMarker(WindowMarker):
    """The open row was met in the log."""

    type: ClassVar[MarkerType] = MarkerType.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseMarker(WindowMarker):
    """The close row was met: every row of the chunk is committed.

    `rows` counts the chunk's rows per partition; `first_offsets` is where the rows of a partition begin.
    """

    type: ClassVar[MarkerType] = MarkerType.CLOSE

    rows: Offsets = field(default_factory=dict)
    first_offsets: Offsets = field(default_factory=dict)

    def _details(self) -> dict[str, Any]:
        window = {"window": self.window, "request": self.request, "chunk": self.chunk}
        counts = {"rows": _offsets_out(self.rows), "first_offsets": _offsets_out(self.first_offsets)}
        return window | counts


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
    sweep: Sweep | None = None

    def _details(self) -> dict[str, Any]:
        details = {
            "request": self.request,
            "first_bound": self.first_bound.text,
            "whole_table": self.whole_table,
            "rows": self.rows,
        }
        return details if self.sweep is None else details | {"sweep": self.sweep.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorMarker(Marker):
    """Rows below `position` are gone, and `reason` says why (truncate, drop, create, rename).

    `empty` tells that the table had no row there at all, and every later one is in the log: it is consistent from there on.
    """

    type: ClassVar[MarkerType] = MarkerType.FLOOR

    reason: str
    empty: bool = False

    def _details(self) -> dict[str, Any]:
        return {"reason": self.reason, "empty": True} if self.empty else {"reason": self.reason}


def is_marker(key: bytes | None) -> bool:
    """Whether a snapshot topic's record is a marker, by its key."""
    return key == MARKER_KEY


def parse_marker(value: bytes) -> Marker:
    """The marker of a record's value; `DecodeError` when it isn't one. Unknown keys are ignored."""
    try:
        document = json.loads(value)
        version = document["v"]
        if version != MARKER_VERSION:
            message = f"marker version {version!r} is not known; upgrade this reader"
            raise DecodeError(message)
        return _PARSERS[MarkerType(document["type"])](document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"not a marker: {type(error).__name__} {error}"
        raise DecodeError(message) from error


def _common(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "table": _text(document["table"]),
        "position": Position.parse(document["position"]),
        "horizon": Position.parse(document["horizon"]),
        "partitions": int(document["partitions"]),
        "partition": int(document["partition"]),
        "change_offsets": _offsets_in(document.get("change_offsets", {})),
    }


def _window(document: dict[str, Any]) -> dict[str, Any]:
    names = {name: _text(document[name]) for name in ("window", "request")}
    return _common(document) | names | {"chunk": int(document["chunk"])}


def _parse_heartbeat(document: dict[str, Any]) -> Marker:
    return HeartbeatMarker(**_common(document))


def _parse_open(document: dict[str, Any]) -> Marker:
    return OpenMarker(**_window(document))


def _parse_close(document: dict[str, Any]) -> Marker:
    rows = _offsets_in(document.get("rows", {}))
    first_offsets = _offsets_in(document.get("first_offsets", {}))
    return CloseMarker(**_window(document), rows=rows, first_offsets=first_offsets)


def _parse_complete(document: dict[str, Any]) -> Marker:
    sweep = document.get("sweep")
    return CompleteMarker(
        **_common(document),
        request=_text(document["request"]),
        first_bound=Position.parse(document["first_bound"]),
        whole_table=document["whole_table"] is True,
        rows=int(document["rows"]),
        sweep=None if sweep is None else Sweep.from_json(sweep),
    )


def _parse_floor(document: dict[str, Any]) -> Marker:
    return FloorMarker(**_common(document), reason=_text(document["reason"]), empty=document.get("empty") is True)


_PARSERS: Final = {
    MarkerType.HEARTBEAT: _parse_heartbeat,
    MarkerType.OPEN: _parse_open,
    MarkerType.CLOSE: _parse_close,
    MarkerType.COMPLETE: _parse_complete,
    MarkerType.FLOOR: _parse_floor,
}


def _text(value: object) -> str:
    if not isinstance(value, str):
        message = f"text expected, got {value!r}"
        raise TypeError(message)
    return value


def _offsets_out(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def _offsets_in(document: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in document.items()}
