"""The producer's figures as metrics, under our names and under Debezium's, so that boards for Debezium work without a change.

`GET /metrics?format=debezium` has the names that Debezium's example configuration of the Prometheus JMX exporter makes of its
MBeans (`debezium_metrics_<attribute>` with the labels `plugin`, `name` and `context`; the attributes of Debezium 3.6). A figure
that means something else here, or that we do not know, is left out: a board then shows "no data", not a wrong number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidemark.status.metrics import Family, build_info, counter, gauge, histogram
from tidemark.status.reckoning import KEYLESS

if TYPE_CHECKING:
    from producer.app import Producer
    from producer.snapshot.coordinator import SnapshotCoordinator, SnapshotProgress
    from producer.stream.reader_progress import LogProgress

_STATES: Final = ("queued", "running", "paused", "done", "failed", "cancelled", "without_key")
_FINAL: Final = ("done", "failed", "cancelled")


def producer_families(producer: Producer | None, *, is_ready: bool, failures: int, in_kafka_ms: int) -> Iterator[Family]:
    """Yield the live figures. `failures` are failed attempts; everything up to `in_kafka_ms` is in Kafka (0: unknown)."""
    yield gauge("tidemark_ready", "1 where /readyz says that the log is read now, else 0", ({}, is_ready))
    yield build_info("run")
    yield counter("tidemark_producer_failures_total", "Attempts that failed and were followed by another one", ({}, failures))
    lag_s = max(0.0, time.time() - in_kafka_ms / 1000) if in_kafka_ms else None
    text = "Everything that the source committed up to so many seconds ago is in Kafka, at least"
    yield gauge("tidemark_log_lag_seconds", text, ({}, lag_s))
    if producer is None or producer.reader is None:
        return
    yield from _of_log(producer.reader.progress)
    if producer.commits is not None and producer.commits.skew_us is not None:
        text = "How far the source's clock is ahead of the clock of this machine, in milliseconds"
        yield gauge("tidemark_clock_skew_ms", text, ({}, producer.commits.skew_us / 1000))
    aside = len(producer.aside.tables)
    yield gauge("tidemark_producer_set_aside_tables", "Tables that are not published for now", ({}, aside))
    room = None if producer.retention is None else producer.retention.latest
    if room is not None:
        yield gauge("tidemark_log_behind_bytes", "Bytes of the source's log that are not in Kafka yet", ({}, room.behind_bytes))
        text = "Seconds until the source may purge log that is not in Kafka yet"
        yield gauge("tidemark_log_head_room_seconds", text, ({}, room.left_s))
    if producer.coordinator is not None:
        yield from _of_snapshots(producer.coordinator)


def _of_log(progress: LogProgress) -> Iterator[Family]:
    for name, text, value in (
        ("tidemark_log_transactions_total", "Source transactions read since the start", progress.transactions),
        ("tidemark_log_rows_total", "Row changes read since the start", progress.rows),
        ("tidemark_log_read_bytes_total", "Bytes of the log read since the start", progress.bytes),
        ("tidemark_log_records_total", "Change records written since the start", progress.records),
        ("tidemark_log_cuts_total", "Kafka transactions committed since the start", progress.checkpoints),
    ):
        yield counter(name, text, ({}, value))
    for name, text, unix_ms in (
        ("tidemark_log_committed_timestamp_seconds", "When Kafka committed a transaction last, Unix time", progress.committed_ms),
        ("tidemark_log_source_timestamp_seconds", "Time of the newest source transaction read, Unix time", progress.source_ts_ms),
    ):
        yield gauge(name, text, ({}, unix_ms / 1000 if unix_ms else None))  # 1970 would be an alarm
    yield histogram(
        "tidemark_commit_to_kafka_seconds",
        "From the commit at the source to the commit of the Kafka transaction, of some changes of each",
        (({"table": ".".join(table)}, delays.total) for table, delays in progress.delays.tables.items()),
    )


def _of_snapshots(coordinator: SnapshotCoordinator) -> Iterator[Family]:
    tables = coordinator.progress()
    rows = {one.table: one.rows for one in tables}.items()
    states = [_state_of(one) for one in tables]
    yield gauge("tidemark_snapshot_rows", "Rows read by the newest snapshot", *(({"table": table}, read) for table, read in rows))
    counts = (({"state": state}, states.count(state)) for state in _STATES)
    yield gauge("tidemark_snapshot_tables", "Tables of remembered snapshots, by state", *counts)
    text = "1 while no chunk is read because the source is under load (snapshot.pause_when), else 0"
    yield gauge("tidemark_snapshot_waiting", text, ({}, bool(coordinator.waits_because)))


def _state_of(table: SnapshotProgress) -> str:
    """Return the state of a table's snapshot; a table without a key cannot have one, which is no failure."""
    return "without_key" if table.state == "failed" and table.status == KEYLESS else table.state


def debezium_families(producer: Producer | None, name: str, *, is_ready: bool, in_kafka_ms: int) -> Iterator[Family]:
    """Yield the figures under Debezium's names; none before the kind of the source is known. `name` is the prefix of the topics."""
    if producer is None or not producer.flavour:
        return
    labels = {"plugin": producer.flavour, "name": name, "context": "streaming"}
    behind_ms = max(0.0, time.time() * 1000 - in_kafka_ms) if in_kafka_ms else None
    figures: dict[str, float | None] = {"Connected": is_ready, "MilliSecondsBehindSource": behind_ms}
    if producer.reader is not None:
        progress = producer.reader.progress
        figures["TotalNumberOfEventsSeen"] = progress.rows
        figures["NumberOfCommittedTransactions"] = progress.transactions
        figures["BinlogPosition"] = progress.position.offset
    yield from _under_debezium_names(labels, figures)
    if producer.coordinator is None:
        return
    labels = {**labels, "context": "snapshot"}
    newest = {one.table: one for one in producer.coordinator.progress()}
    states = [one.state for one in newest.values()]
    figures = {
        "TotalTableCount": len(newest),
        "RemainingTableCount": sum(state not in _FINAL for state in states),
        "SnapshotRunning": "running" in states,
        "SnapshotPaused": "paused" in states,
        "SnapshotCompleted": bool(states) and set(states) == {"done"},
    }
    yield from _under_debezium_names(labels, figures)
    rows = (({**labels, "table": one.table}, one.rows) for one in newest.values())
    yield gauge("debezium_metrics_RowsScanned", "Rows read of a table", *rows)


def _under_debezium_names(labels: dict[str, str], figures: dict[str, float | None]) -> Iterator[Family]:
    for attribute, value in figures.items():
        yield gauge(f"debezium_metrics_{attribute}", f"Debezium's {attribute}", (labels, value))
