"""Numbers, times and durations as a person reads them. The unknown is a word or a dash, never a zero (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

_MINUTES_FROM_S: Final = 600
_HOURS_FROM_S: Final = 10_800
_DAYS_FROM_S: Final = 172_800


def count(value: int | None, unknown: str = "-") -> str:
    """Return `1,234`, or a dash."""
    return unknown if value is None else f"{value:,}"


def counted(number: int, noun: str) -> str:
    """Return `1 table`, `1,234 tables`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float | None, digits: int = 1, unknown: str = "unknown") -> str:
    """Return `41.7 s`, with so many digits, or `12 min`, `3.0 h`, `2.0 days`."""
    if seconds is None:
        return unknown
    if seconds < _MINUTES_FROM_S:
        return f"{seconds:.{digits}f} s"
    if seconds < _HOURS_FROM_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < _DAYS_FROM_S else f"{seconds / 86_400:,.1f} days"


def ago(milliseconds: float, digits: int = 1) -> str:
    """Return an age by two clocks; one that is negative says that they differ."""
    age = duration(abs(milliseconds) / 1000, digits)
    return f"{age} ago" if milliseconds >= 0 else f"{age} ahead of this machine's clock"


def skew(us: int | None) -> str:
    """Return how far a clock is from another one."""
    return "unknown" if us is None else f"{duration(abs(us) / 1_000_000, 3)} {'ahead' if us >= 0 else 'behind'}"


def moment(milliseconds: int | None, unknown: str = "unknown") -> str:
    """Return a Unix time as text, UTC."""
    return unknown if milliseconds is None else f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


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


def percent(share: float | None) -> str:
    """Return a share, rounded down: 100 % is all."""
    return "unknown" if share is None else f"{int(share * 100)} %"


def aligned(rows: Iterable[Sequence[str]], indent: str = "", numbers: Collection[int] = ()) -> list[str]:
    """Return the rows as lines with columns below each other; those in `numbers` end at the right."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pads = [str.rjust if column in numbers else str.ljust for column in range(len(widths))]
    padded = ([pad(cell, width) for cell, pad, width in zip(row, pads, widths, strict=True)] for row in cells)
    return [indent + "  ".join(row).rstrip() for row in padded]
