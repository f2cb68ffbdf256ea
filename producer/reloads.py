"""Reloads: `source.tables` and `source.exclude_tables` from the settings' file again, while the producer runs.

A reload is asked for by SIGHUP or by a signal. What enters: the file. What leaves: the settings of later starts, and for the
present start the change of its tables (`producer.recapture`). A file that is refused changes nothing: the reason is logged, and
answered.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import structlog

from producer.recapture import Recaptured, StartEndedError
from schemas.errors import ConfigError, SignalError, TidemarkError
from schemas.lasting import logged_errors
from schemas.notifications import Notification, signal_accepted, signal_rejected
from schemas.signals import RELOAD_TABLES, ReloadTables

if TYPE_CHECKING:
    from schemas.position import Position
    from schemas.settings import Settings, SourceSettings

log = structlog.get_logger(__name__)

_TAKEN: Final = ("tables", "exclude_tables")
_END_S: Final = 2.0


class RunningStart(Protocol):
    """A start of the producer, as far as reloads concern it: `producer.app.Producer`."""

    @property
    def source(self) -> SourceSettings:
        """What it captures."""

    def recapture(self, source: SourceSettings, adopted: Callable[[SourceSettings], None]) -> Recaptured:
        """Capture what these settings name (`Recapture.change`)."""

    def report(self, notification: Notification) -> None:
        """Send a notification."""


class Reloads:
    """The settings of a producer's starts, which a reload changes. A thread of its own carries reloads out while entered.

    `load` reads the file; without it nothing can be reloaded.
    """

    def __init__(self, settings: Settings, load: Callable[[], Settings] | None = None) -> None:
        self._settings = settings
        self._load = load
        self._lock = threading.Lock()
        self._start: RunningStart | None = None
        self._asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._asked.put(None)
        self._thread.join(_END_S)

    @property
    def settings(self) -> Settings:
        """The settings of the next start."""
        with self._lock:
            return self._settings

    def ask(self, signal_id: str = "") -> None:
        """Have the file read again; `signal_id` is the signal that is to be answered. Safe in a handler of the system's signals."""
        self._asked.put(signal_id)

    def handle(self, command: ReloadTables, position: Position, *, may_repeat: bool) -> bool:  # noqa: ARG002 - a handler
        """Carry the signal out; it is answered when that is done, so not now."""
        if self._load is None or not self._thread.is_alive():
            message = "this producer was not started from a file, so there is none to read again"
            raise SignalError(message)
        self.ask(command.id)
        return False

    def started(self, start: RunningStart) -> None:
        """Note the present start. What changed while it was being opened is given to it now."""
        with self._lock:
            self._start = start
            is_late = _choice(start.source) != _choice(self._settings.source)
        if is_late:
            self._asked.put("")

    def ended(self) -> None:
        """Note that no start runs: the next one takes the settings as they are by then."""
        with self._lock:
            self._start = None

    # ---- the thread

    def _run(self) -> None:
        while not self._ended.is_set():
            signal_id = self._asked.get()
            if signal_id is not None and not self._ended.is_set():
                with logged_errors(log.exception, "tables.reload_failed"):  # the next reload needs the thread
                    self._reload(signal_id)

    def _reload(self, signal_id: str) -> None:
        try:
            done = self._apply(self._read())
        except TidemarkError as error:
            reason = str(error)
            log.error("tables.reload_refused", reason=reason, tables="as they were")  # noqa: TRY400 - it is the file, not the code
            self._answer(signal_rejected(self._settings.name, signal_id, RELOAD_TABLES, _now_ms(), reason))
            return
        except BaseException as error:
            reason = f"the reload failed: {error!r}; the producer's log has the trace"
            self._answer(signal_rejected(self._settings.name, signal_id, RELOAD_TABLES, _now_ms(), reason))
            raise
        log.info("tables.reloaded", entered=done.entered, left=done.left)
        answer = signal_accepted(self._settings.name, signal_id, RELOAD_TABLES, _now_ms())
        tables = {"entered": json.dumps(done.entered), "left": json.dumps(done.left)}
        self._answer(replace(answer, additional_data={**answer.additional_data, **tables}))

    def _read(self) -> SourceSettings:
        """Return what the file says of tables, and the rest as it is; `ConfigError` where the file is wrong."""
        if self._load is None:
            message = "this producer was not started from a file, so there is none to read again"
            raise ConfigError(message)
        found, known = self._load(), self.settings
        if found.name != known.name:
            message = f"name: the file is of {found.name!r}, this producer is {known.name!r}"
            raise ConfigError(message)
        others = _differing(known, found)
        if others:
            log.warning("reload.left_for_restart", settings=others, advice="a reload takes the tables alone: restart for the rest")
        return replace(known.source, **{name: getattr(found.source, name) for name in _TAKEN})

    def _apply(self, source: SourceSettings) -> Recaptured:
        """Give the tables to the present start, or to the next one."""
        while not self._ended.is_set():
            with self._lock:
                start = self._start
                if start is None:
                    self._settings = replace(self._settings, source=source)
                    return Recaptured()
            try:
                return start.recapture(source, self._adopt)
            except StartEndedError:
                with self._lock:
                    if self._start is start:
                        self._start = None
        return Recaptured()

    def _adopt(self, source: SourceSettings) -> None:
        with self._lock:
            self._settings = replace(self._settings, source=source)

    def _answer(self, notification: Notification) -> None:
        with self._lock:
            start = self._start
        if notification.id and start is not None:  # SIGHUP has no id, and the log says it
            start.report(notification)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _choice(source: SourceSettings) -> tuple[object, ...]:
    return tuple(getattr(source, name) for name in _TAKEN)


def _differing(known: Settings, found: Settings) -> list[str]:
    """Return the settings that differ besides those of a reload, by section, and by key in `source`."""
    sections: list[tuple[str, Any, Any]] = [(one.name, getattr(known, one.name), getattr(found, one.name)) for one in fields(known)]
    names = [name for name, old, new in sections if name != "source" and old != new]
    source = [one.name for one in fields(known.source) if getattr(known.source, one.name) != getattr(found.source, one.name)]
    return [*names, *(f"source.{name}" for name in source if name not in _TAKEN)]
