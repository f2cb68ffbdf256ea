"""When a failed attempt is repeated, and when the attempts are given up (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from producer.snapshot.snapshot_state import Tries

MAX_ATTEMPTS: Final = 8
MAX_OUTAGE_ATTEMPTS: Final = 60
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 30.0


def is_exhausted(tries: Tries) -> bool:
    """Return whether no further attempt is made."""
    return tries.faults >= MAX_ATTEMPTS or tries.outages >= MAX_OUTAGE_ATTEMPTS


def delay_s(attempts: int) -> float:
    """Return the back-off before the next attempt."""
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempts - 1, 20))
