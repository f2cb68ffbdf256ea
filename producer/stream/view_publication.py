"""Snapshots in one view: the log reader waits where the view is in the log, and publishes its rows there."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threading import Event

    from producer.snapshot.blocking import BlockingSnapshots
    from producer.stream.checkpoint import Checkpoints
    from producer.stream.offset import LogOffset
    from schemas.position import Position

VIEW_INTERVAL_S: Final = 1.0


class ViewPublication:
    """The position at which reading waits next for a view, and the publication of that view's rows there."""

    def __init__(
        self,
        views: BlockingSnapshots,
        checkpoints: Checkpoints,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._views = views
        self._checkpoints = checkpoints
        self._clock = clock
        self.position: Position | None = None

    def approach(self, read: Position) -> None:
        """Note that the log was read up to here, and ask where to wait for a view."""
        self.position = self._views.approach(read)

    def publish(self, boundary: LogOffset, stop: Event | None) -> None:
        """Publish the rows of the view at `boundary`: after everything before it, before everything after it."""
        self.position = None
        checkpoints, committed_s = self._checkpoints, self._clock()
        checkpoints.commit(boundary)
        with closing(self._views.rows(boundary.position)) as rows:
            for topic, records in rows:
                checkpoints.write_rows([(topic, records)])
                checkpoints.progress.alive_s = now = self._clock()
                if checkpoints.is_full or now - committed_s >= VIEW_INTERVAL_S:
                    checkpoints.commit(boundary)
                    committed_s = self._clock()
                if stop is not None and stop.is_set():
                    return
        checkpoints.commit(boundary)
