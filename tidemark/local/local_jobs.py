"""`tidemark run`, `merge` and `page` as child processes with their logs in files; and how far they have come."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from devservers.processes import GuardedProcess
from schemas.errors import TidemarkError
from tidemark.api.observe import Observer

if TYPE_CHECKING:
    from schemas.settings import Settings

_ENDS_S: Final = 6.0
_TAIL_LINES: Final = 15


class JobEndedError(TidemarkError):
    """A job has ended by itself."""


class LocalJobs:
    """The jobs, while entered. At the end each is asked to end, and killed where it does not."""

    def __init__(self, verbs: Sequence[str], config_path: str, folder: Path) -> None:
        self._verbs, self._config_path, self._folder = verbs, config_path, folder
        self._children: dict[str, GuardedProcess] = {}

    def __enter__(self) -> Self:
        for verb in self._verbs:
            command = [sys.executable, "-m", "tidemark", verb, "--config", self._config_path]
            self._children[verb] = GuardedProcess.spawn(command, self.log_path(verb), cwd=Path.cwd(), env=os.environ)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children.values():
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + _ENDS_S
        for child in self._children.values():
            if not child.wait(max(0.1, deadline - time.monotonic())):
                child.kill()

    def log_path(self, verb: str) -> Path:
        """Return the log of a job."""
        return self._folder / f"{verb}.log"

    def check(self) -> None:
        """Raise `JobEndedError` with the end of its log when a job has ended by itself."""
        for verb, child in self._children.items():
            if child.status is not None:
                log = self.log_path(verb)
                lines = log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:]
                tail = "\n".join(f"  {line}" for line in lines)
                raise JobEndedError(f"`tidemark {verb}` ended with status {child.status}; the end of {log}:\n{tail}")


class Milestones:
    """What has come for the first time, once each: the first rows in the sinks, then every table consistent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began_s = time.monotonic()
        self._reached: set[str] = set()
        self._observer: Observer | None = None

    def close(self) -> None:
        """Give the connections up."""
        if self._observer is not None:
            self._observer.close()

    def look(self) -> Iterator[str]:
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
