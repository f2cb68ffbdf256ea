"""The lags and counts of the last hour, as the page's process saw them: what it did not see is a gap, never a line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidemark.page.page_facts import Facts

KEPT_S: Final = 3600
_GAP_MS: Final = 15_000
"""Two samples that are further apart are not joined."""
_MOST: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look: seconds from source to Kafka and from Kafka to each sink (None: unknown).

    `merged` counts the records that each sink has merged, None where a table's count is unknown. `log_at` is the position in the
    source's log up to which all is in Kafka: file and offset.
    """

    at_ms: int
    to_kafka_s: float | None
    to_sink_s: Mapping[str, float | None]
    merged: Mapping[str, int | None]
    log_at: tuple[str, int] | None


def sample_of(facts: Facts) -> Sample:
    """Return what is kept of a look."""
    lags = facts.lags
    log = facts.first.log
    return Sample(
        at_ms=facts.read_ms,
        to_kafka_s=next(iter(lags.values())).to_kafka.seconds,
        to_sink_s={name: None if one.to_sink is None else one.to_sink.seconds for name, one in lags.items() if name},
        merged={name: _merged(facts, name) for name in lags if name},
        log_at=None if log is None else (log.file, log.pos),
    )


def _merged(facts: Facts, sink: str) -> int | None:
    counts = [table.sink_rows for table in facts.statuses[sink].tables if table.sink_rows is not None]
    return sum(counts) if counts else None


class History:
    """The samples of the last hour. One thread adds, others read."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_MOST)

    def add(self, sample: Sample) -> None:
        """Keep a sample, and forget those that are too old."""
        self._samples.append(sample)
        while self._samples[0].at_ms < sample.at_ms - KEPT_S * 1000:
            self._samples.popleft()

    def last(self, seconds: float, now_ms: int) -> tuple[Sample, ...]:
        """Return the samples of the last seconds, oldest first."""
        return tuple(one for one in tuple(self._samples) if one.at_ms >= now_ms - seconds * 1000)

    def sink_rate(self, sink: str, seconds: float, now_ms: int) -> float | None:
        """Return the records per second that a sink merged lately; None where there are not two looks."""
        first, *_, last = self._counted(seconds, now_ms, sink)
        return rate(first, last)

    def _counted(self, seconds: float, now_ms: int, sink: str) -> list[tuple[int, int] | None]:
        counts = [(one.at_ms, count) for one in self.last(seconds, now_ms) if (count := one.merged.get(sink)) is not None]
        return [counts[0], counts[-1]] if len(counts) > 1 else [None, None]

    def log_rate(self, seconds: float, now_ms: int) -> float | None:
        """Return the bytes of the source's log per second that came into Kafka lately; None where the log's file has changed."""
        found = [(one.at_ms, one.log_at) for one in self.last(seconds, now_ms) if one.log_at is not None]
        if len(found) < 2 or found[0][1][0] != found[-1][1][0]:
            return None
        return rate((found[0][0], found[0][1][1]), (found[-1][0], found[-1][1][1]))


def rate(first: tuple[int, int] | None, last: tuple[int, int] | None) -> float | None:
    """Return the growth per second between two counts, each with its time (ms); None where there are not two, or it fell."""
    if first is None or last is None or last[0] <= first[0] or last[1] < first[1]:
        return None
    return (last[1] - first[1]) * 1000 / (last[0] - first[0])


def runs(points: list[tuple[int, float | None]]) -> Iterator[list[tuple[int, float]]]:
    """Yield the stretches of points (time in ms, value) without a gap: an unknown value ends one, and so does a long silence."""
    run: list[tuple[int, float]] = []
    for at_ms, value in points:
        if run and (value is None or at_ms - run[-1][0] > _GAP_MS):
            yield run
            run = []
        if value is not None:
            run.append((at_ms, value))
    if run:
        yield run
