"""The pause of a task: after an error, or if a person asks for it, its process applies nothing until somebody resumes the task.

The record of the pause is kept beside the state of the task, at its target (`PauseKeeper`). The process and `tidemark ctl task`
both read and write it there. A process that waits looks once a second whether the record is gone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from schemas.errors import ACCESS_ERRORS, FencedError, TidemarkError
from schemas.paused_task import TaskPause

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

log = structlog.get_logger()

POLL_S: Final = 1.0


class PauseKeeper(Protocol):
    """The durable record of a task's pause."""

    def pause(self) -> TaskPause | None:
        """Return the record; None if the task is not paused. `FencedError`: another process has taken the task over."""

    def change_pause(self, change: Callable[[TaskPause | None], TaskPause | None]) -> None:
        """Replace the record by the result of `change`, so that no other change comes between. Errors as `pause`."""

    def close(self) -> None:
        """Give connections, files and locks up."""


class TaskPauses:
    """The pauses of one process of a task. `current` may be read in any thread, everything else is used in one."""

    def __init__(self, keeper: PauseKeeper, stop: threading.Event) -> None:
        self._keeper = keeper
        self._stop = stop
        self._next_s = 0.0
        self.has_begun = False
        """Whether a round has begun in this process: an error before that ends it."""
        self.current: TaskPause | None = None

    def begin(self) -> None:
        """Begin an attempt: a person's pause is kept, one after an error ends here, since the start retries it."""
        pause = self._keeper.pause()
        if pause is not None and pause.by:
            self.current = pause
        elif pause is not None:
            log.warning("task.retried", cause=pause.cause)
            self._keeper.change_pause(lambda _: None)

    def is_asked(self) -> bool:
        """Return whether a person has paused the task, as it was asked for a second ago at most."""
        if self.current is None and time.monotonic() >= self._next_s:
            self.current = self._keeper.pause()
            self._next_s = time.monotonic() + POLL_S
        return self.current is not None

    def is_cause(self, error: Exception) -> bool:
        """Return whether an error, of which no retry helps, pauses the task. Refused credentials and a start that fails do not."""
        return self.has_begun and isinstance(error, TidemarkError) and not isinstance(error, (FencedError, *ACCESS_ERRORS))

    def note(self, error: Exception) -> None:
        """Pause after an error."""
        self.current = TaskPause(at_ms=time.time_ns() // 1_000_000, cause=str(error))

    def wait(self) -> None:
        """Keep the current pause, and wait until somebody ends it, or the process is stopped.

        A target that cannot be reached is asked again. `FencedError`: another process has taken the task over.
        """
        pause = self.current
        assert pause is not None
        log.error("task.paused", reason=pause.text)
        self._keeper.close()
        is_kept, problem, wait_s = False, "", 0.0
        while not self._stop.wait(wait_s):
            wait_s = POLL_S
            try:
                if is_kept:
                    self.current = self._keeper.pause()
                else:
                    self._keeper.change_pause(self._in_effect)
                is_kept, problem = True, ""
            except FencedError:
                raise
            except (TidemarkError, OSError) as error:
                if str(error) != problem:
                    log.warning("task.pause_unreachable", reason=str(error), is_kept=is_kept)
                problem = str(error)
            if self.current is None:
                log.info("task.resumed")
                return

    def _in_effect(self, kept: TaskPause | None) -> TaskPause | None:
        """Return the record of the current pause, beside a person's that is kept already; None if that was ended meanwhile."""
        current = self.current
        assert current is not None
        if current.cause and not (kept is not None and kept.by):
            return replace(current, is_effective=True)
        return None if kept is None else replace(kept, cause=current.cause or kept.cause, is_effective=True)


def asked_by(by: str, reason: str) -> Callable[[TaskPause | None], TaskPause]:
    """Return the change by which a person pauses a task."""

    def change(kept: TaskPause | None) -> TaskPause:
        return replace(kept or TaskPause(at_ms=time.time_ns() // 1_000_000), by=by, reason=reason)

    return change
