"""What sinks with changelogs and no mirror have in common: the steps of a mirror are refused, nothing is evolved or compacted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.formats.event_columns import DETAIL, FLOOR, OP, SWEEP
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.contract import (
    REMEDY,
    Capabilities,
    Columns,
    Evolution,
    SinkTarget,
    TargetRecord,
    Winners,
    Writer,
)
from spark_jobs.sinks.stamp import Stamp

CHANGELOG_ONLY: Final = Capabilities(
    modes=frozenset({"changelog"}),
    shapes=frozenset({"key"}),
    reserved_names=frozenset({OP, POSITION, SOURCE, DETAIL}),
    schema_changes=frozenset(),
)
_RANK: Final = "_tm_rank "
_NUMBER: Final = "_tm_number "
MADE: Final = -1
"""The number of the batch of a commit that made a target, and appended nothing."""


class ChangelogTarget(SinkTarget):
    """A target that is appended to, and never changed."""

    @override
    def columns(self) -> Columns | None:
        return () if self.exists() else None

    @override
    def fitting(self, columns: Columns) -> Columns:
        return ()

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        """Do nothing: each event has the columns that its table had then."""

    @override
    def compact(self, stamp: Stamp) -> None:
        """Do nothing."""

    def require_own(self, query_id: str, written: tuple[str, int], record: TargetRecord, batch_id: int) -> None:
        """Raise `SinkError` unless the last commit, of a query and a batch, is that of the record or an attempt at this batch."""
        by, batch = written
        first = MADE if record.last_commit < 0 else record.last_commit
        if by != query_id or batch not in (first, batch_id):
            message = f"{self.location()} was last written by batch {batch} of query {by}: {REMEDY}"
            raise SinkError(message)


class ChangelogWriter(Writer):
    """A writer that appends."""

    @override
    def put(self, winners: Winners) -> None:
        _refuse()

    @override
    def delete_below(self, floors: Mapping[SourceTable, str]) -> None:
        _refuse()

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        _refuse()


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


def appended_document(appended: Mapping[str, Appended]) -> dict[str, Any]:
    """Return how far tables are appended, by their texts, as JSON that `appended_of` reads."""
    return {
        table: {"ends": {topic: {str(n): end for n, end in ends.items()} for topic, ends in one.ends.items()},
                "floor": one.floor, "sweeps": list(one.sweeps), "floors": list(one.floors)}
        for table, one in sorted(appended.items())
    }  # fmt: skip


def appended_of(document: Mapping[str, Any]) -> dict[str, Appended]:
    """Return how far tables are appended; `KeyError`, `TypeError` or `ValueError` for JSON of another kind."""
    return {
        table: Appended(
            {topic: {int(n): int(end) for n, end in ends.items()} for topic, ends in one["ends"].items()},
            str(one["floor"]),
            tuple(one["sweeps"]),
            tuple(one.get("floors", ())),
        )
        for table, one in document.items()
    }


def _refuse() -> NoReturn:
    raise SinkError("a changelog has events, and no rows that could be changed: this sink has mode: changelog only")
