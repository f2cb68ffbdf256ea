"""How far the sinks are behind, looked up every few seconds on a thread: for metrics, which must be answered at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import structlog

from schemas.errors import TidemarkError
from tidemark.api.lags import Lags, lags_of
from tidemark.api.observe import Observer

if TYPE_CHECKING:
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

EVERY_S: Final = 5.0
_BELIEVED_S: Final = 3 * EVERY_S
_JOIN_S: Final = 2.0


class LagWatch:
    """Looks while it is entered. What Kafka does not say is unknown, and so is what was seen too long ago: `latest` has none then.

    The source is not asked, so nothing is known of what is not in Kafka but what the producer says. `problem` says why to worry
    about the source's log, "" where there is no reason. While `is_idle` nothing is looked up: another process of the name does.
    """

    def __init__(
        self, settings: Settings, problem: Callable[[], str], is_idle: Callable[[], bool], every_s: float = EVERY_S
    ) -> None:
        self._settings = settings
        self._problem, self._is_idle = problem, is_idle
        self._every_s = every_s
        self._ended = threading.Event()
        self._seen: tuple[float, Mapping[str, Lags]] = (float("-inf"), {})
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)

    @property
    def latest(self) -> Mapping[str, Lags]:
        """The lags of each sink, as they were a moment ago; empty where they are not known."""
        at, seen = self._seen
        return seen if time.monotonic() - at <= _BELIEVED_S else {}

    def _run(self) -> None:
        observer: Observer | None = None
        while not self._ended.wait(self._every_s):
            if self._is_idle():
                continue
            try:
                observer = observer or Observer(self._settings)
                at = time.monotonic()
                found, problem = observer.read_each(oldest=True), self._problem()
                self._seen = at, {name: lags_of(status, problem=problem) for name, status in found.items()}
            except TidemarkError as error:
                log.debug("lag.unknown", reason=str(error))
                if observer is not None:
                    observer.close()
                observer = None
        if observer is not None:
            observer.close()
