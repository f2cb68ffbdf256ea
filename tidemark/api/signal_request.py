"""A signal as HTTP carries it, `{"type": …, "data": {…}, "id": …}`: the producer's endpoint and the page take the same (pure)."""

from __future__ import annotations

import json
import secrets

from schemas import signals
from schemas.errors import SignalError
from tidemark.api.sending import WIDEST_DATA, WIDEST_ID


def signal_of(document: object, prefix: str) -> tuple[str, str, str | None]:
    """Return id, type and data (JSON) of a request's body; without an id one that begins with the prefix.

    Raises `SignalError` for what is no signal, or is wider than the signal table.
    """
    if not isinstance(document, dict):
        raise SignalError("the body is not a JSON object")
    unknown = sorted(document.keys() - {"id", "type", "data"})
    if unknown:
        raise SignalError(f"the body has unknown members: {', '.join(unknown)}; there are id, type and data")
    kind, data = document.get("type"), document.get("data")
    signal_id = document.get("id", f"{prefix}-{secrets.token_hex(6)}")
    if not isinstance(kind, str):
        raise SignalError("type: is missing, or no text")
    if not isinstance(signal_id, str) or not 1 <= len(signal_id) <= WIDEST_ID or not _is_text(signal_id):
        raise SignalError(f"id: is no text of 1 to {WIDEST_ID} characters")
    text = data if data is None or isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    if text is not None and len(text) > WIDEST_DATA:
        raise SignalError(f"data: has {len(text)} characters, the signal table holds {WIDEST_DATA}")
    signals.parse_signal(signal_id, kind, text)
    return signal_id, kind, text


def _is_text(text: str) -> bool:
    """Return whether it holds whole characters only: JSON can escape halves of them, which no table takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
