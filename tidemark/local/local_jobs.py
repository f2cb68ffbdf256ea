"""`tidemark run`, `merge` and `page` as child processes with their logs in files; and how far they have come."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from devservers.processes import GuardedProcess
from schemas.errors import TidemarkError
from schemas.readable import counted
from tidemark.api.observer_loop import ObserverLoop
from tidemark.status.lags import Word, lags_of

if TYPE_CHECKING:
    from schemas.liveness import Sign
    from schemas.settings import Settings
    from tidemark.api.observe import Observer
    from tidemark.status.status_tree import Status, TableStatus

_ENDS_S: Final = 2.5
"""For all jobs: the servers need the rest of the five seconds."""
_TAIL_LINES: Final = 15
_LOOK_S: Final = 1.0
_LAST_LOOK_S: Final = 0.5
_QUIET_S: Final = 10.0
"""So long nothing may be said before everything has caught up."""
_NAMED: Final = 5
_LINE: Final = 400
_OF_EVERY_LINE: Final = frozenset({"event", "level", "timestamp", "thread", "exception", "sink"})


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

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + _ENDS_S
        for child in self._children.values():
            if not child.wait(max(0.1, deadline - time.monotonic())):
                child.signal(signal.SIGKILL)

    def said(self, verb: str) -> str:
        """Return what a job has written to its log since this start."""
        return self.said_behind(verb, 0).decode("utf-8", "replace")

    def said_behind(self, verb: str, read: int) -> bytes:
        """Return what a job has written since this start, without so many bytes at the beginning."""
        with self._log_path(verb).open("rb") as log:
            log.seek(self._begins[verb] + read)
            return log.read()

    def check(self) -> None:
        """Raise `JobEndedError` with the end of its log when a job has ended by itself."""
        for verb, child in self._children.items():
            if child.status is not None:
                tail = "\n".join(f"  {line}" for line in self.said(verb).splitlines()[-_TAIL_LINES:])
                message = f"`tidemark {verb}` ended with status {child.status}; the end of {self._log_path(verb)}:\n{tail}"
                raise JobEndedError(message)

    def _log_path(self, verb: str) -> Path:
        return self._folder / f"{verb}.log"


@contextmanager
def compiled_ahead(folder: Path, *, for_workers: bool) -> Iterator[None]:
    """Compile kernels meanwhile, if they are not yet: who needs them waits for that, and loads them.

    The first start of a version needs half a minute of a core for it, which is free while servers are asked and started.
    """
    command = [sys.executable, "-m", "tidemark.local.compile_codec", *(["workers"] if for_workers else [])]
    child = GuardedProcess.spawn(command, folder / "compiler.log", cwd=Path.cwd(), env=os.environ)
    try:
        yield
    finally:
        child.kill()


class Milestones(ObserverLoop):
    """Milestones that come for the first time since this start, each said once.

    That it continues an earlier run, that tables are being read, the first rows in the sinks, what needs a person, and that a sink
    has caught up. Only reports of jobs of this start count: those of an earlier run say nothing of now. A broker that does not
    answer holds up nobody else, and the end does not wait for it.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        super().__init__(settings, self._read_once, "milestones", _LOOK_S, first_s=_LOOK_S, join_s=_LAST_LOOK_S)
        self._say = say
        self._began_s, self._began_ms = time.monotonic(), int(time.time() * 1000)
        self._said_s = self._began_s
        self._reached: set[str] = set()
        self._before: dict[str, int] = {}

    def _read_once(self, observer: Observer) -> None:
        """Say each milestone that is new, and after a while without one what is awaited."""
        try:
            statuses = observer.read_each(oldest=True)
        except TidemarkError:
            lines, awaited = [], "waits for Kafka and the producer"
        else:
            lines = [line for name, status in statuses.items() for line in self.reached(name, status)]
            awaited = "; ".join(filter(None, (self.awaited_of(name, status) for name, status in statuses.items())))
        if awaited and not lines and time.monotonic() - self._said_s > _QUIET_S:
            lines = [awaited]
        for line in lines:
            self._say(line)
            self._said_s = time.monotonic()

    def awaited_of(self, name: str, status: Status) -> str:
        """Return what is awaited before a sink has caught up for the first time; "" after that."""
        if f"all {name}" in self._reached or (not status.has_sink and "reading" in self._reached):
            return ""
        if not self._is_of_this_start(status.sign):
            return "waits for the producer, which starts"
        if status.has_sink and not self._is_of_this_start(status.merge_sign):
            return f"{name}: waits for the merge job, which starts Spark"
        rows = sum(table.rows_read for table in status.tables if table.is_snapshotting)
        reading = f", {rows:,} rows read of tables that are being read" if rows else ""
        return f"{name}: waits for the first batches{reading}: producer {status.producer().text}; merge job {status.merge.text}"

    def reached(self, name: str, status: Status) -> Iterator[str]:
        """Yield what is new of a sink."""
        after = f"after {time.monotonic() - self._began_s:.1f} s"
        records = sum(table.sink_rows or 0 for table in status.tables)
        before = self._before.setdefault(name, records)
        if before and self._is_new(f"continues {name}"):
            yield f"{name}: continues where it ended: {before:,} records were merged before"
        if not self._is_of_this_start(status.sign):
            return
        reading = [table.table for table in status.tables if table.is_snapshotting]
        if reading and self._is_new("reading"):
            yield f"reading {counted(len(reading), 'table')}: {', '.join(reading[:_NAMED])}"
        verdict = lags_of(status).verdict
        if verdict.word is Word.NEEDS_A_PERSON and self._is_new(f"asks {verdict.reasons[0].partition(':')[0]}"):
            yield f"{name}: needs a person: {verdict.reasons[0]}"
        if status.has_sink and not self._is_of_this_start(status.merge_sign):
            return
        if records > before and self._is_new(f"rows {name}"):
            yield f"{name}: {'new' if before else 'the first'} rows are in the sink, {records - before:,} so far, {after}"
        wanted = [table for table in status.tables if not (table.released or table.skipped)]
        well = [table for table in wanted if table.is_consistent]
        is_well = verdict.word in (Word.RUNNING, Word.NEEDS_A_PERSON)
        if well and is_well and not any(_is_awaited(table) for table in wanted) and self._is_new(f"all {name}"):
            of = "each" if len(well) == len(wanted) else f"{len(well):,}"
            yield f"{name}: has caught up, {of} of {len(wanted):,} tables consistent, {after}"

    def _is_of_this_start(self, sign: Sign | None) -> bool:
        return sign is not None and sign.at_ms >= self._began_ms and sign.state != "ended"

    def _is_new(self, milestone: str) -> bool:
        if milestone in self._reached:
            return False
        self._reached.add(milestone)
        return True


def _is_awaited(table: TableStatus) -> bool:
    """Return whether a table will be consistent by itself: it is being read, or what was read is being merged."""
    needs_a_person = table.set_aside is not None or table.inexact is not None or table.partial
    return table.is_snapshotting or (table.snapshot == "done" and not table.is_consistent and not needs_a_person)


class Complaints:
    """Warnings and errors in the logs of the jobs, as lines for a terminal, each once: who starts `up` looks at that alone."""

    def __init__(self, jobs: LocalJobs, verbs: Sequence[str]) -> None:
        self._jobs, self._verbs = jobs, verbs
        self._read: dict[str, int] = {}
        self._said: set[str] = set()

    def new(self) -> Iterator[str]:
        """Yield what is new."""
        for verb in self._verbs:
            read = self._read.get(verb, 0)
            whole, end, _ = self._jobs.said_behind(verb, read).rpartition(b"\n")
            self._read[verb] = read + len(whole) + len(end)
            for line in whole.splitlines():
                found = complaint(line.decode("utf-8", "replace"))
                if found and found not in self._said:
                    self._said.add(found)
                    yield f"{verb}: {found}"


def complaint(line: str) -> str:
    """Return a line of a log as text if it is a warning or an error, else ""."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(entry, dict) or entry.get("level") not in ("warning", "error", "critical"):
        return ""
    if entry.get("event") == "waiting.for_peer":
        return f"waits for {entry.get('what')} ({entry.get('peer')}, {entry.get('address')})"
    facts = [f"{key} {value}" for key, value in entry.items() if key not in _OF_EVERY_LINE and value not in ("", None)]
    return f"{entry.get('event')}: {', '.join(facts)}"[:_LINE]
