"""The attempts of a job: a failed one is followed by another after a pause that grows, and the status says why.

An attempt runs rounds: batches of a Spark query (`MergeJob`) or of a plain loop. Nothing here knows Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from schemas.errors import TidemarkError
from schemas.waiting import WAITS

FIRST_PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 60.0
_STEADY_S: Final = 300.0


class Attempt:
    """One attempt of a job. It begins no round once `_stop` is set, and sets `_is_ready` while rounds can run.

    `idle` is the reason that the status has while no round can run. A job that keeps a liveness record extends `wait`,
    `retries_after`, `note_success` and `note_end` to write it.
    """

    def __init__(self, idle: str, stop: threading.Event) -> None:
        self._idle = idle
        self._stop = stop
        self._is_ready = False
        self._lasting = ""

    def stop(self) -> None:
        """End after the round that is running, if any. May be called from any thread or signal handler."""
        self._stop.set()

    def wait(self, seconds: float, reason: str, since_ms: int) -> None:  # noqa: ARG002 - for a liveness record
        """Wait between two attempts, or until it is stopped. `since_ms` is when the reason came up first."""
        self._stop.wait(seconds)

    def retries_after(self, reason: str, since_ms: int) -> None:  # noqa: ARG002 - for a liveness record
        """Be an attempt after one that failed: it is not ready for that reason until `note_success`."""
        self._lasting = reason

    def note_success(self) -> None:
        """Note that a round has succeeded, or that there is none to run."""
        self._lasting = ""

    @property
    def has_succeeded(self) -> bool:
        """Whether no attempt before this one has a failure that lasts."""
        return not self._lasting

    def note_end(self, reason: str, begun_ms: int) -> None:
        """Keep the last line of a job that began at that time and ended, perhaps before it had its lock."""

    def not_ready(self) -> str | None:
        """Return why no round can run at the moment; None while rounds can run."""
        return self._lasting or (None if self._is_ready else self._idle)


Job = TypeVar("Job", bound=Attempt)


class Runner(Generic[Job]):
    """The attempts of one job. `run` blocks; `stop` may be called from any thread or signal handler.

    `may_pass` says of an error, one of `errors`, whether another attempt may succeed without a person. `on_retry` is given the
    reason and the seconds before each pause. The event `stop` ends the run as well; attempts may share it.
    """

    def __init__(
        self,
        stop: threading.Event,
        may_pass: Callable[[Exception], bool],
        on_retry: Callable[[str, float], None],
        reason_of: Callable[[Exception], str] = str,
        errors: tuple[type[Exception], ...] = (TidemarkError, OSError),
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._may_pass, self._on_retry, self._reason_of, self._errors = may_pass, on_retry, reason_of, errors
        self._first_pause_s = first_pause_s
        self._stop = stop
        self._waits = ""
        self._begun_ms = time.time_ns() // 1_000_000
        self.attempt: Job | None = None
        self.failures = 0

    @property
    def not_ready(self) -> str | None:
        """Why no round can run at the moment; None while rounds can run."""
        if self._waits:
            return self._waits
        return "it is starting" if self.attempt is None else self.attempt.not_ready()

    def stop(self) -> None:
        """End after the round that is running, if any, or the pause."""
        self._stop.set()
        if self.attempt is not None:
            self.attempt.stop()

    def note_end(self, reason: str) -> None:
        """Keep the last line of the job, if an attempt has begun."""
        if self.attempt is not None:
            self.attempt.note_end(reason, self._begun_ms)

    def run(self, make: Callable[[], Job], work: Callable[[Job], None]) -> None:
        """Run the work of an attempt, and of another one after each error that may pass. Every other error is raised.

        The caller notes the end by such an error (`note_end`). After `stop` an error is raised, unless the process is ending.
        """
        pause_s, since_ms = self._first_pause_s, 0
        while (attempt := self._next(make, since_ms)) is not None:
            began = time.monotonic()
            try:
                work(attempt)
                break
            except self._errors as error:
                may_pass = self._may_pass(error)
                if WAITS.is_ending and may_pass:  # a wait that the stop of the process has ended
                    break
                if self._stop.is_set() or not may_pass:
                    raise
                reason = self._reason_of(error)
            pause_s = self._first_pause_s if time.monotonic() - began > _STEADY_S else pause_s
            since_ms = time.time_ns() // 1_000_000 if attempt.has_succeeded else since_ms
            self.failures += 1
            self._waits = f"it is retried in up to {pause_s:.0f} s: {reason}"
            self._on_retry(reason, pause_s)
            attempt.wait(pause_s, self._waits, since_ms)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self.note_end("")

    def _next(self, make: Callable[[], Job], since_ms: int) -> Job | None:
        """Return another attempt; None after a stop."""
        attempt = make()
        if self._waits:
            attempt.retries_after(self._waits, since_ms)
        self.attempt = attempt
        if self._stop.is_set():
            self.note_end(self._waits)
            return None
        self._waits = ""
        return attempt
