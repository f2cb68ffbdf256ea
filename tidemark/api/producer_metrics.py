"""The producer's figures as metrics of Prometheus, and how far the sinks are behind, as far as it sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.overriding import override
from schemas.pipeline_lag import Word
from tidemark.api.build_info import build_labels
from tidemark.status.reckoning import KEYLESS

if TYPE_CHECKING:
    from producer.app import Producer
    from producer.snapshot.coordinator import SnapshotCoordinator, SnapshotProgress
    from producer.stream.reader_progress import LogProgress
    from tidemark.status.lags import Lags

_STATES: Final = ("queued", "running", "paused", "done", "failed", "cancelled", "without_key")


class ProducerFigures(Collector):
    """The producer's live figures as metrics, read when they are asked for."""

    def __init__(
        self, producer: Callable[[], Producer | None], ready: Callable[[], bool], counts: Callable[[], tuple[int, int]]
    ) -> None:
        self._current, self._ready, self._counts = producer, ready, counts

    @override
    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("tidemark_ready", "1 where /readyz says that the log is read now, else 0", value=self._ready())
        labels = build_labels("run")
        build = GaugeMetricFamily("tidemark_build_info", "1; the labels say what runs", labels=list(labels))
        build.add_metric(list(labels.values()), 1)
        yield build
        failures, in_kafka_ms = self._counts()
        yield CounterMetricFamily(
            "tidemark_producer_failures", "Attempts that failed and were followed by another one", value=failures
        )
        if in_kafka_ms:
            yield GaugeMetricFamily(
                "tidemark_log_lag_seconds",
                "Everything that the source committed up to so many seconds ago is in Kafka, at least",
                value=max(0.0, time.time() - in_kafka_ms / 1000),
            )
        producer = self._current()
        if producer is None or producer.reader is None:
            return
        yield from _of_log(producer.reader.progress)
        yield GaugeMetricFamily(
            "tidemark_producer_set_aside_tables", "Tables that are not published for now", value=len(producer.aside.tables)
        )
        yield from _retention(producer)
        if producer.coordinator is not None:
            yield from _of_snapshots(producer.coordinator)


def _of_log(progress: LogProgress) -> Iterable[Metric]:
    for name, text, value in (
        ("tidemark_log_transactions", "Source transactions read since the start", progress.transactions),
        ("tidemark_log_rows", "Row changes read since the start", progress.rows),
        ("tidemark_log_read_bytes", "Bytes of the log read since the start", progress.bytes),
        ("tidemark_log_records", "Change records written since the start", progress.records),
        ("tidemark_log_cuts", "Kafka transactions committed since the start", progress.checkpoints),
    ):
        yield CounterMetricFamily(name, text, value=value)
    for name, text, unix_ms in (
        ("tidemark_log_committed_timestamp_seconds", "When Kafka committed a transaction last, Unix time", progress.committed_ms),
        ("tidemark_log_source_timestamp_seconds", "Time of the newest source transaction read, Unix time", progress.source_ts_ms),
    ):
        if unix_ms:  # nothing yet since the start: 1970 would be an alarm
            yield GaugeMetricFamily(name, text, value=unix_ms / 1000)
    yield _delays(progress)


def _of_snapshots(coordinator: SnapshotCoordinator) -> Iterable[Metric]:
    rows = GaugeMetricFamily("tidemark_snapshot_rows", "Rows read by the newest snapshot", labels=["table"])
    states = GaugeMetricFamily("tidemark_snapshot_tables", "Tables of remembered snapshots, by state", labels=["state"])
    tables = coordinator.progress()
    for table, read in {one.table: one.rows for one in tables}.items():
        rows.add_metric([table], read)
    for state in _STATES:
        states.add_metric([state], sum(_state_of(one) == state for one in tables))
    yield rows
    yield states
    yield GaugeMetricFamily(
        "tidemark_snapshot_waiting",
        "1 while no chunk is read because the source is under load (snapshot.pause_when), else 0",
        value=bool(coordinator.waits_because),
    )


def _state_of(table: SnapshotProgress) -> str:
    """Return the state of a table's snapshot; a table without a key cannot have one, which is no failure."""
    return "without_key" if table.state == "failed" and table.status == KEYLESS else table.state


def _delays(progress: LogProgress) -> Metric:
    found = HistogramMetricFamily(
        "tidemark_commit_to_kafka_seconds",
        "From the commit at the source to the commit of the Kafka transaction, of some changes of each",
        labels=["table"],
    )
    for table, counter in progress.delays.tables.items():
        total = counter.total
        buckets = [(bound, float(count)) for bound, count in total.cumulative]
        found.add_metric([".".join(table)], buckets=buckets, sum_value=total.sum_s)
    return found


def _retention(producer: Producer) -> Iterable[Metric]:
    room = None if producer.retention is None else producer.retention.latest
    if room is None:
        return
    if room.behind_bytes is not None:
        yield GaugeMetricFamily(
            "tidemark_log_behind_bytes", "Bytes of the source's log that are not in Kafka yet", value=room.behind_bytes
        )
    if room.left_s is not None:
        yield GaugeMetricFamily(
            "tidemark_log_head_room_seconds",
            "Seconds until the source may purge log that is not in Kafka yet",
            value=room.left_s,
        )


class LagFigures(Collector):
    """How far each table of each sink is behind Kafka, and one word for each sink. What is not known has no figure."""

    def __init__(self, latest: Callable[[], Mapping[str, Lags]]) -> None:
        self._latest = latest

    @override
    def collect(self) -> Iterable[Metric]:
        both = ["sink", "table"]
        seconds = GaugeMetricFamily(
            "tidemark_sink_lag_seconds", "Age of the oldest record in Kafka that is not merged, 0 where all are", labels=both
        )
        records = GaugeMetricFamily("tidemark_sink_behind_records", "Records in Kafka that are not merged", labels=both)
        words = GaugeMetricFamily("tidemark_state", "1 for the word of `tidemark lag`, 0 for all others", labels=["sink", "state"])
        for sink, lags in self._latest().items():
            for table, lag in sorted(lags.tables.items()):
                if lag.seconds is not None:
                    seconds.add_metric([sink, table], lag.seconds)
                if lag.left is not None:
                    records.add_metric([sink, table], lag.left)
            for word in Word:
                words.add_metric([sink, word.value], float(lags.verdict.word is word))
        yield from (one for one in (seconds, records, words) if one.samples)
