"""Templates with the filters that write numbers and times: the unknown is a dash or a sentence, never a zero."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from schemas import readable


class Templates:
    """The templates of a folder. A view is `<view>.html`, whose part that is renewed is `parts/<view>.html`."""

    def __init__(self, folder: Path) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters |= {
            "age": _age, "ago": _ago, "bytes": readable.size, "clock": _clock, "count": _count, "percent": readable.percent,
            "rate": readable.rate, "seconds": readable.duration, "skew": readable.skew, "word": _word,
        }  # fmt: skip

    def page(self, view: str, context: dict[str, Any]) -> str:
        """Return a whole page."""
        return self._environment.get_template(f"{view}.html").render(context)

    def part(self, view: str, context: dict[str, Any]) -> str:
        """Return the part of a view that is renewed."""
        return self._environment.get_template(f"parts/{view}.html").render(context)


def _ago(at_ms: int | None) -> str:
    return "never, as far as is known" if at_ms is None else readable.ago(time.time() * 1000 - at_ms)


def _age(seconds: float | None) -> str:
    return "unknown" if seconds is None else readable.ago(seconds * 1000)


def _clock(at_ms: int | None) -> str:
    return "–" if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _count(value: int | None) -> str:
    return readable.count(value, "–")


def _word(value: str) -> str:
    return value.replace("_", " ")
