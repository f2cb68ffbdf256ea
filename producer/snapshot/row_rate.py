"""A limit on the rows per second of all chunk readers together (pure): a token bucket that may be in debt.

A reader asks before it starts a window, and never while one is open: it starts when the bucket is not in debt, and takes the rows
that its chunk is expected to have. What the chunk really had is settled when it has been read. So the rows of any stretch of time
are those of the rate, those of a second more, and one chunk.
"""

from __future__ import annotations

BURST_S = 1.0
"""What is saved up while nobody reads, in seconds of the rate."""


class RowRate:
    """A token bucket of rows. Times are seconds of one clock that does not go back."""

    def __init__(self, rows_per_s: int, now_s: float) -> None:
        self._rows_per_s = rows_per_s
        self._credit = rows_per_s * BURST_S
        self._at = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until a chunk may be started; 0 when it may be now."""
        self._refill(now_s)
        return 0.0 if self._credit >= 1 else (1 - self._credit) / self._rows_per_s

    def reserve(self, now_s: float, rows: int) -> None:
        """Take the rows that a chunk is expected to have; it is started now."""
        self._refill(now_s)
        self._credit -= rows

    def settle(self, now_s: float, reserved: int, rows: int) -> None:
        """Correct what was reserved for a chunk: it had that many rows."""
        self._refill(now_s)
        self._credit = min(self._credit + reserved - rows, self._rows_per_s * BURST_S)

    def _refill(self, now_s: float) -> None:
        self._credit = min(self._credit + (now_s - self._at) * self._rows_per_s, self._rows_per_s * BURST_S)
        self._at = now_s
