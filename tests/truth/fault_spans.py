"""Which faults there were, from when to when, and what may be said of the pipeline meanwhile (pure)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

NEVER: Final = float("inf")


@dataclass(slots=True, kw_only=True)
class FaultSpan:
    """A fault. `began_s`, `ended_s` are when the harness made it and took it back, `well_s` when it knew that all is well again.

    From `sees_s` after its beginning until its end the word is one of `must`, where that is not empty; no answer counts as
    `unknown`. `may` are the words besides `running` and `behind` that are true from its beginning until all is well. `dead` names
    the jobs that are not alive. `mute` names readers that give no answer. `counts` are figures that must be shown: quarantined records,
    tables set aside. One that `disturbs` nothing leaves lags and figures as they are while all is well.
    """

    name: str
    began_s: float = NEVER
    ended_s: float = NEVER
    well_s: float = NEVER
    sees_s: float = 0.0
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()
    counts: dict[str, int] = field(default_factory=dict)
    disturbs: bool = True

    def covers(self, begin_s: float, end_s: float, more_s: float = 0.0) -> bool:
        """Whether it held all the time from one moment to another, and was visible."""
        return self.began_s + self.sees_s + more_s <= begin_s and end_s <= self.ended_s

    def touches(self, begin_s: float, end_s: float, rests_s: float = 0.0) -> bool:
        """Whether it may have an effect at a moment between."""
        return self.began_s <= end_s and begin_s <= self.well_s + rests_s


class FaultSpans:
    """All faults so far; episodes add, the judge reads."""

    def __init__(self) -> None:
        self._spans: list[FaultSpan] = []
        self._lock = threading.Lock()

    def add(self, span: FaultSpan) -> FaultSpan:
        with self._lock:
            self._spans.append(span)
        return span

    def close(self, ended_s: float, well_s: float) -> None:
        """End what an episode that failed has left open."""
        with self._lock:
            for span in self._spans:
                span.ended_s, span.well_s = min(span.ended_s, ended_s), min(span.well_s, well_s)

    def touching(self, begin_s: float, end_s: float, rests_s: float = 0.0) -> list[FaultSpan]:
        with self._lock:
            return [span for span in self._spans if span.touches(begin_s, end_s, rests_s)]
