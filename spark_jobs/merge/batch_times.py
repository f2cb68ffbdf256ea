"""Times of batches: of each stage of a batch, and of changes on their way from the source to the commit of the target."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from schemas.batch_stages import KEPT, STAGES, BatchStages
from schemas.delay_histogram import DelayCounter, DelayHistogram
from schemas.identity import SourceTable

_DIGITS: Final = 3


class StageClock:
    """Notes the seconds between the ends of stages, for one batch at a time, and keeps the newest batches."""

    def __init__(self) -> None:
        self._at = 0.0
        self._seconds: dict[str, float] = {}
        self._ended: deque[BatchStages] = deque(maxlen=KEPT)

    @property
    def recent(self) -> tuple[BatchStages, ...]:
        """The batches that ended last, oldest first."""
        return tuple(self._ended)

    def begin(self) -> None:
        """Begin with a batch."""
        self._at, self._seconds = time.monotonic(), dict.fromkeys(STAGES, 0.0)

    def passed(self, stage: str) -> None:
        """Note that this stage (one of `STAGES`) is over, and that the next one begins."""
        now = time.monotonic()
        self._seconds[stage] += now - self._at
        self._at = now

    def end(self, number: int, records: int, ended_ms: int) -> None:
        """Keep the batch."""
        seconds = {stage: round(value, _DIGITS) for stage, value in self._seconds.items()}
        self._ended.append(BatchStages(number=number, ended_ms=ended_ms, records=records, **seconds))


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
