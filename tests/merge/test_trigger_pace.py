"""A change after a quiet time does not wait for `spark.trigger_s`; batches under load are that far apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from schemas.waiting import WAITS
from spark_jobs.jobs import trigger_pace
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.trigger_pace import LOOK_MS, MOST_BATCHES, TriggerPace
from tests.merge.conftest import SinkFactory
from tests.merge.lake import ORDERS, amounts, at, flush, topics_of, wait_for

SLOW_MS = 2_000
SIX_S = 6


class Interval:
    """An interval that notes what it is set to; a look takes `took_ms`."""

    def __init__(self, took_ms: int | None = 4) -> None:
        self.set_to: list[int] = []
        self.took_ms = took_ms

    def set_ms(self, interval_ms: int) -> None:
        self.set_to.append(interval_ms)

    def look_ms(self) -> int | None:
        return self.took_ms


class SetClock:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def paced(interval: Interval) -> tuple[TriggerPace, SetClock, Callable[[], None]]:
    clock = SetClock()
    pace = TriggerPace(SLOW_MS // 1_000, lambda _: interval, clock)
    return pace, clock, lambda: pace.look(object())  # type: ignore[arg-type]


def run_batch(pace: TriggerPace, clock: SetClock, seconds: float) -> None:
    with pace.batch():
        clock.now_s += seconds


def test_batches_that_come_as_often_as_they_may_are_an_interval_apart_until_there_is_none() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    for _ in range(MOST_BATCHES):
        assert interval.set_to == [LOOK_MS]
        run_batch(pace, clock, 1)
    assert interval.set_to == [LOOK_MS, SLOW_MS]
    for seconds in (1, 3, 0.5, 20, 1.5):
        run_batch(pace, clock, seconds)
        clock.now_s += 2
        look()
    assert interval.set_to == [LOOK_MS, SLOW_MS]
    clock.now_s += 1
    look()
    assert interval.set_to == [LOOK_MS, SLOW_MS, LOOK_MS]


def test_a_batch_that_runs_for_long_is_no_quiet_time() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    for _ in range(MOST_BATCHES):
        run_batch(pace, clock, 1)
    with pace.batch():
        clock.now_s += 60
        look()
    assert interval.set_to == [LOOK_MS, SLOW_MS]


def test_batches_that_take_longer_than_the_interval_need_none() -> None:
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    for _ in range(20):
        run_batch(pace, clock, 3)
    assert interval.set_to == [LOOK_MS]


@pytest.mark.parametrize(("took_ms", "expected"), [(4, [LOOK_MS]), (100, [1_000]), (800, []), (None, [])])
def test_looks_that_take_long_are_made_less_often(took_ms: int | None, expected: list[int]) -> None:
    interval = Interval(took_ms)
    paced(interval)[2]()
    assert interval.set_to == expected


def test_the_interval_becomes_larger_in_a_batch_only_and_smaller_at_a_look() -> None:
    """Spark reads it several times for one time: larger between two of them, that time would be years ahead."""
    interval = Interval()
    pace, clock, look = paced(interval)
    look()
    interval.took_ms = 100
    look()
    assert interval.set_to == [LOOK_MS]
    run_batch(pace, clock, 1)
    assert interval.set_to == [LOOK_MS, 1_000]
    interval.took_ms = 4
    run_batch(pace, clock, 1)
    assert interval.set_to == [LOOK_MS, 1_000]
    look()
    assert interval.set_to == [LOOK_MS, 1_000, LOOK_MS]


def test_an_error_leaves_the_interval_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    interval = Interval()
    pace, clock, look = paced(interval)

    def refused() -> int:
        message = "a final field"
        raise Py4JError(message)

    interval.look_ms = refused  # type: ignore[method-assign]
    look()
    interval.look_ms = lambda: 4  # type: ignore[method-assign]
    look()
    run_batch(pace, clock, 1)
    assert interval.set_to == []
    assert capsys.readouterr().out.count("merge.trigger_kept") == 1


def test_a_query_that_has_ended_is_left_alone() -> None:
    interval = Interval()
    pace, _, look = paced(interval)
    pace.close()
    look()
    assert interval.set_to == []


def test_a_change_does_not_wait_after_a_quiet_time_and_does_under_load(
    spark: SparkSession, merge_settings: SinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = merge_settings(trigger_s=SIX_S)
    topics = topics_of(settings, ORDERS)
    done: list[float] = []

    def step(name: str, _: Any) -> None:
        if name == "published":
            done.append(time.monotonic())

    def change_seconds(number: int) -> float:
        """Return the seconds until a change is merged."""
        began, before = time.monotonic(), len(done)
        topics.change("c", {"id": str(number), "amount": number}, at(100 * number, 1).text)
        flush(topics)
        wait_for(lambda: len(done) > before)
        return time.monotonic() - began

    job = MergeJob(settings, spark=spark, on_step=step)
    monkeypatch.setattr(trigger_pace, "_LOOKS_SHARE", 1)  # the interval is that of a machine that looks quickly
    running = threading.Thread(target=job.run, kwargs={"until_caught_up": False})
    running.start()
    try:
        for number in range(1, 3):
            change_seconds(number)
        quick_s = [change_seconds(number) for number in range(3, 6)]
        for number in range(6, 6 + MOST_BATCHES):
            change_seconds(number)
        slow_s = [change_seconds(number) for number in range(6 + MOST_BATCHES, 8 + MOST_BATCHES)]
    finally:
        job.stop()
        running.join(120)
    assert not running.is_alive()
    assert len(amounts(settings)) == 7 + MOST_BATCHES
    assert not [one for one in WAITS.current().values() if one.address == settings.kafka.bootstrap_servers]
    assert sum(quick_s) < 2 * SIX_S, quick_s  # three multiples of the interval are more
    assert sum(slow_s) > SIX_S, slow_s
