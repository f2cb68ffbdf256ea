"""When the old files of which target are removed: beside the batches, one target at a time, and seldom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Final

import structlog
from pyspark.sql import SparkSession

from schemas.identity import Target
from spark_jobs.sinks.contract import Sink
from spark_jobs.spark_errors import reason_of

log = structlog.get_logger()

FIRST_S: Final = 600.0
"""Seconds from the start of a job until the first target: one that ends again and again does nothing else before."""
_PAUSES: Final = 10
"""How many times as long as a removal took nothing is removed after it."""
_CLOSE_S: Final = 5.0


class OldFiles:
    """Removes what only older versions of the targets need, on a thread of its own (`Sink.remove_old_files`).

    Each target has its turn once in `hours`, 0 for never. A removal that fails is logged, and is due again after that time: rows do
    not depend on it.
    """

    def __init__(self, sink: Sink, hours: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._every_s = hours * 3600.0 if sink.can.leaves_old_files else 0.0
        self._clock = clock
        self._not_before = clock() + FIRST_S
        self._done: dict[Target, float] = {}
        self._thread: threading.Thread | None = None

    def offer(self, spark: SparkSession, targets: Iterable[Target]) -> None:
        """Begin with the target whose turn it is, if it is the turn of any and no other is being done. Does not wait."""
        now = self._clock()
        if not self._every_s or now < self._not_before or (self._thread is not None and self._thread.is_alive()):
            return
        due = [target for target in targets if now - self._done.get(target, -self._every_s) >= self._every_s]
        if not due:
            return
        target = min(due, key=lambda one: (self._done.get(one, -self._every_s), one.text))
        work = (self._remove, spark, target)
        self._thread = threading.Thread(target=copy_context().run, args=work, name="old-files", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait a little for what is being done. The end of Spark breaks off the rest, which harms nothing."""
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _remove(self, spark: SparkSession, target: Target) -> None:
        began = self._clock()
        try:
            self._sink.remove_old_files(spark, target)
        except Exception as error:  # noqa: BLE001 - of whatever kind: the rows do not depend on it
            log.warning("merge.old_files_left", table=target.name, reason=reason_of(error))
        else:
            log.info("merge.old_files_removed", table=target.name, seconds=round(self._clock() - began, 1))
        now = self._clock()
        self._done[target] = now
        self._not_before = now + _PAUSES * (now - began)
