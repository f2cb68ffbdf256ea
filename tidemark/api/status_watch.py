"""A status, read again and again in a thread, for views and figures that may not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Self, TypeVar

import structlog

from schemas.lasting import logged_errors

T = TypeVar("T")
log = structlog.get_logger(__name__)


class StatusWatch(Generic[T]):
    """Calls `read` each `every_s` seconds while it is entered, the first time after `first_s`.

    `latest` may be read in any thread. `trouble` says why the last call failed, "" while calls succeed.
    """

    def __init__(self, read: Callable[[], T], every_s: float, believed_s: float, first_s: float = 0.0) -> None:
        self._read, self._every_s, self._believed_s, self._first_s = read, every_s, believed_s, first_s
        self._last: tuple[float, T] | None = None
        self.trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    @property
    def latest(self) -> T | None:
        """The status that was read last; None before the first one, and if its reading began more than `believed_s` ago."""
        last = self._last
        return last[1] if last is not None and time.monotonic() - last[0] <= self._believed_s else None

    def _run(self) -> None:
        wait_s = self._first_s
        while not self._stop.wait(wait_s):
            wait_s, began_s = self._every_s, time.monotonic()
            trouble = "it cannot be read; the log has the trace"
            with logged_errors(log.exception, "status.read_failed"):
                self._last, trouble = (began_s, self._read()), ""
            self.trouble = trouble
