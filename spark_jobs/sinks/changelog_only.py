"""What sinks with changelogs have in common: the order of events."""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import POSITION
from spark_jobs.formats.event_columns import FLOOR, SWEEP
from spark_jobs.sinks.changelog_events import Events

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
