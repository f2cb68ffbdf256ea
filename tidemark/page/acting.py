"""What the page does for somebody who may act: signals, put where the producer hears them. A form or JSON enters, an id leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from schemas import signals
from schemas.errors import ConfigError
from tidemark.api import sending

if TYPE_CHECKING:
    from schemas.settings import Settings
    from tidemark.page.signal_answers import SignalAnswers

PREFIX: Final = "page"
SENT: Final = re.compile("page-[0-9a-f]{12}")
"""The ids of signals that the page sends."""
ACTIONS: Final = {
    "start": signals.EXECUTE_SNAPSHOT,
    "stop": signals.STOP_SNAPSHOT,
    "pause": signals.PAUSE_SNAPSHOT,
    "resume": signals.RESUME_SNAPSHOT,
}


def signal_of_form(action: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the signal that a form of the page means, as JSON has it.

    `tables` are patterns on `database.table`, one per line; `where` is a condition on all of them. All snapshots are stopped by a
    form only that says so (`all`). Raises `ConfigError` for a form that means nothing.
    """
    kind = ACTIONS.get(action)
    if kind is None:
        message = f"there is no action {action!r}; there are {', '.join(ACTIONS)}"
        raise ConfigError(message)
    if action in ("pause", "resume"):
        return {"type": kind}
    patterns = [part for line in form.get("tables", "").splitlines() if (part := line.strip())]
    if not patterns and not (action == "stop" and form.get("all")):
        message = "tables: give at least one pattern, for example shop\\.orders"
        raise ConfigError(message)
    data: dict[str, Any] = {"type": "INCREMENTAL"}
    if patterns:
        data["data-collections"] = patterns
    if (where := form.get("where", "").strip()) and action == "start":
        data["additional-conditions"] = [{"data-collection": one, "filter": where} for one in patterns]
    return {"type": kind, "data": data}


def send_signal(settings: Settings, answers: SignalAnswers, signal: tuple[str, str, str | None]) -> str:
    """Put a signal (id, type, data) where the producer reads it, and return its id; raises what `sending.send` does."""
    answers.send(signal[0], lambda: sending.send(sending.lasting(settings), settings, *signal))
    return signal[0]
