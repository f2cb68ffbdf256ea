"""The status of a task, read again and again in a thread, for figures that the process of the task does not know."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

import structlog

from schemas.lasting import logged_errors

if TYPE_CHECKING:
    from schemas.settings.task_section import TaskSettings
    from tidemark.status.task_status import TaskStatus

log = structlog.get_logger()

_EVERY_S: Final = 30.0


class TaskWatch:
    """Reads the status of a task while it is entered. `latest` may be read in any thread; None before the first status."""

    def __init__(self, settings: TaskSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="task-watch", daemon=True)
        self.latest: TaskStatus | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        from tidemark.api.task_reader import (
            read_task,  # takes seconds, which the start of the endpoint does not wait for
        )

        while not self._stop.wait(_EVERY_S):
            with logged_errors(log.exception, "task.watch_failed"):
                self.latest = read_task(self._settings)
