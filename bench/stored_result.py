"""The stored result: JSON with the machine beside it, bars as SVG, and the comparison of a new run with it.

A run replaces the workloads that it measured and keeps the others. Each has the date, the commit and the rows of its own run.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.bench_figures import COLD, OURS, SERVER, Found, line, line_of_sinks, median
from bench.plot import svg

TOLERANCE = 0.3
"""So much worse may the ratio of a workload's CPU per row be than the stored one."""
_PACKAGES = ("confluent-kafka", "numba", "numpy", "pyspark", "delta-spark", "deltalake", "mysql-replication")
_NAME, _PLOT = "result.json", "result.svg"

Document = dict[str, Any]


def store(folder: Path, measured: Mapping[str, Document], server: str) -> None:
    """Write the measured workloads into `result.json` and draw `result.svg`; other workloads stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _NAME
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    document = merged(known, measured, machine(server))
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / _PLOT).write_text(svg(document), encoding="utf-8")


def measured_workload(name: str, found: Found, peer: str | None, rows: int, base: str | None = None) -> Document:
    """Return what is stored of one workload; `base` is the tool that others are divided by, where all are ours."""
    return {
        "line": line(name, found, peer) if base is None else line_of_sinks(name, found, base),
        "peer": peer,
        **({} if base is None else {"base": base}),
        "rows": rows,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "load_at_end": [round(load, 1) for load in os.getloadavg()],
        "tools": {
            tool: {"median": median(figures).document(), "runs": [figure.document() for figure in figures]}
            for tool, figures in found.items()
        },
    }


def merged(known: Document, measured: Mapping[str, Document], machine: Document) -> Document:
    """Return the stored result with the measured workloads in it, in the order in which they were first stored."""
    return {"machine": machine, "workloads": {**known.get("workloads", {}), **measured}}


def worse(stored: Document, measured: Mapping[str, Document], tolerance: float = TOLERANCE) -> list[str]:
    """Return a sentence for each workload whose CPU per row is worse than the stored one by more than `tolerance`.

    Machines differ, so what is compared is the ratio to other tools of the same run: to the peer, and to each limit that both
    runs have. One of them that is no worse is enough: a peer that was lucky is no regression of ours. Where all tools are ours,
    each is divided by the workload's `base` and judged alone.
    """
    found: list[str] = []
    for name, workload in measured.items():
        before = stored.get("workloads", {}).get(name)
        if before is None:
            continue
        if workload.get("base"):
            found += _worse_than_base(name, before, workload, tolerance)
            continue
        ratios = {
            tool: (_ratio(before, tool), _ratio(workload, tool))
            for tool in workload["tools"]
            if tool in before["tools"] and (tool == workload["peer"] or tool.startswith("limit: ")) and _ratio(before, tool)
        }
        if ratios and all(now > then * (1 + tolerance) for then, now in ratios.values()):
            words = ", ".join(f"{now:.3f} of {tool} (stored: {then:.3f})" for tool, (then, now) in ratios.items())
            found.append(f"{name}: CPU per row is more than {tolerance:.0%} worse than the stored result: {words}")
    return found


def _worse_than_base(name: str, before: Document, workload: Document, tolerance: float) -> Iterator[str]:
    """Yield a sentence for each tool of ours whose CPU, divided by that of the base, is worse than stored."""
    base = workload["base"]
    for tool in workload["tools"]:
        if tool == base or tool.startswith(SERVER) or tool.endswith(COLD):
            continue
        then, now = _ratio(before, base, tool), _ratio(workload, base, tool)
        if then and now > then * (1 + tolerance):
            yield (
                f"{name}: CPU per row is more than {tolerance:.0%} worse than the stored result: {tool} has {now:.3f} of {base} "
                f"(stored: {then:.3f})"
            )


def _ratio(workload: Document, tool: str, ours: str = OURS) -> float:
    """Return our CPU per row divided by that of a tool; 0 where one of them is unknown."""
    own, theirs = (workload["tools"].get(one, {}).get("median", {}).get("cpu_us_per_row", 0.0) for one in (ours, tool))
    return float(own / theirs) if theirs else 0.0


def machine(server: str) -> Document:
    """Return what the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 30), 1),
        "python": platform.python_version(),
        "server": server,
        "kafka": "4.1.1",
        "debezium": "3.6.1.Final",
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).resolve().parents[1]), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
