"""The times of transactions for commit records: the times of their rows enter, lifts and caps leave (pure).

The time of a transaction is the running maximum: the largest time of its rows, and of the rows of every transaction before it. It
begins with the promise of the last record, so it never decreases, also after a restart or a failover.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas.position import Position

if TYPE_CHECKING:
    import numpy.typing as npt

    from schemas.commit_records import Moment

    Ints = npt.NDArray[np.int64]

_MOST_NOTED: Final = 16_384
"""The times of so many rows events of runs are computed at once: each computation costs as much for few as for many."""
TOLERANCE_US: Final = 2_000_000
"""A time that is further ahead of the server's clock was set by a statement (`SET timestamp`), and is not believed."""


class TransactionTimes:
    """The running maximum, and what readers cannot know from the times in change records. Owned by the log reader's thread.

    `now_us` returns the server's clock. `position` names the transaction that was noted last and may have more rows: it counts when
    it is closed.
    """

    def __init__(self, since_us: int, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._latest_us = 0
        self.position: Position | None = None
        self._least_us = self._most_us = 0
        self.since_us = self.maximum_us = self._floor_us = since_us
        self.lifts: list[Moment] = []
        self.caps: list[Moment] = []
        self._runs: list[tuple[Ints, Ints]] = []  # of the file below, before the open transaction
        self._file = (0, 0)
        self._noted = 0

    def begin_record(self, since_us: int) -> None:
        """Begin the next record behind one with that promise. A transaction that is open stays open."""
        self.since_us = self.maximum_us = self._floor_us = since_us
        self.lifts, self.caps = [], []

    def note(self, position: Position, ts_us: int) -> None:
        """Note rows of the transaction at that position, or a statement; of one transaction without another one in between."""
        if position is not self.position and position != self.position:
            self.close()
            self.position, self._least_us, self._most_us = position, ts_us, ts_us
        elif ts_us > self._most_us:
            self._most_us = ts_us
        elif ts_us < self._least_us:
            self._least_us = ts_us

    def note_run(self, epoch: int, file: int, began: Ints, ts_us: Ints) -> None:
        """Note whole transactions of one log file: for each of their rows events the offset of the transaction, and the time."""
        if self.position is not None:
            self.close()
        if self._file != (epoch, file) or self._noted >= _MOST_NOTED:
            self.merge_runs()
            self._file = epoch, file
        self._runs.append((began.copy(), ts_us.copy()))
        self._noted += began.size

    def merge_runs(self) -> None:
        """Bring the maximum, lifts and caps up to date with the runs that are noted."""
        if not self._runs:
            return
        epoch, file = self._file
        began, ts_us = (np.concatenate(one) for one in zip(*self._runs, strict=True))
        self._runs, self._noted = [], 0
        first = np.flatnonzero(np.concatenate(([True], began[1:] != began[:-1])))
        most, least = np.maximum.reduceat(ts_us, first), np.minimum.reduceat(ts_us, first)
        if int(most.max()) > self._latest_us:
            self._cap(epoch, file, began[first], most, least)
        times = np.maximum.accumulate(np.concatenate(([self.maximum_us], most)))[1:]
        self.maximum_us = int(times[-1])
        lifted = np.flatnonzero((least < times) & (times > self._floor_us))
        if lifted.size:  # of several with one time the first
            new = lifted[np.concatenate(([True], np.diff(times[lifted]) > 0))]
            self._floor_us = int(times[new[-1]])
            offsets = began[first[new]].tolist()
            self.lifts += [(Position(epoch, file, at), us) for at, us in zip(offsets, times[new].tolist(), strict=True)]

    def close(self) -> None:
        """Note that the transaction that was noted last has no more rows."""
        position, self.position = self.position, None
        if position is None:
            return
        if self._runs and (position.epoch, position.file) == self._file:  # its time is computed together with the runs
            self._runs.append((np.full(2, position.offset), np.array((self._least_us, self._most_us))))
            self._noted += 2
            return
        self.merge_runs()
        least, most = self._least_us, self._believed(self._most_us)
        if most != self._most_us:
            self.caps.append((position, most))
            least = most
        self.maximum_us = time = max(self.maximum_us, most)
        if least < time and time > self._floor_us:
            self.lifts.append((position, time))
            self._floor_us = time

    def finish(self) -> None:
        """Bring everything up to date: no transaction is open."""
        self.close()
        self.merge_runs()

    def open_us(self) -> int:
        """Return the time that the transaction which was noted last has at least."""
        self.merge_runs()
        return self.maximum_us if self.position is None else max(self.maximum_us, self._believed(self._most_us))

    def _cap(self, epoch: int, file: int, began: Ints, most: Ints, least: Ints) -> None:
        """Replace the times that are not believed."""
        believed = self._believed(int(most.max()))
        if believed == int(most.max()):
            return
        wrong = np.flatnonzero(most > self._latest_us)
        most[wrong] = least[wrong] = believed
        self.caps += [(Position(epoch, file, at), believed) for at in began[wrong].tolist()]

    def _believed(self, ts_us: int) -> int:
        """Return the time, or the server's clock if the time is too far ahead of it."""
        if ts_us <= self._latest_us:
            return ts_us
        now_us = self._now_us()
        self._latest_us = now_us + TOLERANCE_US
        return min(ts_us, now_us) if ts_us > self._latest_us else ts_us
