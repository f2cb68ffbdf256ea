"""The stored result: a run replaces what it measured and nothing else, and a worse ratio of CPU is a failure with its reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from bench import performance_table, plot, stored_result
from bench.bench_figures import OURS, Figure, Found, line, line_of_sinks, median


def figure(cpu_us: float, rate: float = 100_000.0, **extra: float) -> Figure:
    return Figure(1_000, 1_000 / rate, cpu_us * 1_000 / 1e6, 200.0, extra)


def found(ours: float, theirs: float = 20.0, limit: float = 1.5) -> Found:
    return {OURS: [figure(ours)], "debezium": [figure(theirs, 20_000)], "limit: librdkafka, the same bytes": [figure(limit)]}


def workload(name: str, *figures: float) -> stored_result.Document:
    return stored_result.measured_workload(name, found(*figures), "debezium", 1_000)


def test_a_run_of_one_workload_keeps_the_others_with_their_dates_and_commits(tmp_path: Path) -> None:
    first = {"catchup-batched": workload("catchup-batched", 2.0), "latency-200": workload("latency-200", 9.0)}
    first["latency-200"] |= {"date": "2026-01-01T00:00:00+00:00", "commit": "abc1234"}
    stored_result.store(tmp_path, first, "mysql80")
    stored_result.store(tmp_path, {"catchup-batched": workload("catchup-batched", 1.0)}, "mysql80")
    document = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert list(document["workloads"]) == ["catchup-batched", "latency-200"]
    assert document["workloads"]["latency-200"] == first["latency-200"]
    assert document["workloads"]["catchup-batched"]["tools"][OURS]["median"]["cpu_us_per_row"] == 1.0
    assert document["workloads"]["catchup-batched"]["rows"] == 1_000
    assert document["machine"]["server"] == "mysql80"


def test_worse_than_the_stored_ratio_by_more_than_the_tolerance_is_reported() -> None:
    stored = {"workloads": {"catchup-batched": workload("catchup-batched", 2.0)}}
    (words,) = stored_result.worse(stored, {"catchup-batched": workload("catchup-batched", 2.7)})
    assert words.startswith("catchup-batched: CPU per row is more than 30% worse than the stored result: 0.135 of debezium")
    assert stored_result.worse(stored, {"catchup-batched": workload("catchup-batched", 2.5)}) == []
    assert stored_result.worse(stored, {"catchup-batched": workload("catchup-batched", 2.5)}, tolerance=0.1) != []


def test_a_slower_machine_is_no_regression() -> None:
    stored = {"workloads": {"catchup-batched": workload("catchup-batched", 2.0)}}
    assert stored_result.worse(stored, {"catchup-batched": workload("catchup-batched", 6.0, 60.0, 4.5)}) == []


def test_one_tool_that_was_lucky_is_no_regression() -> None:
    stored = {"workloads": {"catchup-batched": workload("catchup-batched", 2.0)}}
    assert stored_result.worse(stored, {"catchup-batched": workload("catchup-batched", 2.0, 5.0, 1.5)}) == []


def test_what_cannot_be_compared_is_no_regression() -> None:
    alone = stored_result.measured_workload("x", {OURS: [figure(9.0)]}, None, 1_000)
    assert stored_result.worse({}, {"x": workload("x", 9.0)}) == []
    assert stored_result.worse({"workloads": {"x": workload("x", 2.0)}}, {"x": alone}) == []


def of_sinks(delta: float, iceberg: float) -> stored_result.Document:
    tools: Found = {
        "tidemark into delta": [figure(delta)],
        "tidemark into delta (cold)": [figure(90.0)],
        "tidemark into iceberg": [figure(iceberg, 50_000)],
        "server of mysql": [figure(3.0)],
    }
    return stored_result.measured_workload("merge-sinks", tools, None, 1_000, "tidemark into delta")


def test_sinks_are_divided_by_the_base_and_judged_each_alone() -> None:
    before = of_sinks(10.0, 20.0)
    assert before["line"] == (
        "bench: merge-sinks delta 10.00 µs a row, 100,000 rows/s; iceberg cpu x2.00 rate x0.50; server of mysql cpu x0.30"
    )
    alone = line_of_sinks("merge-sinks", {"tidemark into iceberg": [figure(20.0)]}, "tidemark into delta")
    assert alone == "bench: merge-sinks iceberg 20.00 µs a row, 100,000 rows/s"
    stored = {"workloads": {"merge-sinks": before}}
    (words,) = stored_result.worse(stored, {"merge-sinks": of_sinks(10.0, 27.0)})
    assert "tidemark into iceberg has 2.700 of tidemark into delta (stored: 2.000)" in words
    assert stored_result.worse(stored, {"merge-sinks": of_sinks(30.0, 75.0)}) == []
    page = performance_table.table({"machine": stored_result.machine("mysql80"), "workloads": {"merge-sinks": before}})
    assert "| `merge-sinks` | **tidemark into delta** | 100,000 | 10.00 | 200 |  |  |" in page
    assert "| `merge-sinks` | tidemark into iceberg | 50,000 | 20.00 | 200 | × 2.00 |  |" in page


def test_the_plot_is_an_image_with_every_tool_and_its_figures() -> None:
    document = {"machine": stored_result.machine("mysql80"), "workloads": {"catchup-batched": workload("catchup-batched", 2.0)}}
    picture = plot.svg(document)
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own text
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"catchup-batched", OURS, "debezium", "librdkafka, the same bytes", "20 k", "100 k"} <= set(words)
    assert plot.bar({"a": 10.0, "limit: b": 1_000.0}, "limit: b") == (290, True)
    assert plot.bar({"a": 10.0, "limit: b": 1_000.0}, "a") == (232, False)
    assert [plot.short(value) for value in (0.123, 1.94, 43.7, 999, 84_865, 1_234_567)] == [
        "0.123", "1.94", "43.7", "999", "84.9 k", "1.23 M",
    ]  # fmt: skip
    assert [plot.colour_of(name) for name in ("tidemark run", "debezium", "limit: SELECT")] == ["#0b6bcb", "#c26a00", "#8a94a0"]


def test_the_line_of_a_workload_has_both_ratios_and_how_late_rows_were() -> None:
    late: Found = {OURS: [figure(2.0, p50_ms=5.0, p99_ms=20.5)], "debezium": [figure(20.0, 20_000, p50_ms=6.0, p99_ms=100.0)]}
    assert line("latency-200", late, "debezium") == (
        "bench: latency-200 cpu x10.00 rate x5.00 (debezium), p50 5.0 ms p99 20.5 ms against 6.0 and 100.0"
    )
    assert line("x", found(2.0), "debezium") == "bench: x cpu x10.00 rate x5.00 (debezium)"
    assert median([figure(1.0), figure(9.0), figure(2.0)]).cpu_us == 2.0


def test_the_table_of_the_page_is_that_of_the_stored_result() -> None:
    page = performance_table.PAGE.read_text(encoding="utf-8")
    document = json.loads(performance_table.RESULT.read_text(encoding="utf-8"))
    assert page == performance_table.with_table(page, performance_table.table(document)), "run `python -m bench.performance_table`"


def test_every_stored_workload_is_one_that_can_be_run() -> None:
    source = (performance_table.ROOT / "bench" / "suite.py").read_text(encoding="utf-8")
    known = set(re.findall(r'^    "([a-z0-9-]+)": Workload\(', source, re.MULTILINE))
    assert set(json.loads(performance_table.RESULT.read_text(encoding="utf-8"))["workloads"]) <= known
