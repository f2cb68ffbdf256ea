"""The signals that a person asks for with a form of the page (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas import signals
from schemas.errors import ConfigError

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
