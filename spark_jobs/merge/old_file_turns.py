"""When the old files of which target are removed: beside the batches, one target at a time, and seldom."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial
from typing import Final

import structlog
from pyspark.sql import SparkSession

from schemas.errors import result_or_error
from schemas.identity import Target
from spark_jobs.sinks.contract import OldFilesSink, Sink
from spark_jobs.spark_errors import reason_of
from spark_jobs.store.files import LocalFiles

log = structlog.get_logger()

TURNS: Final = "old_files.json"
"""The document of the last turns, in the service folder: a job that is started from time to time has turns, too."""
_PAUSES: Final = 10
"""How many times as long as a removal took nothing is removed after it."""
_CLOSE_S: Final = 1.0
_LAST_S: Final = 60.0


class OldFiles:
    """Removes what only older versions of the targets need (`OldFilesSink`).

    A target has its turn at most once in `hours`, 0 for never, and the first one so long after it was seen first. A removal that
    fails is logged, and has its next turn then: rows do not depend on it. `clock` gives seconds since the epoch.
    """

    def __init__(self, sink: Sink, files: LocalFiles, hours: float, clock: Callable[[], float] = time.time) -> None:
        self._sink = sink if isinstance(sink, OldFilesSink) else None
        self._files = files
        self._every_s = hours * 3600.0 if self._sink is not None else 0.0
        self._clock = clock
        self._not_before = 0.0
        self._turns: dict[str, float] | None = None
        self._thread: threading.Thread | None = None
        self._closes = threading.Event()

    def offer(self, spark: SparkSession, targets: Iterable[Target]) -> None:
        """Begin with the target whose turn it is, on a thread of its own, if no other is being done. Does not wait."""
        if not self._every_s or self._closes.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        if self._clock() < self._not_before:
            return
        target = self._next(targets)
        if target is None:
            return
        work = (self._remove, spark, target)
        self._thread = threading.Thread(target=copy_context().run, args=work, name="old-files", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no further thread can be started
            self._thread = None
            log.warning("merge.old_files_left", table=target.name, reason=str(error))

    def finish(self, spark: SparkSession, targets: Iterable[Target], stops: Callable[[], bool]) -> None:
        """Remove what is due now, before a job ends that had batches for a moment only. After a minute the rest is left."""
        began, known = self._clock(), list(targets)
        while self._thread is not None and self._thread.is_alive() and not stops():
            self._thread.join(0.2)
        while self._every_s and not stops() and self._clock() < began + _LAST_S and (target := self._next(known)) is not None:
            self._remove(spark, target)

    def close(self) -> None:
        """Begin with no other. The end of Spark breaks off what is being done, which harms nothing."""
        self._closes.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _next(self, targets: Iterable[Target]) -> Target | None:
        """Return the target whose turn was longest ago, if that is long enough, and note its turn."""
        now, turns, known = self._clock(), self._known(), list(targets)
        new = {target.text: now for target in known if target.text not in turns}
        turns |= new
        target = min(known, key=lambda one: (turns[one.text], one.text), default=None)
        if target is not None and now - turns[target.text] < self._every_s:
            target = None
        if target is not None:
            turns[target.text] = now  # also of a job that dies in it
        if new or target is not None:
            self._note(turns)
        return target

    def _known(self) -> dict[str, float]:
        if self._turns is None:
            try:
                read = json.loads(self._files.read(TURNS))
                self._turns = {str(text): min(float(turn), self._clock()) for text, turn in read.items()}
            except (OSError, ValueError, TypeError, AttributeError):
                self._turns = {}
        return self._turns

    def _note(self, turns: dict[str, float]) -> None:
        try:
            self._files.write(TURNS, json.dumps(turns, indent=1))
        except OSError as error:
            log.warning("merge.old_file_turns_not_noted", reason=str(error))

    def _remove(self, spark: SparkSession, target: Target) -> None:
        began = time.monotonic()
        assert self._sink is not None
        done = result_or_error(partial(self._sink.remove_old_files, spark, target))  # the rows do not depend on it
        if not isinstance(done, Exception):
            report = log.info if done else log.debug
            report("merge.vacuumed", table=target.name, done=done, seconds=round(time.monotonic() - began, 1))
        elif not self._closes.is_set():
            log.warning("merge.old_files_left", table=target.name, reason=reason_of(done))
        self._not_before = self._clock() + _PAUSES * (time.monotonic() - began)
