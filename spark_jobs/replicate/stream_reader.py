"""The records of one source, Kafka transaction by Kafka transaction: commit records enter, each with its rows leaves.

One consumer has the topic of the commit records and every partition that spans of them name. Nothing of a partition is lost to
seeking: records that were fetched before their turn wait here, and a partition that is far ahead is paused.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkaio.committed_reader import CommittedReader
from schemas.commit_records import CommitRecord
from schemas.errors import StateError
from schemas.topics import commits_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaio.committed_reader import CommittedRecord, Partition
    from schemas.settings import KafkaSettings

_FETCHED: Final[Mapping[str, int]] = {"queued.max.messages.kbytes": 16_384, "fetch.wait.max.ms": 100}
AGAIN: Final = "Empty the task's tables at the target, and delete its row in tidemark_meta.source: the next start loads them again"
_MOST_COMMITS: Final = 1_000
"""Of commit records that wait; their topic is paused meanwhile."""


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """A commit record at its `offset`, and the records of its spans, each partition in its order."""

    commit: CommitRecord
    offset: int
    records: list[CommittedRecord]


class StreamReader:
    """A reader of one source from the commit record at `offset` on, of which the number is `n`. Use it in one thread.

    Rows that wait take about `buffer_bytes`, and one Kafka transaction more. `StateError`: records are missing, which is said with
    the remedy.
    """

    def __init__(self, kafka: KafkaSettings, source: str, group: str, offset: int, n: int, buffer_bytes: int) -> None:
        self._topic = commits_topic(source, kafka.topic_delimiter)
        self._commits: Partition = (self._topic, 0)
        self._buffer_bytes = buffer_bytes
        self._n = n
        self._waiting: deque[tuple[int, CommitRecord]] = deque()
        self._missing: dict[str, int] = {}  # of the first one that waits
        self._rows: dict[Partition, deque[CommittedRecord]] = {}
        self._paused: set[Partition] = set()
        self._bytes = 0
        self._reader = CommittedReader(kafka, group, _FETCHED)
        self._reader.begin({self._commits: offset})

    def close(self) -> None:
        """Give the connections up."""
        self._reader.close()

    def next(self, timeout_s: float) -> KafkaTransaction | None:
        """Return the next Kafka transaction; None if it has not come whole in that time. Errors also as `CommittedReader`."""
        deadline = time.monotonic() + timeout_s
        while not (self._waiting and not any(self._missing.values())):
            record = self._reader.next_record(max(0.0, deadline - time.monotonic()))
            if record is None:
                self._require_hope()
                return None
            self._note(record)
        offset, commit = self._waiting.popleft()
        records = self._pop(commit)
        self._count_missing()
        return KafkaTransaction(commit, offset, records)

    def _note(self, record: CommittedRecord) -> None:
        partition = record.topic, record.partition
        if partition == self._commits:
            self._note_commit(record)
            return
        self._rows[partition].append(record)
        self._bytes += record.size
        if self._waiting:
            spans = self._waiting[0][1].spans.get(record.topic, {})
            if record.offset < spans.get(record.partition, (0, 0))[1]:
                self._missing[record.topic] -= 1
            elif self._bytes > self._buffer_bytes:
                self._pause(partition)

    def _note_commit(self, record: CommittedRecord) -> None:
        commit = CommitRecord.parse(record.value or b"")
        if commit.n != self._n:
            message = (
                f"{self._topic} has record {commit.n} at offset {record.offset}, and record {self._n} is next: Kafka does not have "
                f"all records any more, or the producer published without them. {AGAIN}"
            )
            raise StateError(message)
        if commit.reset:
            message = f"{self._topic}, record {commit.n}: the log before it was not published ({commit.reset}). {AGAIN}"
            raise StateError(message)
        self._n += 1
        new = {
            (topic, partition): first
            for topic, spans in commit.spans.items()
            for partition, (first, _) in spans.items()
            if (topic, partition) not in self._rows
        }
        self._rows |= {partition: deque() for partition in new}
        self._reader.begin(new)
        self._waiting.append((record.offset, commit))
        if len(self._waiting) == 1:
            self._count_missing()
        elif len(self._waiting) >= _MOST_COMMITS:
            self._pause(self._commits)

    def _count_missing(self) -> None:
        """Count the records that the first commit record still waits for, and resume their partitions."""
        self._missing = dict(self._waiting[0][1].rows) if self._waiting else {}
        for topic in self._missing:
            for partition, (_, end) in self._waiting[0][1].spans[topic].items():
                rows = self._rows[topic, partition]
                self._missing[topic] -= sum(1 for record in rows if record.offset < end)
                if not rows or rows[-1].offset < end - 1:
                    self._resume((topic, partition))
        if len(self._waiting) < _MOST_COMMITS // 2:
            self._resume(self._commits)

    def _pop(self, commit: CommitRecord) -> list[CommittedRecord]:
        popped: list[CommittedRecord] = []
        for topic, spans in commit.spans.items():
            count = len(popped)
            for partition, (_, end) in spans.items():
                rows = self._rows[topic, partition]
                while rows and rows[0].offset < end:
                    popped.append(rows.popleft())
            if len(popped) - count != commit.rows[topic]:
                raise StateError(self._lost(commit, topic, len(popped) - count))
        self._bytes -= sum(record.size for record in popped)
        return popped

    def _require_hope(self) -> None:
        """Raise `StateError` if records are missing of spans that were read to their ends."""
        if not self._waiting:
            return
        commit, reached = self._waiting[0][1], self._reader.reached
        for topic, missing in self._missing.items():
            if missing > 0 and all(reached[topic, number] >= end for number, (_, end) in commit.spans[topic].items()):
                raise StateError(self._lost(commit, topic, commit.rows[topic] - missing))

    def _lost(self, commit: CommitRecord, topic: str, count: int) -> str:
        return (
            f"topic {topic} has {count} of the {commit.rows[topic]} records of commit record {commit.n}: the others were removed "
            f"by retention, compaction or a deletion of the topic. {AGAIN}"
        )

    def _pause(self, partition: Partition) -> None:
        if partition not in self._paused:
            self._paused.add(partition)
            self._reader.pause(partition)

    def _resume(self, partition: Partition) -> None:
        if partition in self._paused:
            self._paused.remove(partition)
            self._reader.resume(partition)
