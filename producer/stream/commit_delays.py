"""The time from the commit at the source to the commit of the Kafka transaction, per table, of some changes of each checkpoint.

While the log reader catches up this is the true delay, not that of an idle log. The source's time is that of the transaction
(`original_commit_timestamp` of MySQL 8: of the first server of a replication), in whole seconds where the log has no better one.
"""

from __future__ import annotations

from typing import Final

from schemas.delay_histogram import DelayCounter, DelayHistogram
from schemas.identity import TableId

SAMPLES: Final = 8
"""At most so many changes of a table and checkpoint are counted, at equal distances."""
_SECOND_US: Final = 1_000_000


class _Samples:
    """The times of some of the events that a table had since the last commit: each `stride`-th one."""

    __slots__ = ("seen", "stride", "times_us")

    def __init__(self, first_us: int) -> None:
        self.times_us = [first_us]
        self.seen = 1
        self.stride = 1

    def note(self, ts_us: int) -> None:
        """Note the time of the next event; half of the times are dropped where they become too many."""
        if self.seen % self.stride == 0:
            if len(self.times_us) == SAMPLES:
                del self.times_us[1::2]
                self.stride *= 2
            if self.seen % self.stride == 0:
                self.times_us.append(ts_us)
        self.seen += 1


class CommitDelays:
    """The delays per table since the start. Owned by the log reader's thread; others may read `tables`."""

    def __init__(self) -> None:
        self._open: dict[TableId, _Samples] = {}
        self._begun: dict[TableId, _Samples] | None = None
        self._counters: dict[TableId, DelayCounter] = {}

    def note(self, table: TableId, ts_us: int) -> None:
        """Note that rows of a table which the source committed then were given to Kafka's client; once per rows event or run."""
        if ts_us <= 0:  # a transaction of a server that did not note it
            return
        samples = self._open.get(table)
        if samples is None:
            self._open[table] = _Samples(ts_us)
        else:
            samples.note(ts_us)

    def commit_begun(self) -> None:
        """Note that what was noted so far is being committed; what is noted from here on is of the next commit."""
        self._begun, self._open = self._open, {}

    def committed(self, now_us: int) -> None:
        """Count what was noted, before `commit_begun` where that was called: it is committed in Kafka now."""
        if self._begun is None:
            self.commit_begun()
        begun, self._begun = self._begun or {}, None
        for table, samples in begun.items():
            times_us = samples.times_us
            counter = self._counters.get(table)
            if counter is None:
                counter = self._counters[table] = DelayCounter()
            delays = DelayHistogram.of([(now_us - ts_us) / _SECOND_US for ts_us in times_us])
            in_seconds = all(ts_us % _SECOND_US == 0 for ts_us in times_us)
            counter.add(delays, now_us / _SECOND_US, in_seconds=in_seconds)

    def aborted(self) -> None:
        """Forget what was noted since the last commit."""
        self._open.clear()

    def forget(self, table: TableId) -> None:
        """Forget a table that is not captured any more; nothing is noted since the last commit."""
        self._counters.pop(table, None)

    @property
    def tables(self) -> dict[TableId, DelayCounter]:
        """The tables of which something was counted."""
        return {table: counter for table, counter in self._counters.copy().items() if counter.newest_s}
