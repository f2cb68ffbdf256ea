"""A whole producer in a thread of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from producer.app import Producer, run
from schemas.settings import Settings

PATIENCE_S = 120.0


class RunningProducer:
    """A producer in a thread: its latest start, why it waited, and what ended it before its time."""

    def __init__(self, settings: Settings) -> None:
        self.stop = threading.Event()
        self.starts: list[Producer] = []
        self.failures: list[BaseException] = []
        self.waited: list[str] = []
        self.thread = threading.Thread(target=self._run, args=(settings,), name="producer")

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(PATIENCE_S)
        self.check()

    def check(self) -> None:
        assert not self.failures, self.failures

    def wait_until(self, what: str, done: Callable[[Producer], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not (self.starts and done(self.starts[-1])):
            self.check()
            assert time.monotonic() < deadline, (
                f"after {patience_s} s still not: {what}; {self._unfinished()}"
            )
            time.sleep(0.1)

    def _run(self, settings: Settings) -> None:
        try:
            run(settings, stop=self.stop, on_status=self.starts.append, on_waiting=self.waited.append)
        except BaseException as error:  # noqa: BLE001  raised by the test's own thread
            self.failures.append(error)

    def _unfinished(self) -> object:
        coordinator = self.starts[-1].coordinator if self.starts else None
        return coordinator and [table for table in coordinator.progress() if table.state != "done"]
