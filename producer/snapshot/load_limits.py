"""Whether the source is under more load than the settings allow (pure): a limit to stop at, and a lower one to continue at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from schemas.settings import PauseWhen

THREADS: Final = "Threads_running"
LAG: Final = "replica lag in seconds"
CALM_CHECKS: Final = 2
"""So many checks in a row must find every figure below its lower limit before reading continues."""


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The limits by the name of the figure; without any of them the load does not matter."""

    limits: Mapping[str, int]

    @classmethod
    def of(cls, settings: PauseWhen) -> Self:
        """Return the limits of the settings."""
        limits = {THREADS: settings.threads_running, LAG: settings.replica_lag_s}
        return cls({name: limit for name, limit in limits.items() if limit})

    def __bool__(self) -> bool:
        return bool(self.limits)

    def lower(self, name: str) -> int:
        """Return the limit at which reading continues: four fifths. One thread always runs: the one that asks."""
        return max(1 if name == THREADS else 0, self.limits[name] * 4 // 5)


class LoadJudge:
    """A judge of figures that come one after the other: above a limit readers wait, until all were low for some time."""

    def __init__(self, limits: LoadLimits) -> None:
        self._limits = limits
        self._waits = False
        self._calm = 0

    def judge(self, figures: Mapping[str, int | None]) -> str:
        """Return why readers wait, "" when they need not. A figure that is not known (None) is no reason."""
        limits = self._limits
        known = {name: value for name in limits.limits if (value := figures.get(name)) is not None}
        above = [f"{name} {value} > {limits.limits[name]}" for name, value in known.items() if value > limits.limits[name]]
        if above:
            self._waits, self._calm = True, 0
            return ", ".join(above)
        if not self._waits:
            return ""
        not_low = [f"{name} {value}, until {limits.lower(name)}" for name, value in known.items() if value > limits.lower(name)]
        self._calm = 0 if not_low else self._calm + 1
        if self._calm >= CALM_CHECKS:
            self._waits = False
            return ""
        low = [f"{name} {value}, low for {self._calm} of {CALM_CHECKS} checks" for name, value in known.items()]
        return ", ".join(not_low or low) or "the load of the source is not known"
