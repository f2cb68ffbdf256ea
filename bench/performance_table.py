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
_TIMES: dict[tuple[str, ...], str] = {
    ("p50_ms", "p99_ms"): "commit to consumer {:,.1f} / {:,.1f} ms",
    ("p50 s", "p99 s"): "commit to lake {:.1f} / {:.1f} s",
    ("longest batch s",): "longest batch {:.1f} s",
    ("current s",): "all current after {:.1f} s",
    ("from_start_s",): "{:.1f} s from its start",
}
"""What is said of figures of these names; two numbers of a delay are its p50 and p99."""
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
        "| workload | tool | rows/s | CPU µs a row | peak MiB | CPU against ours | times |",
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
    times = "; ".join(words.format(*(figure[one] for one in names)) for names, words in _TIMES.items() if set(names) <= set(figure))
    label = f"**{tool}**" if tool == base else tool
    times = f"{times} ({figure['note']})" if times and "note" in figure else times
    return f"| `{name}` | {label} | {figure['rows_per_s']:,} | {cpu:,.2f} | {figure['peak_mib']:,} | {ratio} | {times} |"


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
