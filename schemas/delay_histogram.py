"""How long rows were on their way: a histogram with fixed bounds, which can be added to and kept as JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

from schemas.json_codec import json_field

BOUNDS_S: Final = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 15.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds in seconds. What took longer than the last one is counted behind it."""


@dataclass(frozen=True, slots=True)
class DelayHistogram:
    """Numbers of rows by delay. `counts` has one number for each of `at_most_s`, and one for what took longer than all of them."""

    counts: tuple[int, ...] = json_field(required=True)
    sum_s: float = 0.0
    at_most_s: tuple[float, ...] = BOUNDS_S

    @classmethod
    def of(cls, delays_s: Iterable[float]) -> DelayHistogram:
        """Return the histogram of some delays in seconds. A negative one, by two clocks that differ, counts as none."""
        counts, total = [0] * (len(BOUNDS_S) + 1), 0.0
        for delay in delays_s:
            counts[bisect_left(BOUNDS_S, delay)] += 1
            total += max(0.0, delay)
        return cls(tuple(counts), total)

    def __add__(self, other: DelayHistogram) -> DelayHistogram:
        """Return both together. Raises `ValueError` for a histogram with other bounds."""
        if self.at_most_s != other.at_most_s:
            message = f"histograms with the bounds {self.at_most_s} and {other.at_most_s} cannot be added"
            raise ValueError(message)
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return DelayHistogram(counts, self.sum_s + other.sum_s, self.at_most_s)

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(self.counts)

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
