"""Reads a pipeline every few seconds, on a thread: for views that must answer at once, and may not wait for Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Self

import structlog

from schemas.errors import TidemarkError
from tidemark.api.observe import Observer
from tidemark.status.lags import Lags, lags_of

if TYPE_CHECKING:
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

_JOIN_S: Final = 2.0
EVERY_S: Final = 5.0
_BELIEVED_S: Final = 3 * EVERY_S


class ObserverLoop:
    """A thread that calls `read` every `every_s` seconds while it is entered, the first time after `first_s`.

    While `is_idle` nothing is read. `trouble` says why the last call failed, "" while calls succeed. After a failure the next call
    has connections of its own. No error ends the thread: nothing would be read any more, and nobody would know.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[Observer], None],
        name: str,
        every_s: float,
        first_s: float = 0.0,
        is_idle: Callable[[], bool] = lambda: False,
        join_s: float = _JOIN_S,
    ) -> None:
        self._settings = settings
        self._read, self._is_idle = read, is_idle
        self._every_s, self._first_s, self._join_s = every_s, first_s, join_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.trouble = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(self._join_s)

    def _run(self) -> None:
        observer: Observer | None = None
        wait_s = self._first_s
        while not self._ended.wait(wait_s):
            wait_s = self._every_s
            if self._is_idle():
                continue
            try:
                observer = observer or Observer(self._settings)
                self._read(observer)
                self.trouble = ""
            except TidemarkError as error:
                self.trouble = str(error)
                log.debug("look.unknown", reason=self.trouble)
                _close(observer)
                observer = None
            except Exception as error:
                if self._ended.is_set():  # nobody sees the result any more, and a peer may be closed
                    break
                self.trouble = f"the lookup failed: {error!r}; its log has the trace"
                log.exception("look.failed")
                _close(observer)
                observer = None
        _close(observer)


def _close(observer: Observer | None) -> None:
    if observer is not None:
        observer.close()


class LagWatch(ObserverLoop):
    """The lags of a moment ago: those that Kafka does not report are unknown, and `latest` is empty if the last ones are too old.

    The source is not asked, so only the producer says how much is not in Kafka. `problem` says why to worry about the source's log,
    "" if there is no reason. While `is_idle` nothing is read: another process of the name does.
    """

    def __init__(
        self, settings: Settings, problem: Callable[[], str], is_idle: Callable[[], bool], every_s: float = EVERY_S
    ) -> None:
        super().__init__(settings, self._keep, "lag", every_s, first_s=every_s, is_idle=is_idle)
        self._problem = problem
        self._seen: tuple[float, Mapping[str, Lags]] = (float("-inf"), {})

    @property
    def latest(self) -> Mapping[str, Lags]:
        """The lags of each sink, as they were a moment ago; empty if they are not known."""
        at, seen = self._seen
        return seen if time.monotonic() - at <= _BELIEVED_S else {}

    def _keep(self, observer: Observer) -> None:
        at = time.monotonic()
        statuses, problem = observer.read_each(oldest=True), self._problem()
        self._seen = at, {name: lags_of(status, problem=problem) for name, status in statuses.items()}
