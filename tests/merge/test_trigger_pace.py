"""A change after a quiet time does not wait for `spark.trigger_s`; batches under load are that far apart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.jobs import trigger_pace
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.trigger_pace import LOOK_MS, MOST_BATCHES, TriggerPace, pace_of
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, topics_of, wait_for

HOUR_S = 3_600


def has(items: Sized, count: int) -> bool:
    return len(items) == count


class Interval:
    """An interval that notes what it is set to; a look takes `took_ms`."""

    def __init__(self, took_ms: int = 0) -> None:
        self.set_to: list[int] = []
        self.took_ms = took_ms

    def set_ms(self, interval_ms: int) -> None:
        self.set_to.append(interval_ms)

    def look_ms(self) -> int:
        return self.took_ms


class Steady:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def paced(interval: Interval, trigger_s: int = 2) -> tuple[TriggerPace, Steady, Callable[[], None]]:
    clock = Steady()
    pace = TriggerPace(trigger_s, lambda _: interval, clock)
    return pace, clock, lambda: pace.look(None)  # type: ignore[arg-type]


def run_batch(pace: TriggerPace, clock: Steady, seconds: float) -> None:
    with pace.batch():
        clock.now_s += seconds


def test_batches_that_come_as_often_as_they_may_are_an_interval_apart_until_there_is_none() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    for _ in range(MOST_BATCHES):
        assert interval.set_to == [LOOK_MS]
        run_batch(pace, clock, 1)
    assert interval.set_to == [LOOK_MS, 2_000]
    for seconds in (1, 3, 0.5, 20, 1.5):
        run_batch(pace, clock, seconds)
        clock.now_s += 2
        look()
    assert interval.set_to == [LOOK_MS, 2_000]
    clock.now_s += 1
    look()
    assert interval.set_to == [LOOK_MS, 2_000, LOOK_MS]


def test_a_batch_that_runs_for_long_is_no_quiet_time() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    for _ in range(MOST_BATCHES):
        run_batch(pace, clock, 1)
    with pace.batch():
        clock.now_s += 60
        look()
    assert interval.set_to == [LOOK_MS, 2_000]


def test_batches_that_take_longer_than_the_interval_need_none() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    for _ in range(20):
        run_batch(pace, clock, 3)
    assert interval.set_to == [LOOK_MS]


def test_what_began_before_the_query_is_known_counts() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    for _ in range(MOST_BATCHES):
        run_batch(pace, clock, 0.1)
    look()
    assert interval.set_to == [2_000]


@pytest.mark.parametrize(("took_ms", "expected_ms"), [(4, LOOK_MS), (40, 1_000), (800, 2_000)])
def test_looks_that_take_long_are_made_less_often(took_ms: int, expected_ms: int) -> None:
    interval = Interval(took_ms)
    paced(interval)[2]()
    assert interval.set_to == [expected_ms]


def test_a_query_without_an_interval_has_nothing_to_change(spark: SparkSession) -> None:
    assert pace_of(spark, 0) == ("0 seconds", None)


def test_a_spark_without_the_fields_keeps_the_interval(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger_pace, "_OF_EXECUTOR", "anotherName")
    assert pace_of(spark, 2) == ("2 seconds", None)


def test_a_change_after_a_quiet_time_does_not_wait_for_an_hour(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = merge_settings(trigger_s=HOUR_S)
    topics = topics_of(settings, ORDERS)
    set_to: list[int] = []
    real = trigger_pace._JavaInterval.set_ms

    def noted(interval: Any, interval_ms: int) -> None:
        real(interval, interval_ms)
        set_to.append(int(interval._field.getLong(interval._executor)))

    monkeypatch.setattr(trigger_pace._JavaInterval, "set_ms", noted)
    done: list[int] = []
    job = MergeJob(settings, spark=spark, on_step=lambda step, batch: done.append(batch) if step == "published" else None)
    running = threading.Thread(target=job.run, kwargs={"until_caught_up": False})
    running.start()
    try:
        for number in range(1, MOST_BATCHES + 1):
            topics.change("c", {"id": str(number), "amount": number}, at(100 * number, 1).text)
            flush(topics)
            wait_for(partial(has, done, number))
            assert amounts(settings) == {str(one): one for one in range(1, number + 1)}
        assert set_to == [LOOK_MS, HOUR_S * 1_000]
    finally:
        job.stop()
        running.join(120)
    assert not running.is_alive()
