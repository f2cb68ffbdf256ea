"""How long changes are on their way into Kafka, and what of them is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from producer.stream.commit_delays import SAMPLES, CommitDelays
from producer.stream.run_publication import _times
from rowcodec.run_items import I_TABLE, I_TS_US

NOW_US = 1_764_000_000_123_456
ORDERS, QUIET = ("shop", "orders"), ("shop", "quiet")


def test_a_delay_ends_with_the_commit_in_kafka() -> None:
    delays = CommitDelays()
    delays.note(ORDERS, NOW_US - 40_000)
    assert not delays.tables
    delays.committed(NOW_US)
    delays.committed(NOW_US + 60_000_000)
    assert list(delays.tables) == [ORDERS]
    found = delays.tables[ORDERS]
    assert (found.total.count, found.total.at_most(0.5)) == (1, 0.05)
    assert found.recent.newest_ms == NOW_US // 1000
    assert not found.in_seconds


def test_what_was_aborted_is_not_counted() -> None:
    delays = CommitDelays()
    delays.note(ORDERS, NOW_US)
    delays.aborted()
    delays.committed(NOW_US)
    assert not delays.tables


def test_of_many_changes_some_at_equal_distances_are_counted() -> None:
    delays = CommitDelays()
    for number in range(10_000):
        delays.note(ORDERS, NOW_US - (10_000 - number) * 100)  # a second, evenly
        if number % 5_000 == 0:
            delays.note(QUIET, NOW_US - 4_000)
    delays.committed(NOW_US)
    orders = delays.tables[ORDERS].total
    assert SAMPLES // 2 <= orders.count <= SAMPLES
    assert (orders.at_most(0.01), orders.at_most(0.5), orders.at_most(1.0)) == (0.25, 1.0, 1.0)
    assert delays.tables[QUIET].total.count == 2


def test_a_log_with_whole_seconds_says_so_until_it_has_better_times() -> None:
    delays = CommitDelays()
    second = NOW_US // 1_000_000 * 1_000_000
    delays.note(ORDERS, second)
    delays.note(QUIET, 0)  # unknown to the server that wrote it
    delays.committed(NOW_US)
    assert delays.tables[ORDERS].in_seconds
    assert QUIET not in delays.tables
    delays.note(ORDERS, second + 1)
    delays.committed(NOW_US)
    assert not delays.tables[ORDERS].recent.in_seconds


def test_a_run_gives_the_times_of_the_first_and_the_last_event_of_each_table() -> None:
    items = np.zeros((6, max(I_TABLE, I_TS_US) + 1), np.int64)
    items[:, I_TABLE] = (0, 2, 1, 0, 3, 2)
    items[:, I_TS_US] = (10, 20, 30, 40, 50, 60)
    run: Any = SimpleNamespace(items=items)
    groups = np.array([0, -1, 1, 0], np.int64)  # table 1 is not encoded, 0 and 3 are versions of one table
    first, last = _times(run, groups, 2)
    assert (first[:2], last[:2]) == ([10, 20], [50, 60])
