"""How records arrive in Kafka, and what the tool that writes them costs meanwhile; the same for every tool.

End offsets of the tool's topics, as a consumer of committed records sees them, and the CPU of its process tree are sampled
together. The figure begins with the first sample in which records have arrived and ends with the one in which all but
0.2 % had: start-up and idling at the end are not in it, nor are heartbeats, which come up to a second behind the last row.
Markers of Kafka transactions take offsets, too, so rows are counted by a consumer afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from bench.bench_figures import Figure
from bench.cost import Cost, cost_of
from bench.scene import BenchError
from kafkaio.committed_reader import CommittedReader
from schemas.settings import KafkaSettings

PARTITIONS = 4
_EVERY_S = 0.1
_STABLE_S = 2.0
_LEAST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    offsets: int
    cost: Cost


class Arrivals:
    """The topics of one tool. `cpu_from_start_s` is what the last measurement needed in all, start-up included."""

    def __init__(self, bootstrap_servers: str, topics: Sequence[str]) -> None:
        self._servers = bootstrap_servers
        self.cpu_from_start_s = 0.0
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        new = [NewTopic(topic, PARTITIONS, 1) for topic in topics]
        for future in (self._admin.create_topics(new) if new else {}).values():
            future.result()
        self._partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the end offset of each partition."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return self._ends()
            except KafkaException:  # a new partition has no leader yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _ends(self) -> dict[tuple[str, int], int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(dict.fromkeys(self._partitions, latest), isolation_level=IsolationLevel.READ_COMMITTED)
        return {(partition.topic, partition.partition): future.result().offset for partition, future in asked.items()}

    def ends_of(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition of a topic, which is created where it is missing."""
        other = Arrivals(self._servers, [] if topic in self._admin.list_topics(timeout=30).topics else [topic])
        other._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return {number: offset for (_, number), offset in other.ends().items()}

    def total(self) -> int:
        """Return the sum of the end offsets."""
        return sum(self.ends().values())

    def wait_for_more(self, than: int, act: Callable[[], object], seconds: float = 120.0) -> None:
        """Call `act` every half second until something has arrived."""
        deadline = time.monotonic() + seconds
        while self.total() <= than:
            if time.monotonic() > deadline:
                message = f"nothing arrived in {self._partitions[0].topic}"
                raise BenchError(message)
            act()
            time.sleep(0.5)

    def measure(self, rows: int, start: Callable[[], int], seconds: float = 1800.0) -> Figure:
        """Call `start`, which returns the process's id, and wait until `rows` have arrived."""
        before = self.ends()
        base = sum(before.values())
        began, pid = time.monotonic(), start()
        samples = [_Sample(began, 0, Cost(0.0, 0.0))]
        while True:
            samples.append(_Sample(time.monotonic(), self.total() - base, cost_of(pid)))
            offsets = samples[-1].offsets
            last = next(sample for sample in samples if sample.offsets >= all_but_the_tail(offsets, rows))
            if offsets >= rows and samples[-1].at - last.at > _STABLE_S:
                break
            if samples[-1].at - began > seconds:
                message = f"{samples[-1].offsets} of {rows} records in {seconds:.0f} s in {self._partitions[0].topic}"
                raise BenchError(message)
            time.sleep(_EVERY_S)
        counted = self._count(before)
        if counted < rows:
            message = f"{self._partitions[0].topic}: {counted} committed records instead of {rows}"
            raise BenchError(message)
        self.cpu_from_start_s = last.cost.cpu_s - samples[1].cost.cpu_s
        return _figure(samples, last, rows)

    def _count(self, before: dict[tuple[str, int], int]) -> int:
        with CommittedReader(KafkaSettings(bootstrap_servers=self._servers), "bench-count") as reader:
            reader.begin(before)
            return sum(record.value is not None for record in reader.read_to(reader.ends(before)))


def all_but_the_tail(offsets: int, rows: int) -> int:
    """Return how many of the offsets make a run complete: what may follow are markers, few against the rows."""
    return offsets - max(rows // 500, 16)


def _figure(samples: Sequence[_Sample], last: _Sample, rows: int) -> Figure:
    first = next(sample for sample in samples if sample.offsets)
    peak = samples[-1].cost.peak_mib
    share = (last.offsets - first.offsets) / last.offsets
    if share < _LEAST_SHARE:
        # Too few rows arrived behind the first sample: count from the start of the process.
        begin, note, share = samples[1], "start-up included", 1.0
    else:
        begin, note = first, ""
    cpu_s = last.cost.cpu_s - begin.cost.cpu_s
    extra = {"from_start_s": last.at - samples[0].at}
    return Figure(round(rows * share), last.at - begin.at, cpu_s, peak, extra, note)
