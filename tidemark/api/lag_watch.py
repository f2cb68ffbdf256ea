"""How far the sinks are behind, looked up every few seconds on a thread: for metrics, which must be answered at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from tidemark.api.look_loop import LookLoop
from tidemark.status.lags import Lags, lags_of

if TYPE_CHECKING:
    from schemas.settings import Settings
    from tidemark.api.observe import Observer

EVERY_S: Final = 5.0
_BELIEVED_S: Final = 3 * EVERY_S


class LagWatch:
    """Looks while it is entered. What Kafka does not say is unknown, and so is what was seen too long ago: `latest` has none then.

    The source is not asked, so nothing is known of what is not in Kafka but what the producer says. `problem` says why to worry
    about the source's log, "" where there is no reason. While `is_idle` nothing is looked up: another process of the name does.
    """

    def __init__(
        self, settings: Settings, problem: Callable[[], str], is_idle: Callable[[], bool], every_s: float = EVERY_S
    ) -> None:
        self._problem = problem
        self._seen: tuple[float, Mapping[str, Lags]] = (float("-inf"), {})
        self._loop = LookLoop(settings, self._look, "lag", every_s, first_s=every_s, is_idle=is_idle)

    def __enter__(self) -> Self:
        self._loop.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.__exit__(kind, error, trace)

    @property
    def latest(self) -> Mapping[str, Lags]:
        """The lags of each sink, as they were a moment ago; empty where they are not known."""
        at, seen = self._seen
        return seen if time.monotonic() - at <= _BELIEVED_S else {}

    def _look(self, observer: Observer) -> None:
        at = time.monotonic()
        found, problem = observer.read_each(oldest=True), self._problem()
        self._seen = at, {name: lags_of(status, problem=problem) for name, status in found.items()}
