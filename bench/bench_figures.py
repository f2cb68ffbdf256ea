"""What one run of one tool gave, medians over the runs, ratios between tools, and their text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "tidemark"
SERVER = "server of "
"""Begins the name of what is no tool: the server that one writes to."""
COLD = " (cold)"
"""Ends the name of a tool whose process was started for the figure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of one tool; `extra` has percentiles and the like, `note` what is particular about it."""

    rows: int
    seconds: float
    cpu_s: float
    peak_mib: float
    extra: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per row."""
        return self.cpu_s / self.rows * 1e6 if self.rows else 0.0

    def document(self) -> dict[str, Any]:
        """Return the figure as it is stored."""
        return {
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "cpu_s": round(self.cpu_s, 3),
            "rows_per_s": round(self.rate),
            "cpu_us_per_row": round(self.cpu_us, 3),
            "peak_mib": round(self.peak_mib),
            **({"note": self.note} if self.note else {}),
            **{name: round(value, 3) for name, value in self.extra.items()},
        }


Found = dict[str, list[Figure]]
"""The figures of a workload by tool, in the order of the runs."""


def median(figures: Sequence[Figure]) -> Figure:
    """Return the medians of all that was measured."""

    def middle(name: str) -> float:
        return float(statistics.median(getattr(figure, name) for figure in figures))

    rows = figures[0].rows
    rate, cpu_us = middle("rate"), middle("cpu_us")
    names = [name for name in figures[0].extra if all(name in figure.extra for figure in figures)]
    extra = {name: float(statistics.median(figure.extra[name] for figure in figures)) for name in names}
    notes = ", ".join(sorted({figure.note for figure in figures if figure.note}))
    seconds = rows / rate if rate else 0.0
    return Figure(rows, seconds, cpu_us * rows / 1e6, middle("peak_mib"), extra, notes)


def table(found: Found) -> list[str]:
    """Return the lines of the table of one workload."""
    lines = [f"  {'tool':<34}{'rows/s':>12}{'CPU µs/row':>12}{'peak MiB':>10}"]
    for tool, figures in found.items():
        middle = median(figures)
        extra = "  ".join(f"{name} {value:,.1f}" for name, value in middle.extra.items())
        words = "  ".join(part for part in (extra, middle.note) if part)
        lines.append(f"  {tool:<34}{middle.rate:>12,.0f}{middle.cpu_us:>12.2f}{middle.peak_mib:>10,.0f}  {words}".rstrip())
    return lines


def line(workload: str, found: Found, peer: str | None) -> str:
    """Return the line of a workload: theirs divided by ours for CPU, ours divided by theirs for rates."""
    if OURS not in found:
        return f"bench: {workload} not measured"
    ours = median(found[OURS])
    if peer is None or peer not in found:
        return f"bench: {workload} {ours.cpu_us:.2f} µs a row, {ours.rate:,.0f} rows/s (no peer in this run)"
    theirs = median(found[peer])
    cpu = theirs.cpu_us / ours.cpu_us if ours.cpu_us else 0.0
    rate = ours.rate / theirs.rate if theirs.rate else 0.0
    return f"bench: {workload} cpu x{cpu:.2f} rate x{rate:.2f} ({peer}){_lag(ours, theirs)}"


def line_of_sinks(workload: str, found: Found, base: str) -> str:
    """Return the line of a workload in which all tools are ours: CPU and rate of each divided by those of `base`, if it has any."""
    own, parts = median(found[base]) if base in found else None, []
    for tool, figures in found.items():
        if tool.endswith(COLD):
            continue
        one = median(figures)
        if own is None or tool == base:
            parts.append(f"{_short(tool)} {one.cpu_us:.2f} µs a row, {one.rate:,.0f} rows/s")
        else:
            cpu = one.cpu_us / own.cpu_us if own.cpu_us else 0.0
            rate = "" if tool.startswith(SERVER) else f" rate x{one.rate / own.rate if own.rate else 0.0:.2f}"
            parts.append(f"{_short(tool)} cpu x{cpu:.2f}{rate}")
    return f"bench: {workload} {'; '.join(parts) or 'not measured'}"


def _short(tool: str) -> str:
    return tool.removeprefix(OURS).strip().removeprefix("into ")


def _lag(ours: Figure, theirs: Figure) -> str:
    """Return how late rows were at a consumer, where that was measured."""
    if "p99_ms" not in ours.extra or "p99_ms" not in theirs.extra:
        return ""
    one, other = ([figure.extra[name] for name in ("p50_ms", "p99_ms")] for figure in (ours, theirs))
    return f", p50 {one[0]:,.1f} ms p99 {one[1]:,.1f} ms against {other[0]:,.1f} and {other[1]:,.1f}"
