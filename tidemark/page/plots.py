"""Plots as SVG that a template puts into a page: no script, colours by the style sheet, a sentence for who cannot see it (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from tidemark.page.lag_history import runs

WIDTH: Final = 720
HEIGHT: Final = 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 8, 12, 24
_STEPS: Final = (1, 2, 5)
_LINES: Final = 4
_WIDEST: Final = 40.0
_CLASSES: Final = ("major", "minor")
"""Of labels: a narrow screen shows every other one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot: its name, and points of a time (ms, Unix) and a value; None where the value is not known."""

    name: str
    points: Sequence[tuple[int, float | None]]


def line_plot(lines: Sequence[Line], begin_ms: int, end_ms: int, unit: str, label: str) -> Markup:
    """Return the lines over time; a gap is a time for which nothing is known. The first line has the class `line-0`."""
    known = [value for line in lines for _, value in line.points if value is not None]
    top = ceiling(max(known, default=0.0))
    body = [_grid(top, unit), _times(begin_ms, end_ms)]
    for number, line in enumerate(lines):
        for run in runs(list(line.points)):
            points = [(_x(at, begin_ms, end_ms), _y(value, top)) for at, value in run]
            if len(points) == 1:
                body.append(Markup('<circle class="line-{}" cx="{:.1f}" cy="{:.1f}" r="2"/>').format(number, *points[0]))
            else:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                body.append(Markup('<polyline class="line-{}" points="{}"/>').format(number, path))
    return _svg(body, label)


def stacked_bars(bars: Sequence[tuple[str, Sequence[float]]], unit: str, label: str) -> Markup:
    """Return a bar per entry, a title each, its parts one on the other. Class `part-0` is that of the lowest part."""
    top = ceiling(max((sum(parts) for _, parts in bars), default=0.0))
    width = min(_WIDEST, (WIDTH - _LEFT - _RIGHT) / max(len(bars), 1))
    body = [_grid(top, unit)]
    for number, (title, parts) in enumerate(bars):
        x, at, rects = _LEFT + number * width, 0.0, []
        for part, value in enumerate(parts):
            y0, y1 = _y(at, top), _y(at + value, top)
            at += value
            rects.append(
                Markup('<rect class="part-{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                    part, x + width * 0.1, y1, width * 0.8, max(0.0, y0 - y1)
                )
            )
        body.append(Markup("<g><title>{}</title>{}</g>").format(title, Markup("").join(rects)))
    return _svg(body, label)


def cells(states: Sequence[str], label: str) -> Markup:
    """Return a row of cells, one class each: the chunks of a table."""
    width = 720 / max(len(states), 1)
    body = [
        Markup('<rect class="chunk-{}" x="{:.2f}" y="0" width="{:.2f}" height="14"/>').format(state, number * width, width * 0.9)
        for number, state in enumerate(states)
    ]
    return Markup('<svg class="cells" viewBox="0 0 720 14" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
        label, Markup("").join(body)
    )


def ceiling(value: float) -> float:
    """Return the end of an axis: the next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    while True:
        for step in _STEPS:
            if step * power >= value:
                return step * power
        power *= 10


def _svg(body: Sequence[Markup], label: str) -> Markup:
    return Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, Markup("").join(body)
    )


def _x(at_ms: int, begin_ms: int, end_ms: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (at_ms - begin_ms) / max(end_ms - begin_ms, 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top


def _grid(top: float, unit: str) -> Markup:
    marks = []
    for number in range(_LINES + 1):
        value = top * number / _LINES
        y = _y(value, top)
        marks.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, WIDTH - _RIGHT, y, y))
        text = Markup('<text class="{}" x="{}" y="{:.1f}" text-anchor="end">{:g} {}</text>')
        marks.append(text.format(_CLASSES[number % 2], _LEFT - 6, y + 4, value, escape(unit)))
    return Markup("").join(marks)


def _times(begin_ms: int, end_ms: int) -> Markup:
    marks = []
    for number in range(5):
        at_ms = begin_ms + (end_ms - begin_ms) * number // 4
        anchor = ("start", "middle", "middle", "middle", "end")[number]
        text = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}"
        x = _x(at_ms, begin_ms, end_ms)
        label = Markup('<text class="{}" x="{:.1f}" y="{}" text-anchor="{}">{}</text>')
        marks.append(label.format(_CLASSES[number % 2], x, HEIGHT - 6, anchor, text))
    return Markup("").join(marks)
