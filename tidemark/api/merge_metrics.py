"""The merge job's figures in Prometheus' text format, at `/metrics`: the job's extra has no client of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

from schemas.overriding import override
from schemas.sink_figures import SinkFigures
from tidemark.api.build_info import build_labels
from tidemark.api.health import HealthHandler

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_DELAYS: Final = "tidemark_commit_to_lake_seconds"
_Value = Callable[[SinkFigures], float | None]
_OF_SINKS: Final[tuple[tuple[str, str, str, _Value], ...]] = (
    ("tidemark_merge_sink_ready", "gauge", "1 where batches of the sink can run now, else 0", lambda one: one.not_ready is None),
    ("tidemark_merge_batches_total", "counter", "Batches that ended since the query began", lambda one: one.counts.batches),
    ("tidemark_merge_read_records_total", "counter", "Records of Kafka in them, markers too", lambda one: one.counts.records),
    ("tidemark_merge_merged_records_total", "counter", "Records that these batches merged", lambda one: one.counts.merged),
    ("tidemark_merge_batch_seconds_total", "counter", "How long these batches took together", lambda one: one.counts.seconds),
    ("tidemark_merge_failures_total", "counter", "Attempts that failed and were followed by another one", lambda one: one.failures),
    ("tidemark_merge_batch_timestamp_seconds", "gauge", "When the last batch ended, in Unix time", lambda one: one.counts.ended_s),
    ("tidemark_quarantined_records", "gauge", "Records in quarantine, after the last batch", lambda one: one.quarantined),
    ("tidemark_set_aside_tables", "gauge", "Tables that are not merged for now, after the last batch", lambda one: one.set_aside),
)
"""Name, type, help, value of a sink; None: unknown, and left out."""


def metrics_text(figures: Mapping[str, SinkFigures]) -> str:
    """Return the metrics of the sinks, by their names; none while nothing has begun."""
    is_ready = bool(figures) and all(one.not_ready is None for one in figures.values())
    lines = [
        *_family("tidemark_build_info", "gauge", "1; the labels say what runs", [(_labels(build_labels("merge")), 1.0)]),
        *_family("tidemark_merge_ready", "gauge", "1 where /readyz says that batches can run now, else 0", [("", float(is_ready))]),
    ]
    for name, kind, help_text, value in _OF_SINKS:
        known = [(_labels({"sink": sink}), value(one)) for sink, one in figures.items()]
        lines += _family(name, kind, help_text, [(labels, float(found)) for labels, found in known if found is not None])
    return "\n".join([*lines, *_delay_lines(figures), ""])


def _delay_lines(figures: Mapping[str, SinkFigures]) -> Iterator[str]:
    if any(one.delays for one in figures.values()):
        yield f"# HELP {_DELAYS} From the commit at the source to the commit of the sink's table, of some changes of each batch"
        yield f"# TYPE {_DELAYS} histogram"
    for sink, one in figures.items():
        for table, histogram in sorted(one.delays.items()):
            label = f'sink="{_escaped(sink)}",table="{_escaped(table)}"'
            yield from (f'{_DELAYS}_bucket{{le="{bound}",{label}}} {float(count)}' for bound, count in histogram.cumulative)
            yield from (f"{_DELAYS}_count{{{label}}} {float(histogram.count)}", f"{_DELAYS}_sum{{{label}}} {histogram.sum_s}")


def _family(name: str, kind: str, help_text: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    lines = [f"{name}{labels} {value}" for labels, value in samples]
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *lines] if lines else []


def _labels(values: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


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
