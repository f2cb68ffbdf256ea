"""When old files are removed: one target at a time, beside batches, at most once in so many hours, whatever goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from schemas.identity import Target
from schemas.overriding import override
from spark_jobs.merge.old_file_turns import OldFiles
from spark_jobs.sinks.contract import OldFilesSink
from spark_jobs.sinks.memory_sink import MemorySink, MemoryStorage
from spark_jobs.store.files import LocalFiles
from tests.support.area_logs import of_area

NO_SPARK = cast("SparkSession", None)
HOUR_S = 3600.0
TARGETS = tuple(Target("lake", f"shop.t{number}") for number in range(3))


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


class SinkOfOldFiles(MemorySink, OldFilesSink):
    """A sink that notes for which target it was asked, and then does what it is given to do."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(MemoryStorage(), lambda: "q")
        self.asked: list[Target] = []
        self._then = then

    @override
    def remove_old_files(self, spark: SparkSession, name: Target) -> bool:
        self.asked.append(name)
        self._then()
        return True


class Scene:
    """A job over a sink; `starts_again` is the next one, over the same folder."""

    def __init__(self, folder: Path, sink: MemorySink, hours: float = 24) -> None:
        self.clock, self.sink, self.folder, self.hours = Clock(), sink, folder, hours
        self.starts_again()

    def starts_again(self) -> None:
        self.turns = OldFiles(self.sink, LocalFiles(self.folder), self.hours, self.clock)

    def batches(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.now += 1
            self.turns.offer(NO_SPARK, TARGETS)
            if self.turns._thread is not None:
                self.turns._thread.join(30)

    def pass_hours(self, hours: float) -> None:
        self.clock.now += hours * HOUR_S


def test_each_target_has_its_turn_after_the_given_hours_and_at_most_once_in_them(tmp_path: Path) -> None:
    sink = SinkOfOldFiles()
    scene = Scene(tmp_path, sink)
    scene.batches(5)
    scene.pass_hours(23.9)
    scene.batches(5)
    assert not sink.asked, "a lake that is new, or whose job is, has its first turn later"
    scene.pass_hours(0.2)
    scene.batches(5)
    assert sink.asked == list(TARGETS)
    scene.pass_hours(23.9)
    scene.batches(5)
    assert sink.asked == list(TARGETS)
    scene.pass_hours(0.2)
    scene.batches(5)
    assert sink.asked == [*TARGETS, *TARGETS]


def test_a_job_that_is_started_from_time_to_time_has_the_turns_of_the_one_before(tmp_path: Path) -> None:
    sink = SinkOfOldFiles()
    scene = Scene(tmp_path, sink)
    for _ in range(5):
        scene.batches()
        scene.pass_hours(8)
        scene.starts_again()
    assert sink.asked == list(TARGETS[:2]), "one batch, one target"
    scene.turns.finish(NO_SPARK, TARGETS, lambda: False)
    assert sink.asked == list(TARGETS), "before it ends a short job does what is left"
    (tmp_path / "old_files.json").write_text("[", encoding="utf-8")
    scene.starts_again()
    scene.batches()
    assert len(sink.asked) == 3, "a document that cannot be read counts as none"


def test_what_is_due_at_the_end_is_left_after_a_minute_and_where_the_job_is_to_stop(tmp_path: Path) -> None:
    sink = SinkOfOldFiles(lambda: scene.pass_hours(1))
    scene = Scene(tmp_path, sink)
    scene.batches()
    scene.pass_hours(25)
    scene.turns.finish(NO_SPARK, TARGETS, lambda: True)
    assert not sink.asked
    scene.turns.finish(NO_SPARK, TARGETS, lambda: False)
    assert sink.asked == [TARGETS[0]]


def test_a_batch_waits_for_no_removal_and_there_is_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Semaphore(0), threading.Event()
    sink = SinkOfOldFiles(lambda: (began.release(), may_end.wait(30)))
    scene = Scene(tmp_path, sink)
    monkeypatch.setattr("time.monotonic", lambda: scene.clock.now)  # a machine that stands still makes no removal long
    scene.batches()
    scene.pass_hours(25)
    for _ in range(4):
        scene.turns.offer(NO_SPARK, TARGETS)
    assert began.acquire(timeout=30)
    assert sink.asked == [TARGETS[0]]
    may_end.set()
    thread = scene.turns._thread
    assert thread is not None
    thread.join(30)
    scene.batches()
    assert sink.asked == list(TARGETS[:2])


def test_after_a_long_removal_there_is_none_for_ten_times_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, SinkOfOldFiles(lambda: scene.pass_hours(0.1)))
    monkeypatch.setattr("time.monotonic", lambda: scene.clock.now)
    scene.batches()
    scene.pass_hours(25)
    scene.turns._remove(NO_SPARK, TARGETS[0])
    scene.pass_hours(0.99)
    scene.turns.offer(NO_SPARK, TARGETS)
    assert scene.turns._thread is None
    scene.pass_hours(0.02)
    scene.turns.offer(NO_SPARK, TARGETS)
    assert scene.turns._thread is not None


def test_a_removal_that_fails_is_logged_and_the_others_have_their_turn(tmp_path: Path) -> None:
    def fails() -> None:
        message = "no space left on device"
        raise OSError(message)

    scene = Scene(tmp_path, SinkOfOldFiles(fails))
    scene.batches()
    scene.pass_hours(25)
    with capture_logs() as logged:
        scene.batches(5)
    assert [(one["event"], one["table"], one["reason"]) for one in of_area(logged, "merge")] == [
        ("merge.old_files_left", target.name, "no space left on device") for target in TARGETS
    ]


def test_nothing_is_removed_where_it_is_switched_off_or_a_sink_leaves_nothing_or_a_job_ends(tmp_path: Path) -> None:
    off, ends = SinkOfOldFiles(), SinkOfOldFiles()
    scenes = [
        Scene(tmp_path / "a", off, 0),
        Scene(tmp_path / "b", MemorySink(MemoryStorage(), lambda: "q")),
        Scene(tmp_path / "c", ends),
    ]
    for scene in scenes:
        scene.batches()
        scene.pass_hours(100)
        scene.turns.close()
        scene.batches()
    assert not off.asked
    assert not ends.asked
    assert not (tmp_path / "a").exists()
