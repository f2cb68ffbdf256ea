"""A value of a decoded row as text for a person (pure)."""

from __future__ import annotations

import json
from typing import Any


def value_text(value: Any) -> str:
    """Return a value: text as it is, bytes as `0x…`, None as NULL, structures as JSON, decimals and times as Python does."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=value_text)
    return str(value)
