"""How long rows were on their way: histograms with fixed bounds, of all time and of the recent past, which are kept as JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil
from typing import ClassVar, Final

from schemas.json_codec import Form, json_field

BOUNDS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.0, 3.0, 5.0, 8.0, 15.0, 30.0, 60.0, 300.0, 1800.0),
)
"""Upper bounds in seconds. What took longer than the last one is counted behind it."""
WINDOW_S: Final = 300.0
"""The recent past."""
_SLOT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class DelayHistogram:
    """Numbers of rows by delay. `counts` has one number for each of `at_most_s`, and one for what took longer than all of them."""

    counts: tuple[int, ...] = json_field(required=True)
    sum_s: float = 0.0
    at_most_s: tuple[float, ...] = BOUNDS_S

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers that do not belong to the bounds."""
        if len(self.counts) != len(self.at_most_s) + 1 or list(self.at_most_s) != sorted(set(self.at_most_s)):
            message = f"{len(self.counts)} counts do not belong to the bounds {self.at_most_s}"
            raise ValueError(message)

    @classmethod
    def of(cls, delays_s: Iterable[float]) -> DelayHistogram:
        """Return the histogram of some delays in seconds. A negative one, by two clocks that differ, counts as none."""
        counts, total = [0] * (len(BOUNDS_S) + 1), 0.0
        for delay in delays_s:
            counts[bisect_left(BOUNDS_S, delay)] += 1
            total += max(0.0, delay)
        return cls(tuple(counts), total)

    def __add__(self, other: DelayHistogram) -> DelayHistogram:
        """Return both together, by the bounds that both have: an older version may have had others."""
        if self.at_most_s == other.at_most_s:
            counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
            return DelayHistogram(counts, self.sum_s + other.sum_s, self.at_most_s)
        common = tuple(bound for bound in self.at_most_s if bound in other.at_most_s)
        return self._by(common) + other._by(common)

    def _by(self, bounds: tuple[float, ...]) -> DelayHistogram:
        """Return the same by some of its bounds: what kept a bound that is left out kept the next one, too."""
        up_to = dict(zip(self.at_most_s, accumulate(self.counts), strict=False))
        cumulated = [0, *(up_to[bound] for bound in bounds), self.count]
        counts = tuple(after - before for before, after in pairwise(cumulated))
        return DelayHistogram(counts, self.sum_s, bounds)

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(self.counts)

    @property
    def cumulative(self) -> tuple[tuple[str, int], ...]:
        """How many rows kept each bound, as Prometheus has it; the last bound is `+Inf`."""
        names = (*(str(bound) for bound in self.at_most_s), "+Inf")
        return tuple(zip(names, accumulate(self.counts), strict=True))

    def at_most(self, share: float) -> float | None:
        """Return the bound in seconds that this share (0 to 1) of the rows kept; None without rows, infinity above all bounds."""
        if not self.count:
            return None
        needed, seen = max(1, ceil(share * self.count)), 0
        for count, bound in zip(self.counts, (*self.at_most_s, float("inf")), strict=True):
            seen += count
            if seen >= needed:
                return bound
        raise AssertionError("the counts are fewer than their sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentDelays:
    """The delays of the last `window_s` seconds before `newest_ms`, when the newest of them was counted, by the clock of the job.

    `in_seconds`: the source's log has whole seconds, so that each delay may be up to a second too long. The producer keeps one as a
    document of the state topic for each table, the merge job in its progress.
    """

    JSON: ClassVar = Form(head=lambda _: {"v": 1})
    PREFIX: ClassVar = "delays/"

    histogram: DelayHistogram
    newest_ms: int
    window_s: float = json_field(WINDOW_S, required=True)
    in_seconds: bool = False


class DelayCounter:
    """The delays of one table since the start of a job, and those of the recent past. One thread adds, others may read."""

    __slots__ = ("_counts", "_slots", "_sum_s", "in_seconds", "newest_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        self._slots: list[tuple[int, DelayHistogram]] = []
        self.newest_s = 0.0
        self.in_seconds = True

    def add(self, delays: DelayHistogram, now_s: float, *, in_seconds: bool = False) -> None:
        """Count what a batch or a checkpoint brought, at `now_s` in Unix time. `in_seconds`: the commits have whole seconds."""
        if not delays.count:
            return
        for index, count in enumerate(delays.counts):
            self._counts[index] += count
        self._sum_s += delays.sum_s
        slot, slots = int(now_s // _SLOT_S), self._slots
        if slots and slots[-1][0] == slot:
            slots[-1] = slot, slots[-1][1] + delays
        else:
            oldest = slot - int(WINDOW_S // _SLOT_S)
            self._slots = [*(one for one in slots if oldest < one[0] < slot), (slot, delays)]
        self.newest_s = now_s
        self.in_seconds = self.in_seconds and in_seconds

    @property
    def total(self) -> DelayHistogram:
        """All delays since the start."""
        return DelayHistogram(tuple(self._counts), self._sum_s)

    @property
    def recent(self) -> RecentDelays:
        """Those of the last minutes before the newest one; at least one was counted."""
        slots = list(self._slots)
        oldest = slots[-1][0] - int(WINDOW_S // _SLOT_S)
        first, *others = (delays for slot, delays in slots if slot > oldest)
        newest_ms = int(self.newest_s * 1000)
        return RecentDelays(histogram=sum(others, first), newest_ms=newest_ms, in_seconds=self.in_seconds)
