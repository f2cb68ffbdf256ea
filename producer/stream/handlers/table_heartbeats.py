"""The heartbeat schedule of tables: which snapshot topics get the log's position and the horizon next.

Positions enter, tables leave. A few hundred tables all get a heartbeat marker every second. Of thousands, each of which
costs a partition of the Kafka transaction, so many get one at once, and so seldom, that it stays a small share of the
time: those that changed first, the others in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from schemas.identity import TableId
from schemas.position import Position

INTERVAL_S: Final = 1.0
LONGEST_INTERVAL_S: Final = 10.0
SHARE: Final = 20
"""Heartbeats take a twentieth of the time, unless that would make them rarer than the longest interval."""
TABLES_AT_ONCE: Final = 250

Sent = tuple[Position, Position]  # boundary, horizon


class HeartbeatSchedule:
    """The last heartbeat of every table, and whose turn is next. Owned by the log reader's thread.

    `changed` are the tables with rows since their last heartbeat: who publishes a row adds its table.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = 0.0
        self._interval_s = INTERVAL_S
        self._sent: dict[TableId, Sent] = {}  # the one that waits longest comes first
        self._are_behind = False
        self.changed: set[TableId] = set()
        self.last: Sent | None = None

    def is_due(self, boundary: Callable[[], Position]) -> bool:
        """Return whether a table waits for a heartbeat, or the horizon may still follow the boundary."""
        if self._clock() - self._at < self._interval_s:
            return False
        return self._are_behind or self.last is None or min(self.last) < boundary()

    def choose(self, tables: Iterable[TableId], boundary: Position, horizon: Position) -> list[TableId]:
        """Return the tables that get this boundary and horizon now; none before the interval is over."""
        now = self._clock()
        if now - self._at < self._interval_s or (self.last == (boundary, horizon) and not self._are_behind):
            return []
        self._at = now
        self.last = (boundary, horizon)
        known = set(tables)
        new = sorted(known - self._sent.keys())
        waiting = [*new, *(table for table, sent in self._sent.items() if sent != self.last and table in known)]
        chosen = waiting
        if len(waiting) > TABLES_AT_ONCE:
            first = set(islice((table for table in waiting if table in self.changed), TABLES_AT_ONCE // 2))
            others = (table for table in waiting if table not in first)
            chosen = [*first, *islice(others, TABLES_AT_ONCE - len(first))]
        self._are_behind = len(chosen) < len(waiting)
        self.changed.difference_update(chosen)
        for table in chosen:
            self._sent.pop(table, None)
            self._sent[table] = self.last
        return sorted(chosen)

    def note_duration(self, seconds: float) -> None:
        """Note how long the heartbeats took that `choose` returned: the next interval follows from it."""
        self._interval_s = min(max(SHARE * seconds, INTERVAL_S), LONGEST_INTERVAL_S)
