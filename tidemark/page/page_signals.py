"""The signals that a person sends with the page, and the producer's answers: each is awaited on a thread, and kept for the view."""

from __future__ import annotations

import re
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import structlog

from schemas import signals
from schemas.errors import ConfigError, TidemarkError
from tidemark.api.notification_reader import NotificationReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from schemas.settings import Settings

log = structlog.get_logger(__name__)

PREFIX: Final = "page"
SENT: Final = re.compile("page-[0-9a-f]{12}")
"""The ids of signals that the page sends."""
ACTIONS: Final = {
    "start": signals.EXECUTE_SNAPSHOT,
    "stop": signals.STOP_SNAPSHOT,
    "pause": signals.PAUSE_SNAPSHOT,
    "resume": signals.RESUME_SNAPSHOT,
}
ANSWER_S: Final = 60.0
_KEPT: Final = 50


def signal_of_form(action: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the signal that a form of the page means, as JSON has it.

    `tables` are patterns on `database.table`, one per line; `where` is a condition on all of them. All snapshots are stopped by a
    form only that says so (`all`). Raises `ConfigError` for a form that means nothing.
    """
    kind = ACTIONS.get(action)
    if kind is None:
        raise ConfigError(f"there is no action {action!r}; there are {', '.join(ACTIONS)}")
    if action in ("pause", "resume"):
        return {"type": kind}
    patterns = [part for line in form.get("tables", "").splitlines() if (part := line.strip())]
    if not patterns and not (action == "stop" and form.get("all")):
        raise ConfigError("tables: give at least one pattern, for example shop\\.orders")
    data: dict[str, Any] = {"type": "INCREMENTAL"}
    if patterns:
        data["data-collections"] = patterns
    if (where := form.get("where", "").strip()) and action == "start":
        data["additional-conditions"] = [{"data-collection": one, "filter": where} for one in patterns]
    return {"type": kind, "data": data}


class SignalAnswers:
    """The answers by the id of the signal; the oldest are forgotten."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._answers: dict[str, dict[str, Any]] = {}

    def send(self, signal_id: str, send: Callable[[], None]) -> None:
        """Send a signal, and wait on a thread for its answer: it is read from before the signal on, so none is missed."""
        stack = ExitStack()
        try:
            reader = stack.enter_context(NotificationReader(self._settings))
        except TidemarkError as error:
            send()
            self._note(signal_id, "unknown", f"the answer cannot be read: {error}")
            return
        try:
            send()
        except BaseException:
            stack.close()
            raise
        self._note(signal_id, "awaited", "")
        threading.Thread(target=self._wait, args=(signal_id, reader, stack), name="signal-answer", daemon=True).start()

    def of(self, signal_id: str) -> dict[str, Any]:
        """Return what the producer answered: `accepted` or `rejected` with the reason; else `awaited` or `unknown`, and why."""
        with self._lock:
            return self._answers.get(signal_id, {"answer": "unknown", "reason": "this page does not remember the signal"})

    def _note(self, signal_id: str, answer: str, reason: str) -> None:
        with self._lock:
            self._answers[signal_id] = {"answer": answer, "reason": reason}
            while len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]

    def _wait(self, signal_id: str, reader: NotificationReader, stack: ExitStack) -> None:
        silence = f"the producer has not answered within {ANSWER_S:.0f} s: does it run? It reads the signal when it does"
        try:
            with stack:
                notification = reader.answer(signal_id, time.monotonic() + ANSWER_S)
            if notification is None:
                self._note(signal_id, "unknown", silence)
            else:
                self._note(signal_id, notification.type.lower(), notification.additional_data.get("reason", ""))
        except TidemarkError as error:
            self._note(signal_id, "unknown", f"the answer cannot be read: {error}")
        except Exception as error:  # else the view would say for ever that it is awaited
            log.exception("page.answer_not_read")
            self._note(signal_id, "unknown", f"the answer cannot be read: {error!r}")
