"""Fields without a known meaning that a reader may pass over, because the protocol says so: logged once each."""

from __future__ import annotations

from functools import cache

import structlog

log = structlog.get_logger(__name__)


@cache
def note_passed_field(event: str, code: int) -> None:
    """Log, once in a process, that a field of that code is passed over. `event` says of which kind of event."""
    log.info("log.field_passed", event_kind=event, code=code)
