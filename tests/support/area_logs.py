"""What was logged about one area: threads that an earlier test has left still say something of theirs."""

from __future__ import annotations

from structlog.typing import EventDict


def of_area(said: list[EventDict], area: str) -> list[EventDict]:
    """Return the captured events of an area, as `log` is the one of `log.retention_short`."""
    return [entry for entry in said if str(entry["event"]).startswith(f"{area}.")]
