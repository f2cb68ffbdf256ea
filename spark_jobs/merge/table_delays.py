"""How long changes were on their way from the commit at the source to the commit of the target, per table and with each writer."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemas.delay_histogram import DelayCounter, DelayHistogram
from schemas.identity import SourceTable


class TableDelays:
    """The delays of some of the changes of each table since the job began. A table is noted by one thread at a time."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._tables: dict[SourceTable, DelayCounter] = {}

    def note(self, table: SourceTable, delays: DelayHistogram | None) -> None:
        """Add those of a batch that is committed."""
        if delays is not None and delays.count:
            self._tables.setdefault(table, DelayCounter()).add(delays, self._now_s())

    @property
    def tables(self) -> dict[SourceTable, DelayCounter]:
        """The tables of which some delay is known."""
        return self._tables.copy()
