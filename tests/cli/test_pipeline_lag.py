"""How far behind, and the word for a pipeline: nothing good is said that does not follow from what is known."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from schemas.liveness import Sign
from tidemark.status.job_standing import JobState, Standing
from tidemark.status.lags import (
    BEHIND_S,
    NOTHING_LEFT,
    Lag,
    Word,
    lag_to_kafka,
    lag_to_sink,
    largest,
    verdict,
)

NOW = 1_000_000
READING = Standing(JobState.READING, "", alive=True)
CAUGHT_UP = Standing(JobState.CAUGHT_UP, "", alive=True)
WELL: dict[str, Any] = {
    "producer": READING, "merge": CAUGHT_UP, "merge_sign": Sign(at_ms=NOW), "to_kafka": NOTHING_LEFT, "to_sink": NOTHING_LEFT,
}  # fmt: skip


def test_a_log_that_is_in_kafka_to_its_end_is_no_seconds_behind_however_long_ago_that_was() -> None:
    assert lag_to_kafka(NOW, 0, 10) == lag_to_kafka(NOW, 0, None) == NOTHING_LEFT


def test_bytes_that_are_left_are_as_old_as_the_last_time_at_which_everything_was_in_kafka() -> None:
    assert lag_to_kafka(NOW, 7, NOW - 12_340) == Lag(seconds=12.3, left=7)
    assert lag_to_kafka(NOW, None, NOW - 12_340) == Lag(seconds=12.3)  # the source does not answer: it is never more
    assert lag_to_kafka(NOW, 7, NOW + 1_000) == Lag(seconds=0.1, left=7)  # clocks differ a little: something is left all the same


@pytest.mark.parametrize(
    ("lag", "reason"),
    [
        (lag_to_kafka(NOW, 7, None), "the producer has not said yet"),
        (lag_to_kafka(NOW, 7, NOW + 3_000), "3 s in the future"),
        (lag_to_sink(NOW, None, NOW, "no topics"), "no topics"),
        (lag_to_sink(NOW, 3, None, "no answer"), "no answer"),
        (lag_to_sink(NOW, 3, "it is gone", "no answer"), "it is gone"),
        (lag_to_sink(NOW, 3, NOW + 60_000, ""), "60 s in the future"),
    ],
)
def test_what_is_not_known_is_no_number(lag: Lag, reason: str) -> None:
    assert lag.seconds is None
    assert reason in lag.unknown
    assert lag.text.startswith("unknown: ")


def test_records_are_as_old_as_the_oldest_and_those_nobody_sees_are_none() -> None:
    assert lag_to_sink(NOW, 3, NOW - 2_500, "") == Lag(seconds=2.5, left=3)
    assert lag_to_sink(NOW, 0, None, "") == NOTHING_LEFT
    assert lag_to_sink(NOW, 3, 0, "") == Lag(seconds=0.0, left=3)


def test_the_lag_of_several_is_the_largest_and_unknown_where_one_is() -> None:
    lags = [("a", Lag(seconds=1.0, left=2)), ("b", Lag(seconds=3.0, left=1)), ("c", NOTHING_LEFT)]
    assert largest(lags) == Lag(seconds=3.0, left=3)
    assert largest([*lags, ("d", Lag(left=4, unknown="why"))]) == Lag(left=7, unknown="d: why")
    assert largest([*lags, ("d", Lag(unknown="why"))]) == Lag(unknown="d: why")


CASES = {
    "all is well": ({}, Word.RUNNING),
    "a lag of a batch": ({"to_sink": Lag(seconds=BEHIND_S, left=9)}, Word.RUNNING),
    "a larger lag": ({"to_sink": Lag(seconds=BEHIND_S + 0.1, left=9)}, Word.BEHIND),
    "the log is behind": ({"to_kafka": Lag(seconds=99.0)}, Word.BEHIND),
    "a start": ({"producer": Standing(JobState.STARTING, "", alive=True)}, Word.BEHIND),
    "a snapshot": ({"snapshots": ("shop.a: running",), "to_sink": Lag(seconds=99.0)}, Word.SNAPSHOTTING),
    "a lag that is not known": ({"to_kafka": Lag(unknown="why"), "snapshots": ("x",)}, Word.UNKNOWN),
    "a job that is not known": ({"merge": Standing(JobState.UNKNOWN, "why")}, Word.UNKNOWN),
    "a producer that waits": ({"producer": Standing(JobState.WAITING, "for Kafka", alive=True)}, Word.STALLED),
    "a merge job that waits": ({"merge": Standing(JobState.WAITING, "for a disk", alive=True)}, Word.STALLED),
    "a table set aside": ({"asks": ("shop.a is set aside",), "to_kafka": Lag(unknown="why")}, Word.NEEDS_A_PERSON),
    "a dead producer": ({"producer": Standing(JobState.NOT_RUNNING, "", alive=False), "asks": ("x",)}, Word.DEAD),
    "a silent merge job": ({"merge": Standing(JobState.SILENT, "", alive=False)}, Word.DEAD),
}


@pytest.mark.parametrize("name", CASES)
def test_the_word_is_the_worst_that_holds_and_says_why(name: str) -> None:
    values, word = CASES[name]
    found = verdict(NOW, **WELL | values)
    assert found.word is word
    assert bool(found.reasons) == (word is not Word.RUNNING)


def test_no_good_word_is_said_of_anything_that_is_not_known_to_be_good() -> None:
    standings = [Standing(state, "why", alive=alive) for state, alive in product(JobState, (True, False, None))]
    for producer, merge in product(standings, standings):
        found = verdict(NOW, **WELL | {"producer": producer, "merge": merge})
        if producer.alive is False or merge.alive is False:
            assert found.word is Word.DEAD
        if JobState.UNKNOWN in (producer.state, merge.state):
            assert found.word not in (Word.RUNNING, Word.BEHIND, Word.SNAPSHOTTING)


def test_a_pipeline_into_kafka_alone_is_well_without_a_merge_job() -> None:
    alone = WELL | {"merge": None, "merge_sign": None, "to_sink": None}
    assert verdict(NOW, **alone).word is Word.RUNNING
    assert verdict(NOW, **alone | {"to_kafka": Lag(seconds=99.0)}).word is Word.BEHIND


def test_a_batch_that_runs_far_longer_than_the_one_before_is_a_standstill() -> None:
    def word(since_s: float, last_s: float, merge: Standing = CAUGHT_UP) -> Word:
        batch = {"number": 5, "since_ms": NOW - since_s * 1000, "last_s": last_s}
        return verdict(NOW, **WELL | {"merge": merge, "merge_sign": Sign(at_ms=NOW, batch=batch)}).word

    assert word(119, 1) is Word.RUNNING
    assert word(121, 1) is Word.STALLED
    assert word(121, 60) is Word.RUNNING  # large batches are no standstill
    assert word(601, 60) is Word.STALLED
    assert word(601, 1, Standing(JobState.SILENT, "", alive=False)) is Word.DEAD
