"""Which tables are told next how far the log and the horizon are: heartbeat markers of the snapshot topics.

Positions enter, tables leave. A few hundred tables are all told every second. Of thousands, each of which costs a
partition of the Kafka transaction, so many are told at once, and so seldom, that it stays a small share of the time: those
that changed first, the others in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from schemas.position import Position

INTERVAL_S: Final = 1.0
LONGEST_INTERVAL_S: Final = 10.0
SHARE: Final = 20
"""Heartbeats take a twentieth of the time, unless that would make them rarer than the longest interval."""
TABLES_AT_ONCE: Final = 250

Table = tuple[str, str]  # database, name
Told = tuple[Position, Position]  # border, horizon


class TableBeats:
    """Keeps what every table was told. Owned by the log reader's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = 0.0
        self._interval_s = INTERVAL_S
        self._told: dict[Table, Told] = {}  # the one that waits longest comes first
        self._changed: set[Table] = set()
        self._are_behind = False
        self.last: Told | None = None

    def note(self, table: Table) -> None:
        """A row of that table changed."""
        self._changed.add(table)

    def is_due(self, border: Position) -> bool:
        """Whether a table waits to be told, or the horizon may still follow the border."""
        if self._clock() - self._at < self._interval_s:
            return False
        return self._are_behind or self.last is None or min(self.last) < border

    def take(self, tables: Iterable[Table], position: Position, horizon: Position) -> list[Table]:
        """Those that are to be told of this border and horizon now, none before it is time again."""
        now = self._clock()
        if now - self._at < self._interval_s or (self.last == (position, horizon) and not self._are_behind):
            return []
        self._at = now
        self.last = (position, horizon)
        known = set(tables)
        new = sorted(known - self._told.keys())
        waiting = [*new, *(table for table, told in self._told.items() if told != self.last and table in known)]
        chosen = waiting
        if len(waiting) > TABLES_AT_ONCE:
            first = set(islice((table for table in waiting if table in self._changed), TABLES_AT_ONCE // 2))
            others = (table for table in waiting if table not in first)
            chosen = [*first, *islice(others, TABLES_AT_ONCE - len(first))]
        self._are_behind = len(chosen) < len(waiting)
        self._changed.difference_update(chosen)
        for table in chosen:
            self._told.pop(table, None)
            self._told[table] = self.last
        return sorted(chosen)

    def took(self, seconds: float) -> None:
        """How long it took to tell those that `take` gave."""
        self._interval_s = min(max(SHARE * seconds, INTERVAL_S), LONGEST_INTERVAL_S)
