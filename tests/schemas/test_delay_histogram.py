from __future__ import annotations

import json
from dataclasses import replace

import pytest

from schemas.delay_histogram import BOUNDS_S, DelayHistogram
from schemas.json_codec import decode, encode


def test_a_delay_is_counted_at_the_first_bound_that_it_keeps() -> None:
    found = DelayHistogram.of([-1.0, 0.0, 0.25, 0.26, 2.0, 1800.0, 1800.1])
    kept = {bound: count for bound, count in zip((*BOUNDS_S, "more"), found.counts, strict=True) if count}
    assert kept == {0.25: 3, 0.5: 1, 2.0: 1, 1800.0: 1, "more": 1}
    assert found.count == 7
    assert found.sum_s == pytest.approx(0.25 + 0.26 + 2 + 1800 + 1800.1)


def test_a_share_of_the_rows_kept_a_bound() -> None:
    found = DelayHistogram.of([0.1] * 50 + [1.5] * 49 + [7.0])
    assert [found.at_most(share) for share in (0.0, 0.5, 0.51, 0.99, 0.991, 1.0)] == [0.25, 0.25, 2.0, 2.0, 8.0, 8.0]


def test_of_no_row_nothing_is_known_and_of_a_very_late_one_no_bound() -> None:
    assert DelayHistogram.of([]).at_most(0.5) is None
    assert DelayHistogram.of([10_000.0]).at_most(0.5) == float("inf")


def test_two_are_added_unless_their_bounds_differ() -> None:
    one, two = DelayHistogram.of([0.1, 4.0]), DelayHistogram.of([4.5])
    assert one + two == DelayHistogram.of([0.1, 4.0, 4.5])
    with pytest.raises(ValueError, match="cannot be added"):
        one + replace(two, at_most_s=(1.0,))


def test_it_is_kept_as_json_with_its_bounds() -> None:
    found = DelayHistogram.of([0.1, 4.0])
    document = json.loads(json.dumps(encode(found)))
    assert document["at_most_s"] == list(BOUNDS_S)
    assert decode(DelayHistogram, document) == found
