"""`tidemark run`, `merge` and `page` as child processes with their logs in files; and how far they have come."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from devservers.processes import GuardedProcess
from schemas.errors import TidemarkError
from tidemark.api.observe import Observer

if TYPE_CHECKING:
    from schemas.settings import Settings

_ENDS_S: Final = 2.5
"""For all jobs: the servers need the rest of the five seconds."""
_TAIL_LINES: Final = 15
_LOOK_S: Final = 1.0
_LAST_LOOK_S: Final = 0.5


class JobEndedError(TidemarkError):
    """A job has ended by itself."""


class LocalJobs:
    """The jobs, while entered. At the end each is asked to end, and killed where it does not; its JVM may end later."""

    def __init__(self, verbs: Sequence[str], config_path: str, folder: Path) -> None:
        self._verbs, self._config_path, self._folder = verbs, config_path, folder
        self._children: dict[str, GuardedProcess] = {}
        self._begins: dict[str, int] = {}

    def __enter__(self) -> Self:
        for verb in self._verbs:
            log = self._log_path(verb)
            self._begins[verb] = log.stat().st_size if log.exists() else 0  # earlier starts have written to it, too
            command = [sys.executable, "-m", "tidemark", verb, "--config", self._config_path]
            self._children[verb] = GuardedProcess.spawn(command, log, cwd=Path.cwd(), env=os.environ)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children.values():
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + _ENDS_S
        for child in self._children.values():
            if not child.wait(max(0.1, deadline - time.monotonic())):
                child.signal(signal.SIGKILL)

    def said(self, verb: str) -> str:
        """Return what a job has written to its log since this start."""
        with self._log_path(verb).open("rb") as log:
            log.seek(self._begins[verb])
            return log.read().decode("utf-8", "replace")

    def check(self) -> None:
        """Raise `JobEndedError` with the end of its log when a job has ended by itself."""
        for verb, child in self._children.items():
            if child.status is not None:
                tail = "\n".join(f"  {line}" for line in self.said(verb).splitlines()[-_TAIL_LINES:])
                message = f"`tidemark {verb}` ended with status {child.status}; the end of {self._log_path(verb)}:\n{tail}"
                raise JobEndedError(message)

    def _log_path(self, verb: str) -> Path:
        return self._folder / f"{verb}.log"


class Milestones:
    """What has come for the first time, said once each: the first rows in the sinks, then every table consistent.

    A thread looks while it is entered: a broker that does not answer holds up nobody else. The end does not wait for it.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="milestones", daemon=True)
        self._began_s = time.monotonic()
        self._reached: set[str] = set()
        self._observer: Observer | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(_LAST_LOOK_S)

    def _watch(self) -> None:
        try:
            while not self._ended.wait(_LOOK_S):
                for line in self._look():
                    self._say(line)
        finally:
            if self._observer is not None:
                self._observer.close()

    def _look(self) -> Iterator[str]:
        """Yield a line for each milestone that is new. What cannot be asked yet has not come."""
        try:
            self._observer = self._observer or Observer(self._settings)
            statuses = self._observer.read_each()
        except TidemarkError:
            return
        after = f"after {time.monotonic() - self._began_s:.1f} s"
        for name, status in statuses.items():
            rows = sum(table.sink_rows or 0 for table in status.tables)
            wanted = [table for table in status.tables if not (table.released or table.skipped)]
            if rows and self._is_new(f"rows {name}"):
                yield f"{name}: the first rows are in the sink, {rows:,} so far, {after}"
            if wanted and all(table.is_consistent for table in wanted) and self._is_new(f"all {name}"):
                yield f"{name}: each of {len(wanted):,} tables is consistent, {after}"

    def _is_new(self, milestone: str) -> bool:
        if milestone in self._reached:
            return False
        self._reached.add(milestone)
        return True
