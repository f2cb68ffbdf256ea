"""The merge job's figures in Prometheus' text format, at `/metrics`: the job's extra has no client of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from schemas.delay_histogram import DelayHistogram
from schemas.overriding import override
from tidemark.api.health import HealthHandler

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_DELAYS: Final = "tidemark_commit_to_lake_seconds"


def metrics_text(delays: Mapping[str, Mapping[str, DelayHistogram]], not_ready: Mapping[str, str | None]) -> str:
    """Return the metrics. `delays` are by sink and table, from the commit at the source to that of the sink, since the start.

    `not_ready` has why no batch of a sink can run now, None where one can; it is empty while nothing has begun.
    """
    is_ready = bool(not_ready) and not any(not_ready.values())
    lines = [
        "# HELP tidemark_merge_ready 1 where /readyz says that batches can run now, else 0",
        "# TYPE tidemark_merge_ready gauge",
        f"tidemark_merge_ready {float(is_ready)}",
    ]
    if not_ready:
        lines += [
            "# HELP tidemark_merge_sink_ready 1 where batches of the sink can run now, else 0",
            "# TYPE tidemark_merge_sink_ready gauge",
        ]
    lines += [f'tidemark_merge_sink_ready{{sink="{_escaped(name)}"}} {float(why is None)}' for name, why in not_ready.items()]
    if any(delays.values()):
        lines += [
            f"# HELP {_DELAYS} From the commit at the source to the commit of the sink's table, of some changes of each batch",
            f"# TYPE {_DELAYS} histogram",
        ]
    for sink, tables in delays.items():
        for table, histogram in sorted(tables.items()):
            label = f'sink="{_escaped(sink)}",table="{_escaped(table)}"'
            lines += [f'{_DELAYS}_bucket{{le="{bound}",{label}}} {float(count)}' for bound, count in histogram.cumulative]
            lines += [f"{_DELAYS}_count{{{label}}} {float(histogram.count)}", f"{_DELAYS}_sum{{{label}}} {histogram.sum_s}"]
    return "\n".join([*lines, ""])


def handler_of(metrics: Callable[[], str]) -> type[HealthHandler]:
    """Return a handler that answers `/metrics`, too."""

    class MetricsHandler(HealthHandler):
        paths = "/livez, /readyz, /metrics"

        @override
        def _answer_at(self, path: str) -> None:
            if path == "/metrics":
                self._send(HTTPStatus.OK, metrics().encode(), CONTENT_TYPE)
            else:
                super()._answer_at(path)

    return MetricsHandler


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
