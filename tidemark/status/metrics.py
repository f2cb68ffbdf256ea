"""Metrics in Prometheus' text format: families of samples enter, text leaves (pure). The merge job has no client of Prometheus."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.delay_histogram import DelayHistogram
from tidemark.process.versions import DISTRIBUTION, version_of
from tidemark.status.lags import Lags, Word

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[Labels, float | None]
"""None: unknown, and left out."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name (that of a counter ends with `_total`), kind and help, and its samples by the suffix of their name."""

    name: str
    kind: str
    help_text: str
    samples: Mapping[str, Iterable[Sample]]


def gauge(name: str, help_text: str, *samples: Sample) -> Family:
    """Return a family of figures that rise and fall."""
    return Family(name, "gauge", help_text, {"": samples})


def counter(name: str, help_text: str, *samples: Sample) -> Family:
    """Return a family of figures that only rise."""
    return Family(name, "counter", help_text, {"": samples})


def histogram(name: str, help_text: str, delays: Iterable[tuple[Labels, DelayHistogram]]) -> Family:
    """Return a family of histograms."""
    both = list(delays)
    buckets = [({"le": bound, **labels}, count) for labels, one in both for bound, count in one.cumulative]
    counts, sums = [(labels, one.count) for labels, one in both], [(labels, one.sum_s) for labels, one in both]
    return Family(name, "histogram", help_text, {"_bucket": buckets, "_count": counts, "_sum": sums})


def build_info(command: str) -> Family:
    """Return the family whose labels say what runs; the version is "unknown" if the package is not installed."""
    labels = {"command": command, "version": version_of(DISTRIBUTION) or "unknown", "python": platform.python_version()}
    return gauge("tidemark_build_info", "1; the labels say what runs", (labels, 1))


def lag_families(lags_of_sinks: Mapping[str, Lags]) -> Iterator[Family]:
    """Yield how far each table of each sink is behind Kafka, and one word for each sink."""
    sinks = lags_of_sinks.items()
    tables = [({"sink": sink, "table": table}, lag) for sink, lags in sinks for table, lag in sorted(lags.tables.items())]
    seconds, left = [(labels, lag.seconds) for labels, lag in tables], [(labels, lag.left) for labels, lag in tables]
    yield gauge("tidemark_sink_lag_seconds", "Age of the oldest record in Kafka that is not merged, 0 where all are", *seconds)
    yield gauge("tidemark_sink_behind_records", "Records in Kafka that are not merged", *left)
    words = (({"sink": sink, "state": word}, lags.verdict.word is word) for sink, lags in sinks for word in Word)
    yield gauge("tidemark_state", "1 for the word of `tidemark lag`, 0 for all others", *words)


def exposition(families: Iterable[Family]) -> str:
    """Return the text of the families that have a known sample."""
    lines = []
    for one in families:
        samples = [
            f"{one.name}{suffix}{_labels(labels)} {float(value)}"
            for suffix, of_name in one.samples.items()
            for labels, value in of_name
            if value is not None
        ]
        lines += [f"# HELP {one.name} {one.help_text}", f"# TYPE {one.name} {one.kind}", *samples] if samples else []
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)) + "}" if labels else ""


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
