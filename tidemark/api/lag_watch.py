"""How far the sinks are behind, read every few seconds on a thread: for metrics, which must be answered at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.api.observer_loop import ObserverLoop
from tidemark.status.lags import Lags, lags_of

if TYPE_CHECKING:
    from schemas.settings import Settings
    from tidemark.api.observe import Observer

EVERY_S: Final = 5.0
_BELIEVED_S: Final = 3 * EVERY_S


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
