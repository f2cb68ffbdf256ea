from __future__ import annotations

import json

import pytest

from schemas.delay_histogram import BOUNDS_S, WINDOW_S, DelayCounter, DelayHistogram, RecentDelays
from schemas.json_codec import decode, encode

BEFORE_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 15.0, 30.0, 60.0, 300.0, 1800.0)
"""The bounds of the first version."""


def test_a_delay_is_counted_at_the_first_bound_that_it_keeps() -> None:
    found = DelayHistogram.of([-1.0, 0.0, 0.25, 0.26, 2.0, 1800.0, 1800.1])
    kept = {bound: count for bound, count in zip((*BOUNDS_S, "more"), found.counts, strict=True) if count}
    assert kept == {0.005: 2, 0.25: 1, 0.5: 1, 2.0: 1, 1800.0: 1, "more": 1}
    assert found.count == 7
    assert found.sum_s == pytest.approx(0.25 + 0.26 + 2 + 1800 + 1800.1)


def test_a_share_of_the_rows_kept_a_bound() -> None:
    found = DelayHistogram.of([0.2] * 50 + [1.5] * 49 + [7.0])
    assert [found.at_most(share) for share in (0.0, 0.5, 0.51, 0.99, 0.991, 1.0)] == [0.25, 0.25, 2.0, 2.0, 8.0, 8.0]


def test_of_no_row_nothing_is_known_and_of_a_very_late_one_no_bound() -> None:
    assert DelayHistogram.of([]).at_most(0.5) is None
    assert DelayHistogram.of([10_000.0]).at_most(0.5) == float("inf")


def test_two_are_added() -> None:
    one, two = DelayHistogram.of([0.1, 4.0]), DelayHistogram.of([4.5])
    assert one + two == DelayHistogram.of([0.1, 4.0, 4.5])


def test_one_of_an_older_version_is_added_by_the_bounds_that_both_have() -> None:
    old = DelayHistogram((2, 0, 0, 1, *[0] * 8, 3), 9.0, BEFORE_S)
    both = DelayHistogram.of([0.003, 0.2, 0.2, 1.5, 3600.0]) + old
    assert both.at_most_s == BEFORE_S
    assert both.counts == (5, 0, 0, 2, *[0] * 8, 4)
    assert both.at_most(0.5) == 2.0
    assert both == old + DelayHistogram.of([0.003, 0.2, 0.2, 1.5, 3600.0])
    assert (both + DelayHistogram((1, 2), 3.0, (7.0,))).counts == (14,), "no bound in common: their number is all that is known"


def test_counts_that_do_not_belong_to_the_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="do not belong"):
        decode(DelayHistogram, {"counts": [1, 2, 3], "at_most_s": [1.0]})
    with pytest.raises(ValueError, match="do not belong"):
        decode(DelayHistogram, {"counts": [1, 2, 3], "at_most_s": [2.0, 1.0]})


def test_it_is_kept_as_json_with_its_bounds() -> None:
    found = DelayHistogram.of([0.1, 4.0])
    document = json.loads(json.dumps(encode(found)))
    assert document["at_most_s"] == list(BOUNDS_S)
    assert decode(DelayHistogram, document) == found


def test_prometheus_gets_cumulative_counts() -> None:
    found = DelayHistogram.of([0.1, 4.0, 9_999.0]).cumulative
    assert found[0] == ("0.005", 0)
    assert dict(found)["0.1"] == 1
    assert found[-2:] == (("1800.0", 2), ("+Inf", 3))


def test_the_recent_past_forgets_and_the_total_does_not() -> None:
    counter = DelayCounter()
    counter.add(DelayHistogram.of([20.0]), 1_000_000.0)
    for second in range(0, 600, 10):
        counter.add(DelayHistogram.of([0.04]), 1_000_000.0 + second)
    assert counter.total.count == 61
    assert counter.total.at_most(1.0) == 30.0
    recent = counter.recent
    assert recent.histogram.at_most(1.0) == 0.05
    assert WINDOW_S - 30 <= recent.histogram.count * 10 <= WINDOW_S
    assert (recent.newest_ms, recent.window_s) == (1_000_590_000, 300.0)


def test_a_clock_that_is_set_back_leaves_only_what_is_counted_by_it() -> None:
    counter = DelayCounter()
    counter.add(DelayHistogram.of([20.0]), 1_000_000.0)
    counter.add(DelayHistogram.of([0.04]), 990_000.0)
    assert counter.recent.histogram == DelayHistogram.of([0.04])
    assert counter.total.count == 2


def test_no_delay_changes_nothing() -> None:
    counter = DelayCounter()
    counter.add(DelayHistogram.of([0.04]), 1_000_000.0)
    counter.add(DelayHistogram.of([]), 2_000_000.0)
    assert counter.recent.newest_ms == 1_000_000_000


def test_the_recent_past_is_kept_as_json() -> None:
    counter = DelayCounter()
    counter.add(DelayHistogram.of([0.04]), 1_000_000.0, in_seconds=True)
    document = json.loads(json.dumps(encode(counter.recent)))
    assert document["v"] == 1
    assert decode(RecentDelays, document) == counter.recent
    assert counter.recent.in_seconds
