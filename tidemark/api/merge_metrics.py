"""The merge job's figures as metrics, at `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from schemas.overriding import override
from schemas.sink_figures import SinkFigures
from tidemark.api.health import HealthHandler
from tidemark.status.metrics import CONTENT_TYPE, Family, build_info, exposition, gauge, histogram

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
    families = [
        build_info("merge"),
        gauge("tidemark_merge_ready", "1 where /readyz says that batches can run now, else 0", ({}, is_ready)),
        *(
            Family(name, kind, text, {"": [({"sink": sink}, value(one)) for sink, one in figures.items()]})
            for name, kind, text, value in _OF_SINKS
        ),
        histogram(
            "tidemark_commit_to_lake_seconds",
            "From the commit at the source to the commit of the sink's table, of some changes of each batch",
            (
                ({"sink": sink, "table": table}, delays)
                for sink, one in figures.items()
                for table, delays in sorted(one.delays.items())
            ),
        ),
    ]
    return exposition(families)


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
