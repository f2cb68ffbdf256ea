"""A job without Spark: a plain loop has the retries, the stop and the status of the merge job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from schemas.errors import RetriableSinkError, SinkError
from schemas.waiting import Waits
from spark_jobs.jobs import runner as module
from spark_jobs.jobs.runner import LONGEST_PAUSE_S, Attempt, Runner

IDLE = "the loop is starting"


class Loop(Attempt):
    """Rounds until one says that nothing is left."""

    def __init__(self, stop: threading.Event, one_round: Callable[[], bool]) -> None:
        super().__init__(IDLE, stop)
        self._one_round = one_round

    def run(self) -> None:
        self._is_ready = True
        try:
            while not self._stop.is_set() and self._one_round():
                self.note_success()
        finally:
            self._is_ready = False


class Scene:
    """A runner, the pauses that it made, and what the status said in each round; a round does the next one of some steps."""

    def __init__(self, *steps: Exception | Callable[[], object], pause_s: float = 0.01) -> None:
        self.stop = threading.Event()
        self.pauses: list[tuple[str, float]] = []
        self.status: list[str | None] = []
        self._steps: Iterator[Exception | Callable[[], object]] = iter(steps)
        self.runner = Runner[Loop](self.stop, self._may_pass, self._note, first_pause_s=pause_s)

    def run(self) -> None:
        self.runner.run(lambda: Loop(self.stop, self._round), Loop.run)

    def _round(self) -> bool:
        self.status.append(self.runner.not_ready)
        step = next(self._steps, None)
        if isinstance(step, Exception):
            raise step
        if step is not None:
            step()
        return step is not None

    def _note(self, reason: str, seconds: float) -> None:
        self.pauses.append((reason, seconds))

    @staticmethod
    def _may_pass(error: Exception) -> bool:
        return isinstance(error, RetriableSinkError)


def works() -> None:
    """A round that succeeds."""


def test_pauses_grow_and_the_status_says_why_until_a_round_succeeds() -> None:
    slow = RetriableSinkError("the disk is slow")
    scene = Scene(works, slow, slow, works, works)
    assert scene.runner.not_ready == "it is starting"
    scene.run()
    assert scene.pauses == [("the disk is slow", 0.01), ("the disk is slow", 0.02)]
    assert scene.runner.failures == 2
    waits = "it is retried in up to 0 s: the disk is slow"
    assert scene.status == [None, None, waits, waits, None, None]
    assert scene.runner.not_ready == IDLE


def test_a_pause_has_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "wait", lambda *_: None)
    scene = Scene(*[RetriableSinkError("a server does not answer")] * 7, pause_s=4.0)
    scene.run()
    assert [seconds for _, seconds in scene.pauses] == [4.0, 8.0, 16.0, 32.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_an_error_that_needs_a_person_is_raised() -> None:
    scene = Scene(RetriableSinkError("once"), SinkError("the target was put back"))
    with pytest.raises(SinkError, match="the target was put back"):
        scene.run()
    assert scene.runner.failures == 1


@pytest.mark.parametrize("by_event", [True, False])
def test_a_stop_of_another_thread_ends_a_pause(by_event: bool) -> None:
    scene = Scene(RetriableSinkError("a server does not answer"), works, pause_s=60.0)
    stops = threading.Timer(0.2, scene.stop.set if by_event else scene.runner.stop)
    stops.start()
    scene.run()
    assert scene.status == [None], "no round begins after a stop"
    assert "a server does not answer" in str(scene.runner.not_ready)


def test_a_stop_ends_the_rounds() -> None:
    def stops() -> None:
        scene.runner.stop()

    scene = Scene(works, stops, works)
    scene.run()
    assert scene.status == [None, None]


@pytest.mark.parametrize("ends", [True, False])
def test_an_error_after_a_stop_is_raised_unless_the_process_ends(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    monkeypatch.setattr(module, "WAITS", waits)

    def fails() -> None:
        scene.runner.stop()
        if ends:
            waits.end()
        raise RetriableSinkError("the commit failed")

    scene = Scene(fails)
    if ends:
        scene.run()
    else:
        with pytest.raises(RetriableSinkError, match="the commit failed"):
            scene.run()
    assert not scene.pauses
