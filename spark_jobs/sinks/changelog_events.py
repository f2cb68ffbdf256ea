"""What a batch appends to a changelog, and how far one was appended: values between the merge and a sink, and in its documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.identity import SourceTable
from schemas.json_codec import Form, decode, json_field
from schemas.merge_rule import NOTHING
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.formats.event_columns import FLOOR, SWEEP

_VERSION: Final = 1
MADE: Final = -1
"""The number of the batch of a commit that made a target, and appended nothing."""
VERSIONED: Final = Form(head=lambda _: {"v": _VERSION})
"""The form of a document that says how far tables are appended: `read_versioned` reads it."""

_RANK: Final = "_tm_rank "
_NUMBER: Final = "_tm_number "
_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True)
class Appended:
    """How far the events of a source table are in a changelog.

    `ends` are offsets, exclusive, by partition and by the topic with its id: those of a topic that was created again say nothing.
    `floor` is the highest floor that was appended, `floors` are the names of those of the last batch that had some, none in
    documents of older versions; `sweeps` are texts of the sweeps of the last batch that had some.
    """

    ends: Mapping[str, Mapping[int, int]] = json_field(factory=dict, required=True)
    floor: str = json_field(NOTHING, required=True)
    sweeps: tuple[str, ...] = json_field((), required=True)
    floors: tuple[str, ...] = ()

    def has_floor(self, name: str, position: str) -> bool:
        """Return whether a floor was appended."""
        return name in self.floors or (not self.floors and position <= self.floor)


@dataclass(frozen=True, slots=True)
class Events:
    """What a batch appends of one source table to one changelog.

    `rows` has `POSITION`, `COMMITTED`, `CHANGE`, and `BEFORE` and `AFTER`, which are structs of the `columns`; the rows of a
    partition are in the order in which they are to be appended, and `count` is their number. `keys` are the names of the
    record's key in the target, which has the identity, without `SOURCE`. `floors` (positions) and `sweeps` (texts of JSON with
    `columns`, `values` and `below`) are events of their own: each is appended between the rows below it and the others. `until` is
    how far the table is appended with all of them.
    """

    table: SourceTable
    rows: DataFrame
    count: int
    keys: tuple[str, ...]
    columns: Sequence[tuple[str, T.DataType]]
    until: Appended
    floors: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()


def read_versioned(kind: type[_Document], text: str | bytes) -> _Document:
    """Return a document of the form `VERSIONED`; `KeyError`, `TypeError` or `ValueError` for any other text."""
    document = json.loads(text)
    if document["v"] != _VERSION:
        raise ValueError(f"it has version {document['v']}, this job knows {_VERSION}: upgrade it")
    return decode(kind, document)


def notices_of(events: Events) -> list[tuple[str, str, str | None]]:
    """Return the floors and the sweeps of events: kind, position, and what a sweep takes, as JSON."""
    floors: list[tuple[str, str, str | None]] = [(FLOOR, floor, None) for floor in events.floors]
    return floors + [(SWEEP, json.loads(text)["below"], text) for text in events.sweeps]


def in_order(rows: DataFrame, notices: DataFrame, parts: int) -> DataFrame:
    """Return the rows of events and of notices by their positions, in partitions one after the other.

    A notice comes before the rows at its position: it is about those below. Rows at one position keep their order.
    """
    order = (POSITION, _RANK, _NUMBER)
    number = F.monotonically_increasing_id()
    ranked = [frame.withColumns({_RANK: F.lit(rank), _NUMBER: number}) for rank, frame in enumerate((notices, rows))]
    return ranked[1].unionByName(ranked[0]).repartitionByRange(parts, *order).sortWithinPartitions(*order).drop(_RANK, _NUMBER)
