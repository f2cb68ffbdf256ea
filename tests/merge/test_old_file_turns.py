"""When old files are removed: one target at a time, beside batches, once in so many hours, whatever goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from schemas.identity import Target
from schemas.overriding import override
from spark_jobs.merge.old_file_turns import OldFiles
from spark_jobs.sinks.contract import Capabilities
from spark_jobs.sinks.memory_sink import MemorySink, MemoryStorage
from tests.support.area_logs import of_area

NO_SPARK = cast("SparkSession", None)
HOUR_S = 3600.0
TARGETS = tuple(Target("lake", f"shop.t{number}") for number in range(3))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SinkOfOldFiles(MemorySink):
    """A sink that notes for which target it was asked, and then does what it is given to do."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        super().__init__(MemoryStorage(), lambda: "q")
        self.asked: list[Target] = []
        self._then = then

    @property
    @override
    def can(self) -> Capabilities:
        return replace(super().can, leaves_old_files=True)

    @override
    def remove_old_files(self, spark: SparkSession, name: Target) -> None:
        self.asked.append(name)
        self._then()


def offered(turns: OldFiles, times: int = 1) -> None:
    for _ in range(times):
        turns.offer(NO_SPARK, TARGETS)
        turns.close()


def test_each_target_has_its_turn_ten_minutes_after_the_start_and_then_once_in_the_given_hours() -> None:
    clock, sink = Clock(), SinkOfOldFiles()
    turns = OldFiles(sink, 24, clock)
    offered(turns, 5)
    assert not sink.asked, "a job that starts again and again would do nothing else"
    clock.now = 601
    offered(turns, 5)
    assert sink.asked == list(TARGETS)
    clock.now = 24 * HOUR_S
    offered(turns, 5)
    assert sink.asked == list(TARGETS)
    clock.now += 602
    offered(turns, 5)
    assert sink.asked == [*TARGETS, *TARGETS]


def test_a_batch_waits_for_no_removal_and_there_is_one_at_a_time() -> None:
    clock, may_end = Clock(), threading.Event()
    sink = SinkOfOldFiles(lambda: cast("None", may_end.wait(30)))
    turns = OldFiles(sink, 24, clock)
    clock.now = 601
    for _ in range(4):
        turns.offer(NO_SPARK, TARGETS)
    assert sink.asked == [TARGETS[0]]
    may_end.set()
    turns.close()
    turns.offer(NO_SPARK, TARGETS)
    turns.close()
    assert sink.asked == list(TARGETS[:2])


def test_after_a_long_removal_there_is_none_for_ten_times_as_long() -> None:
    clock = Clock()

    def takes_a_minute() -> None:
        clock.now += 60

    sink = SinkOfOldFiles(takes_a_minute)
    turns = OldFiles(sink, 24, clock)
    clock.now = 601
    offered(turns, 3)
    clock.now += 599
    offered(turns)
    assert len(sink.asked) == 1
    clock.now += 1
    offered(turns)
    assert len(sink.asked) == 2


def test_a_removal_that_fails_is_logged_and_the_others_have_their_turn() -> None:
    def fails() -> None:
        message = "no space left on device"
        raise OSError(message)

    clock = Clock()
    with capture_logs() as logged:
        turns = OldFiles(SinkOfOldFiles(fails), 24, clock)
        clock.now = 601
        offered(turns, 5)
    assert [(one["event"], one["table"], one["reason"]) for one in of_area(logged, "merge")] == [
        ("merge.old_files_left", target.name, "no space left on device") for target in TARGETS
    ]


def test_nothing_is_removed_where_it_is_switched_off_or_a_sink_leaves_nothing() -> None:
    clock, off = Clock(), SinkOfOldFiles()
    for turns in (OldFiles(off, 0, clock), OldFiles(MemorySink(MemoryStorage(), lambda: "q"), 24, clock)):
        clock.now += 100 * HOUR_S
        offered(turns)
    assert not off.asked
