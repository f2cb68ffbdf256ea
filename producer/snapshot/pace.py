"""The pace of reading: chunks as large as those before suggest by their cost, and a limit on the rows of a second (pure).

A chunk is one SELECT with a read view of its own. What a view costs the source grows with the time that it is open, and
that depends on the table, the load and the network: no number of rows is right for all of them. So the size of the next
chunk is derived from the milliseconds and bytes of those that were read, table by table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIN_CHUNK_ROWS: Final = 200
"""Time makes no chunk smaller: below that each costs its window rows and little else. Bytes do."""
SHRINK: Final = 0.25
GROW: Final = 1.5
"""The factors by which one chunk changes the size at most: a moment of waiting must not decide for the rest of a table."""
BURST_S: Final = 1.0
"""What is saved up while nobody reads, in seconds of the rate."""


@dataclass(frozen=True, slots=True)
class ChunkCost:
    """What the SELECT of a chunk has cost: the rows and bytes it returned, and the time until the last of them."""

    rows: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """A rule for the rows of chunks: at most `most_rows`, towards the targets. A target of 0 says nothing.

    `most_bytes` bounds the first chunks by the rows' width in the server's statistics.
    """

    most_rows: int
    target_ms: int = 0
    target_bytes: int = 0
    most_bytes: int = 64 << 20

    def first(self, rows: int, size_bytes: int) -> int:
        """Return the rows of a table's first chunks, given rows and bytes of the table by the engine's statistics."""
        if rows <= 0 or size_bytes <= 0:
            return self.most_rows
        by_bytes = min(self.most_bytes, self.target_bytes or self.most_bytes) * rows // size_bytes
        return max(min(self.most_rows, MIN_CHUNK_ROWS), min(self.most_rows, by_bytes))

    def next(self, current: int, planned: int, cost: ChunkCost) -> int:
        """Return the rows of the next chunks, given those at present and the cost of one that was planned for `planned` rows.

        `planned` may be older than `current`: chunks are planned ahead. A chunk with few of its rows (keys are sparse there, or
        a condition selects few) does not make the next ones larger. 0 planned rows: its size is not known.
        """
        if planned <= 0 or cost.rows <= 0:
            return current
        wanted = min(self._by_time(planned, cost), self._by_bytes(cost))
        if 2 * cost.rows < planned:
            wanted = min(wanted, current)
        changed = min(max(wanted, SHRINK * current), GROW * current + 1)
        return max(1, min(self.most_rows, int(changed)))

    def _by_time(self, planned: int, cost: ChunkCost) -> float:
        if not self.target_ms:
            return self.most_rows
        wanted = planned * self.target_ms / 1000 / max(cost.seconds, 0.001)
        return max(wanted, min(self.most_rows, MIN_CHUNK_ROWS))

    def _by_bytes(self, cost: ChunkCost) -> float:
        if not self.target_bytes:
            return self.most_rows
        return self.target_bytes * cost.rows / max(cost.size_bytes, 1)


class RowRate:
    """A token bucket of rows that may be in debt. Times are seconds of one clock that does not go back.

    All chunk readers share it. A reader asks before it starts a window, and never while one is open: it starts when the bucket is
    not in debt, and takes the rows that its chunk is expected to have. What the chunk really had is settled when it has been read.
    So any stretch of time has at most the rows of the rate, of one more second, and of one chunk.
    """

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
        """Correct the reservation of a chunk: it had that many rows."""
        self._refill(now_s)
        self._credit = min(self._credit + reserved - rows, self._rows_per_s * BURST_S)

    def _refill(self, now_s: float) -> None:
        self._credit = min(self._credit + (now_s - self._at) * self._rows_per_s, self._rows_per_s * BURST_S)
        self._at = now_s
