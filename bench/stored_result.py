"""The stored result: JSON with the machine beside it, and bars as SVG."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.bench_figures import OURS, Found, line, median

_BAR, _LEFT, _WIDTH = 18, 300, 420
_PACKAGES = ("confluent-kafka", "numba", "numpy", "pyspark", "delta-spark", "deltalake", "mysql-replication")


def store(folder: Path, results: Mapping[str, Found], peers: Mapping[str, str | None], rows: int, server: str) -> None:
    """Write `result.json` and `result.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": _machine(server),
        "rows": rows,
        "workloads": {
            name: {
                "line": line(name, found, peers[name]),
                "tools": {
                    tool: {"median": median(figures).document(), "runs": [figure.document() for figure in figures]}
                    for tool, figures in found.items()
                },
            }
            for name, found in results.items()
        },
    }
    (folder / "result.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "result.svg").write_text(svg(results), encoding="utf-8")


def svg(results: Mapping[str, Found]) -> str:
    """Return bars of the CPU per row, one group for each workload."""
    parts, at = [], 10
    for name, found in results.items():
        at += _BAR + 8
        parts.append(f'<text x="8" y="{at}" font-weight="bold">{escape(name)}, µs of CPU a row</text>')
        values = {tool: median(figures).cpu_us for tool, figures in found.items()}
        most = max(values.values()) or 1.0
        for tool, value in values.items():
            at += _BAR
            colour = "#1f6feb" if tool == OURS else "#9aa4b2"
            width = max(1, round(value / most * _WIDTH))
            parts.append(f'<text x="{_LEFT - 8}" y="{at}" text-anchor="end">{escape(tool)}</text>')
            parts.append(f'<rect x="{_LEFT}" y="{at - 11}" width="{width}" height="13" fill="{colour}"/>')
            parts.append(f'<text x="{_LEFT + width + 6}" y="{at}">{value:.2f}</text>')
    size = f'width="{_LEFT + _WIDTH + 80}" height="{at + 20}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _machine(server: str) -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 30), 1),
        "load_at_end": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        "server": server,
        "kafka": "4.1.1",
        "debezium": "3.6.1.Final",
        "packages": {name: version(name) for name in _PACKAGES},
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
    }


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).resolve().parents[1]), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
