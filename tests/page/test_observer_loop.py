"""The loop that looks at a pipeline: no error ends it, and what it says of the last look is of the last one."""

from __future__ import annotations

from queue import Queue
from threading import Event

import pytest
from structlog.testing import capture_logs

from schemas.errors import PublishError
from tests.page.test_page_access import settings_of
from tests.support.area_logs import of_area
from tidemark.api.observe import Observer
from tidemark.api.observer_loop import ObserverLoop


@pytest.mark.parametrize("error", [PublishError("Kafka is silent"), RuntimeError("a fault of ours")])
def test_a_look_that_fails_is_named_and_the_next_one_is_made_with_other_connections(error: Exception) -> None:
    looks: Queue[tuple[Observer, str]] = Queue()

    def look(observer: Observer) -> None:
        looks.put((observer, loop.trouble))
        if looks.unfinished_tasks == 1:
            raise error

    loop = ObserverLoop(settings_of(), look, "looks", every_s=0.01)
    with loop:
        (failed, _), (after, trouble), (later, none) = (looks.get(timeout=30) for _ in range(3))
    assert str(error) in trouble
    assert failed is not after
    assert after is later
    assert (none, loop.trouble) == ("", "")


def test_a_look_that_outlives_the_loop_and_fails_then_says_nothing() -> None:
    """The page closes what the look asks: each page that was ended while Kafka was silent left an error with a trace in its log."""
    looks = Event()

    def look(_observer: Observer) -> None:
        looks.set()
        assert loop._ended.wait(60)
        raise RuntimeError("cannot schedule new futures after shutdown")

    with capture_logs() as logged:
        loop = ObserverLoop(settings_of(), look, "looks", every_s=0.01)
        loop.__enter__()
        assert looks.wait(60)
        loop.__exit__(None, None, None)
        loop._thread.join(60)
    assert (loop._thread.is_alive(), loop.trouble, of_area(logged, "look")) == (False, "", [])


def test_nothing_is_looked_up_while_another_process_does() -> None:
    looks: Queue[Observer] = Queue()
    asked: Queue[bool] = Queue()

    def is_idle() -> bool:
        asked.put(True)
        return asked.unfinished_tasks < 3

    with ObserverLoop(settings_of(), looks.put, "looks", every_s=0.01, is_idle=is_idle):
        looks.get(timeout=30)
    assert asked.unfinished_tasks >= 3
