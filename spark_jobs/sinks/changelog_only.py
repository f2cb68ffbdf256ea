"""What sinks with changelogs have in common: what they can do, the order of events, and how far tables are appended, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.formats.event_columns import DETAIL, FLOOR, OP, SWEEP
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.contract import Capabilities

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
