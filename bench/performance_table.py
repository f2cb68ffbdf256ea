"""The table of `docs/performance.md`, made from the stored result.

`python -m bench.performance_table` writes it between two comments of the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.bench_figures import OURS

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = ROOT / "docs" / "bench" / "result.json", ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by `python -m bench.performance_table` -->", "<!-- end of figures -->"


def table(document: Mapping[str, Any]) -> str:
    """Return the workloads and what each tool needed, as a table in Markdown."""
    machine = document["machine"]
    facts = (
        f"Machine: {machine['cores']} cores, {machine['memory_gib']} GiB; {machine['server']}, Kafka {machine['kafka']}, "
        f"Debezium {machine['debezium']}, Python {machine['python']}. All servers run on the same cores."
    )
    lines = [
        facts,
        "",
        "| workload | tool | rows/s | CPU µs a row | peak MiB | CPU against ours | commit to consumer, ms p50 / p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, workload in document["workloads"].items():
        base = workload.get("base", OURS)
        ours = workload["tools"].get(base, {}).get("median", {}).get("cpu_us_per_row", 0.0)
        for tool, figures in workload["tools"].items():
            lines.append(_row(name, tool, figures["median"], base, ours))
    lines += ["", "| workload | in one line | rows | date | commit |", "|---|---|---|---|---|"]
    for name, workload in document["workloads"].items():
        line = workload["line"].removeprefix(f"bench: {name} ")
        lines.append(f"| `{name}` | {line} | {workload['rows']:,} | {workload['date'][:10]} | {workload['commit']} |")
    return "\n".join(lines)


def _row(name: str, tool: str, figure: Mapping[str, Any], base: str, ours: float) -> str:
    cpu = figure["cpu_us_per_row"]
    ratio = "" if tool == base or not ours else f"× {cpu / ours:.2f}"
    lag = f"{figure['p50_ms']:,.1f} / {figure['p99_ms']:,.1f}" if "p99_ms" in figure else ""
    label = f"**{tool}**" if tool == base else tool
    return f"| `{name}` | {label} | {figure['rows_per_s']:,} | {cpu:,.2f} | {figure['peak_mib']:,} | {ratio} | {lag} |"


def with_table(page: str, table: str) -> str:
    """Return the page with the table between its two comments."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"the page has no {BEGIN} and {END}"
        raise ValueError(message)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> int:
    """Rewrite the table of the page."""
    document = json.loads(RESULT.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(document)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
