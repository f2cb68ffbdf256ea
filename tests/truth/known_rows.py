"""What the harness knows of each row that it wrote: when it was committed, and when it came into Kafka and into the sink (pure)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

NEVER: Final = float("inf")


@dataclass(slots=True)
class Row:
    """A row. Each moment is known by two bounds (Unix time, s): it was committed, came into Kafka, came into the sink.

    `kept_out`: its table is set aside, so that it does not come as a change.
    """

    table: str
    number: int
    written_s: float
    committed_s: float = NEVER
    in_kafka_not_before_s: float = NEVER
    in_kafka_s: float = NEVER
    in_sink_not_before_s: float = NEVER
    in_sink_s: float = NEVER
    kept_out: bool = False


class KnownRows:
    """All rows. The writer adds them, the watchers of Kafka and of the sink note arrivals, each on a thread of its own."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Row] = {}
        self._lock = threading.Lock()

    def add(self, row: Row) -> None:
        with self._lock:
            self._rows[row.table, row.number] = row

    def came_into_kafka(self, table: str, number: int, not_before_s: float, seen_s: float) -> None:
        row = self._rows.get((table, number))
        if row is not None and row.in_kafka_s == NEVER:
            row.in_kafka_not_before_s, row.in_kafka_s = not_before_s, seen_s

    def came_into_sink(self, table: str, number: int, not_before_s: float, seen_s: float) -> None:
        row = self._rows.get((table, number))
        if row is not None and row.in_sink_s == NEVER:
            row.in_sink_not_before_s, row.in_sink_s = not_before_s, seen_s

    def all(self, since_s: float = 0.0) -> list[Row]:
        """Those that were in the sink after that moment only, or are not there yet."""
        with self._lock:
            return [row for row in self._rows.values() if row.in_sink_s >= since_s]

    def not_in_sink(self) -> list[Row]:
        return [row for row in self.all() if row.in_sink_s == NEVER and not row.kept_out]

    # --- what was missing from one moment to another

    def missing_in_kafka(self, begin_s: float, end_s: float) -> Iterator[Row]:
        """Rows that were committed before and had certainly not come into Kafka when it ended."""
        for row in self.all(begin_s):
            if row.committed_s < begin_s and row.in_kafka_not_before_s > end_s and not row.kept_out:
                yield row

    def missing_in_sink(self, begin_s: float, end_s: float) -> Iterator[Row]:
        """Rows that were certainly in Kafka before, and certainly not in the sink when it ended."""
        for row in self.all(begin_s):
            if row.in_kafka_s < begin_s and row.in_sink_not_before_s > end_s:
                yield row

    def oldest_possible_s(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return since when a row may have been missing in Kafka, and in the sink, at a moment between; the end where none was."""
        to_kafka = to_sink = end_s
        for row in self.all(begin_s):
            if row.written_s < end_s:
                if row.in_kafka_s > begin_s:
                    to_kafka = min(to_kafka, row.written_s)
                to_sink = min(to_sink, row.written_s)
        return to_kafka, to_sink

    def longest_missing_s(self, begin_s: float, end_s: float) -> float:
        """Return the greatest age that a row missing in the sink had between two moments."""
        ages = [min(end_s, row.in_sink_s) - row.written_s for row in self.all(begin_s) if row.written_s < end_s and not row.kept_out]
        return max(ages, default=0.0)
