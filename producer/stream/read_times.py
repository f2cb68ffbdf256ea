"""Up to when everything that the source committed was read, and is in Kafka: times of the log enter (pure, but for the clock).

Two things prove it. An event with a time: whatever was committed before the statement of a transaction began comes before it in
the log. And a heartbeat, which the server sends when it has nothing more to send, if nothing came after it: it proves the time at
which the connection was last seen empty before it came, since the heartbeat itself may have waited there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from producer.binlog.event_types import HEARTBEAT_EVENTS

if TYPE_CHECKING:
    from producer.binlog import EventBatch

_CLOCKS_MS: Final = 20_000


class ReadTimes:
    """Times in Unix milliseconds, 0 for unknown. Owned by the log reader's thread; others may read `in_kafka_ms`.

    They never go back: a transaction that took long has old times, and what is proved stays so. A time in the future proves nothing
    (a session may `SET timestamp`), but for a few seconds by which clocks differ.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._end_ms = 0
        self._empty_ms = 0
        self._begun_ms: int | None = None
        self.read_ms = 0
        self.in_kafka_ms = 0

    def came(self, batch: EventBatch) -> int:
        """Note events that came now; return the time that they prove once they are published, for `published`."""
        now_ms, last = self._now_ms(), batch.count - 1
        self._end_ms = self._empty_ms if last >= 0 and int(batch.types[last]) in HEARTBEAT_EVENTS else 0
        times = batch.timestamps[: batch.count]
        newest_ms = int(times[times <= (now_ms + _CLOCKS_MS) // 1000].max(initial=0)) * 1000
        return min(newest_ms, now_ms)

    def published(self, proved_ms: int) -> None:
        """Note that the events of `came` are published, though not committed."""
        self.read_ms = max(self.read_ms, proved_ms)

    def nothing_came(self, *, at_boundary: bool) -> None:
        """Note that the server has sent nothing more.

        The heartbeat that came last, if it was one, was at the end of the log; not while the server passes over what was read
        before, when it sends some as well (`at_boundary` is false until the first transaction came).
        """
        if at_boundary:
            self.read_ms = max(self.read_ms, self._end_ms)
        self._end_ms, self._empty_ms = 0, self._now_ms()

    def known(self, in_kafka_ms: int | None) -> None:
        """Take over what an earlier process knew: it stays true."""
        self.read_ms = self.in_kafka_ms = max(self.in_kafka_ms, in_kafka_ms or 0)

    def commit_begun(self) -> None:
        """Note that what was published is being committed; what is published from here on is of the next commit."""
        self._begun_ms = self.read_ms

    def committed(self) -> None:
        """Note that what was published, before `commit_begun` where that was called, is in Kafka."""
        committed_ms = self.read_ms if self._begun_ms is None else self._begun_ms
        self._begun_ms = None
        self.in_kafka_ms = max(self.in_kafka_ms, committed_ms)
