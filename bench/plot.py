"""The stored result as a picture: for each workload CPU per row and rows per second, ours beside the peers and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from bench.bench_figures import OURS

_WIDTH, _LEFT, _CPU, _RATE, _BAR_WIDTH = 1060, 262, 272, 672, 290
_BAR, _GAP, _HEAD, _ROOM = 20, 34, 138, 1.25
_OURS, _PEER, _LIMIT = "#0b6bcb", "#c26a00", "#8a94a0"
_WORDS = ((_OURS, "Tidemark"), (_PEER, "peers"), (_LIMIT, "limits: the same bytes, moved by a program that does nothing else"))
_INK, _FAINT, _GRID = "#1b1f24", "#59636e", "#d8dee4"


def svg(document: Mapping[str, Any]) -> str:
    """Return the picture: two bars for each tool, shorter is better on the left, longer on the right."""
    parts, at = [_legend(document["machine"])], _HEAD
    for name, workload in document["workloads"].items():
        group, at = _group(name, workload, at)
        parts.append(group)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{at + 10}" viewBox="0 0 {_WIDTH} {at + 10}"'
        f' font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def colour_of(tool: str) -> str:
    """Return the colour of a tool: ours, a peer, or a limit."""
    if tool.startswith(OURS):
        return _OURS
    return _LIMIT if tool.startswith("limit: ") else _PEER


def short(value: float) -> str:
    """Return a figure with about three digits, large ones with a unit."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _legend(machine: Mapping[str, Any]) -> str:
    packages = machine.get("packages", {})
    versions = ", ".join(f"{name} {packages[name]}" for name in ("confluent-kafka", "pyspark", "deltalake") if name in packages)
    servers = f"{machine.get('server')}, Kafka {machine.get('kafka')}, Debezium {machine.get('debezium')}"
    parts = [
        _text(16, 30, "Tidemark beside its peers: make bench", size=18, weight="bold"),
        _text(16, 52, f"{machine.get('cores')} cores, servers included; {machine.get('memory_gib')} GiB; {servers}", colour=_FAINT),
        _text(16, 70, f"Python {machine.get('python')}, {versions}", colour=_FAINT),
    ]
    at = 16
    for colour, word in _WORDS:
        parts += [_rect(at, 86, 12, colour), _text(at + 18, 97, word)]
        at += 44 + 8 * len(word)
    parts.append(_text(_CPU, 126, "µs of CPU a row (shorter is better)", weight="bold"))
    parts.append(_text(_RATE, 126, "rows a second (longer is better)", weight="bold"))
    return "\n".join(parts)


def _group(name: str, workload: Mapping[str, Any], at: int) -> tuple[str, int]:
    """Return the bars of one workload, and where they end."""
    tools = {tool: figures["median"] for tool, figures in workload["tools"].items()}
    line = workload["line"].removeprefix(f"bench: {name} ").partition(", p50")[0].partition("; ")[0]
    when = f"{workload['rows']:,} rows, {workload['date'][:10]}, commit {workload['commit']}"
    parts = [
        f'<line x1="16" y1="{at}" x2="{_WIDTH - 16}" y2="{at}" stroke="{_GRID}"/>',
        _text(16, at + 20, name, size=14, weight="bold"),
        _text(_CPU, at + 20, line, weight="bold"),
        _text(_WIDTH - 16, at + 20, when, anchor="end", colour=_FAINT, size=11),
    ]
    at += 26
    late = {tool: one for tool, one in tools.items() if "p99_ms" in one}
    is_of_lag = name.startswith("latency")
    if is_of_lag:
        at += _BAR
        parts.append(_text(_RATE, at, "milliseconds to the consumer, p99 (shorter is better)", colour=_FAINT, size=11))
    right = {tool: one.get("p99_ms", 0.0) if is_of_lag else one["rows_per_s"] for tool, one in tools.items()}
    sides = ((_CPU, {tool: one["cpu_us_per_row"] for tool, one in tools.items()}), (_RATE, right))
    for tool in tools:
        at += _BAR
        weight = "bold" if tool == workload.get("base", OURS) else "normal"
        parts.append(_text(_LEFT, at, tool.removeprefix("limit: "), anchor="end", weight=weight, size=12))
        for x, values in sides:
            width, is_longer = bar(values, tool)
            words = ("▸ " if is_longer else "") + short(values[tool])
            if is_of_lag and x == _RATE and tool in late:
                words += f"  (p50 {short(late[tool]['p50_ms'])})"
            parts += [_rect(x, at - 11, width, colour_of(tool)), _text(x + width + 6, at, words, weight=weight, size=12)]
    if late and not is_of_lag:
        at += _BAR
        words = "; ".join(f"{tool} {short(one['p50_ms'])} / {short(one['p99_ms'])}" for tool, one in late.items())
        parts.append(_text(_CPU, at, f"rows of the log meanwhile, ms p50 / p99: {words}", colour=_FAINT, size=11))
    return "\n".join(parts), at + _GAP - _BAR + 4


def bar(values: Mapping[str, float], tool: str) -> tuple[int, bool]:
    """Return how long a bar is, and whether its value is beyond it: a limit may be far above all tools."""
    most = max((value for name, value in values.items() if not name.startswith("limit: ")), default=0.0) or 1.0
    share = values[tool] / (most * _ROOM)
    return max(1, round(min(share, 1.0) * _BAR_WIDTH)), share > 1


def _rect(x: int, y: int, width: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="13" rx="2" fill="{colour}"/>'


def _text(
    x: int, y: int, words: str, *, size: int = 13, weight: str = "normal", anchor: str = "start", colour: str = _INK
) -> str:
    more = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}"{more}>{escape(words)}</text>'
