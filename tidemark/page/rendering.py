"""Templates with the page's way of writing numbers and times: what is not known is a dash or a sentence, never a zero."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


class Templates:
    """The templates of a folder. A view is `<view>.html`, whose part that is renewed is `parts/<view>.html`."""

    def __init__(self, folder: Path) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters |= {
            "ago": ago, "bytes": size, "clock": clock, "count": count, "percent": percent, "rate": rate, "seconds": seconds,
            "word": word,
        }  # fmt: skip

    def page(self, view: str, context: dict[str, Any]) -> str:
        """Return a whole page."""
        return self._environment.get_template(f"{view}.html").render(context)

    def part(self, view: str, context: dict[str, Any]) -> str:
        """Return the part of a view that is renewed."""
        return self._environment.get_template(f"parts/{view}.html").render(context)


def count(value: int | None) -> str:
    """Return `1,234`, or a dash."""
    return "–" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Return a duration: `1.5 s`, `12 min`, `3.0 h`, `2.0 days`, or `unknown`."""
    if value is None:
        return "unknown"
    if value < 120:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 172_800 else f"{value / 86_400:.1f} days"


def ago(at_ms: int | None) -> str:
    """Return how long ago a time is, by the clock of this machine; a time that is to come says that the clocks differ."""
    if at_ms is None:
        return "never, as far as is known"
    age_s = time.time() - at_ms / 1000
    return f"{seconds(age_s)} ago" if age_s >= 0 else f"{seconds(-age_s)} ahead of this machine's clock"


def clock(at_ms: int | None) -> str:
    """Return a time of the day with its date, in UTC."""
    return "–" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def size(value: float | None) -> str:
    """Return a number of bytes: `1.5 MiB`."""
    if value is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def rate(value: float | None) -> str:
    """Return a number per second."""
    return "unknown" if value is None else f"{value:,.0f}/s"


def percent(value: float | None) -> str:
    """Return a share, rounded down: 100 % is all."""
    return "unknown" if value is None else f"{int(value * 100)} %"


def word(value: str) -> str:
    """Return a word of a document for a person."""
    return value.replace("_", " ")
