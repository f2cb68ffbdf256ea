"""What a merge job counts of one sink since it began, for its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.delay_histogram import DelayHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Batches that ended, their records in Kafka (markers too), the records that were merged, and how long they took together."""

    batches: int = 0
    records: int = 0
    merged: int = 0
    seconds: float = 0.0
    ended_ms: int | None = None

    @property
    def ended_s(self) -> float | None:
        """When the last batch ended, in Unix time; None before the first one."""
        return None if self.ended_ms is None else self.ended_ms / 1000

    def with_batch(self, records: int, merged: int, seconds: float, ended_ms: int) -> BatchCounts:
        """Return the counts with one more batch."""
        return BatchCounts(
            batches=self.batches + 1,
            records=self.records + records,
            merged=self.merged + merged,
            seconds=self.seconds + seconds,
            ended_ms=ended_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFigures:
    """The figures of one sink.

    `not_ready` has why no batch can run now, None where one can. `delays` are by table, from the commit at the source to that of
    the sink. `failures` counts attempts that ended with an error and were followed by another one. `quarantined` records and tables
    that are set aside are those after the last batch; None before the first one.
    """

    not_ready: str | None = None
    delays: Mapping[str, DelayHistogram] = field(default_factory=dict)
    counts: BatchCounts = field(default_factory=BatchCounts)
    failures: int = 0
    quarantined: int | None = None
    set_aside: int | None = None
