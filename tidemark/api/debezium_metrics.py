"""The producer's figures under Debezium's names, so that boards and alerts for Debezium work without a change.

`GET /metrics?format=debezium`. The names are those that Debezium's example configuration of the Prometheus JMX exporter makes of
its MBeans (`debezium_metrics_<attribute>` with the labels `plugin`, `name` and `context`; the attributes of Debezium 3.6). A
figure that means something else here, or that we do not know, is left out: a board then shows "no data", not a wrong number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.overriding import override

if TYPE_CHECKING:
    from producer.app import Producer

_LABELS: Final = ("plugin", "name", "context")
_FINAL: Final = ("done", "failed", "cancelled")


class DebeziumFigures(Collector):
    """The figures, read when they are asked for.

    `counts` has the failed attempts, and up to when everything is in Kafka (ms; 0: unknown). `flavour` is "mysql" or "mariadb", ""
    while that is not known: then there are none.
    """

    def __init__(
        self,
        name: str,
        flavour: Callable[[], str],
        producer: Callable[[], Producer | None],
        ready: Callable[[], bool],
        counts: Callable[[], tuple[int, int]],
    ) -> None:
        self._name, self._flavour, self._current, self._ready, self._counts = name, flavour, producer, ready, counts

    @override
    def collect(self) -> Iterable[Metric]:
        plugin = self._flavour()
        if not plugin:
            return
        yield from _gauges((plugin, self._name, "streaming"), self._streaming())
        producer = self._current()
        if producer is None or producer.coordinator is None:
            return
        tables = producer.coordinator.progress()
        newest = {one.table: one for one in tables}.values()
        open_tables = [one for one in newest if one.state not in _FINAL]
        yield from _gauges(
            (plugin, self._name, "snapshot"),
            {
                "TotalTableCount": len(newest),
                "RemainingTableCount": len(open_tables),
                "SnapshotRunning": any(one.state == "running" for one in open_tables),
                "SnapshotPaused": any(one.state == "paused" for one in open_tables),
                "SnapshotCompleted": bool(newest) and all(one.state == "done" for one in newest),
            },
        )
        rows = GaugeMetricFamily("debezium_metrics_RowsScanned", "Rows read of a table", labels=[*_LABELS, "table"])
        for one in newest:
            rows.add_metric([plugin, self._name, "snapshot", one.table], one.rows)
        if newest:
            yield rows

    def _streaming(self) -> dict[str, float]:
        found: dict[str, float] = {"Connected": self._ready()}
        _, in_kafka_ms = self._counts()
        if in_kafka_ms:
            found["MilliSecondsBehindSource"] = max(0.0, time.time() * 1000 - in_kafka_ms)
        producer = self._current()
        if producer is None or producer.reader is None:
            return found
        progress = producer.reader.progress
        found |= {
            "TotalNumberOfEventsSeen": progress.rows,
            "NumberOfCommittedTransactions": progress.transactions,
            "BinlogPosition": progress.position.offset,
        }
        return found


def _gauges(labels: tuple[str, str, str], figures: dict[str, float]) -> Iterable[Metric]:
    for attribute, value in figures.items():
        found = GaugeMetricFamily(f"debezium_metrics_{attribute}", f"Debezium's {attribute}", labels=list(_LABELS))
        found.add_metric(list(labels), float(value))
        yield found
