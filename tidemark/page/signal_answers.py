"""The producer's answers to signals that the page has sent: each is waited for on a thread, and kept for the view."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import structlog

from schemas.errors import TidemarkError
from tidemark.api.notification_reader import NotificationReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.settings import Settings

log = structlog.get_logger(__name__)

ANSWER_S: Final = 60.0
_KEPT: Final = 50


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
