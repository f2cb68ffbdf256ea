"""What looks at a pipeline for the page: one of each, for as long as the page runs."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from schemas.errors import TidemarkError
from schemas.json_codec import encode
from tidemark.api.replication_reader import ReplicationWatch
from tidemark.doctor.examination import examine
from tidemark.page.kept_schemas import KeptSchemas
from tidemark.page.live_changes import LiveChanges
from tidemark.page.page_facts import FactsWatch
from tidemark.page.page_signals import SignalAnswers
from tidemark.page.sink_details import Retries
from tidemark.process.config import DEFAULT_PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.settings import Settings, TaskSettings

log = structlog.get_logger(__name__)

_NOTHING: Final[dict[str, Any]] = {"findings": [], "checked": [], "unchecked": {}, "began_ms": None, "ended_ms": None}
_AT_LEAST_S: Final = 10.0
"""An examination that is younger is not repeated: it asks every server."""


class Parts:
    """Facts, groups and tasks, changes, schemas, checks and answers to signals, while entered."""

    def __init__(self, settings: Settings, config_path: str = DEFAULT_PATH, tasks: Sequence[TaskSettings] = ()) -> None:
        self.replication = ReplicationWatch(tasks, settings)
        self.retries = Retries(config_path)
        self.facts = FactsWatch(settings)
        self.changes = LiveChanges(settings)
        self.schemas = KeptSchemas(settings)
        self.checks = Checks(settings)
        self.answers = SignalAnswers(settings)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.facts)
        self._stack.enter_context(self.replication)
        self._stack.enter_context(self.changes)
        self._stack.enter_context(self.schemas)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Checks:
    """The examinations of `tidemark doctor`, one at a time, on a thread: the first view starts one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._document: dict[str, Any] | None = None
        self._ended_s = 0.0
        self._is_running = False

    def latest(self, *, again: bool) -> dict[str, Any]:
        """Return the newest examination (`findings`, `checked`, `unchecked`, `began_ms`, `ended_ms`), and whether one runs now."""
        with self._lock:
            is_due = self._document is None or (again and time.monotonic() - self._ended_s > _AT_LEAST_S)
            if is_due and not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="checks", daemon=True).start()
            found = {**_NOTHING, **(self._document or {}), "running": self._is_running}
        unknown = "" if found["ended_ms"] else "the checks run for the first time"
        return {**found, "as_of_ms": found["began_ms"], "unknown": unknown}

    def _run(self) -> None:
        began_ms = time.time_ns() // 1_000_000
        try:
            document = encode(examine(self._settings))
        except TidemarkError as error:
            document = {"findings": [], "checked": [], "unchecked": {"all": str(error)}}
        except Exception as error:  # else the view would say for ever that the checks run
            document = {"findings": [], "checked": [], "unchecked": {"all": f"{error!r}; see the log of `tidemark page`"}}
            log.exception("page.checks_failed")
        with self._lock:
            self._document = {**document, "began_ms": began_ms, "ended_ms": time.time_ns() // 1_000_000}
            self._ended_s, self._is_running = time.monotonic(), False
