"""The records of sources, Kafka transaction by Kafka transaction: commit records enter, each with its rows leaves.

One consumer has the topics of the commit records and every partition that spans of them name. Nothing of a partition is lost to
seeking: records that were fetched before their turn wait here, and a partition that is far ahead is paused.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final

from kafkaio.committed_reader import OPEN_END, CommittedReader
from schemas.commit_records import CommitRecord
from schemas.errors import StateError
from schemas.topics import commits_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaio.committed_reader import CommittedRecord, Partition
    from schemas.settings import KafkaSettings

_FETCHED: Final[Mapping[str, int]] = {"queued.max.messages.kbytes": 16_384, "fetch.wait.max.ms": 100}
AGAIN: Final = "Empty the task's tables at the target, and delete its row in tidemark_meta.source: the next start loads them again"
_PARTITION: Final = itemgetter(0, 1)
_OFFSET: Final = attrgetter("offset")
SLICE_BYTES: Final = 8 << 20
"""A Kafka transaction with more is returned in slices."""
_RECORD_BYTES: Final = 400
"""Of a record in memory, beside its key and value."""
_MOST_COMMITS: Final = 1_000
"""Of commit records that wait; their topic is paused meanwhile."""


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """A commit record of a source at its `offset`, and the records of its spans, each partition in its order.

    A slice has some of them. The next one of the source has others, until nothing is `open`: partitions that more may come of.
    """

    source: str
    commit: CommitRecord
    offset: int
    records: list[CommittedRecord]
    open: frozenset[Partition] = frozenset()


class StreamReader:
    """A reader of the sources that were added. Use it in one thread.

    Rows that wait take about `buffer_bytes` of each source, and a slice of a Kafka transaction. `StateError`: records are missing,
    which is said with the remedy.
    """

    def __init__(self, kafka: KafkaSettings, group: str, buffer_bytes: int) -> None:
        self._kafka = kafka
        self._buffer_bytes = buffer_bytes
        self._reader = CommittedReader(kafka, group, _FETCHED)
        self._sources: dict[str, _SourceRecords] = {}
        self._owners: dict[Partition, _SourceRecords] = {}

    def close(self) -> None:
        """Give the connections up."""
        self._reader.close()

    def add(self, source: str, offset: int, n: int, end: int = OPEN_END) -> None:
        """Read a source, too: from the commit record at `offset` on, of which the number is `n` (0: any number), up to `end`."""
        commits = commits_topic(source, self._kafka.topic_delimiter), 0
        self._sources[source] = self._owners[commits] = _SourceRecords(
            source, commits, n, self._reader, self._owners, self._buffer_bytes, end
        )
        self._reader.begin({commits: offset})

    def read(self) -> Mapping[str, int]:
        """Return for each source the offset of the commit record that is next, or the end of the topic."""
        reached = self._reader.reached
        return {name: source.read(reached) for name, source in self._sources.items()}

    def next(self, timeout_s: float, paused: Collection[str] = ()) -> KafkaTransaction | None:
        """Return the next Kafka transaction, or a slice; None if none has come in that time. Errors also as `CommittedReader`.

        Sources that are `paused` wait. Of the others each has its turn.
        """
        deadline = time.monotonic() + timeout_s
        for source in self._sources.values():
            if source.is_due and source.name not in paused:
                return self._turn(source)
        while True:
            left_s = deadline - time.monotonic()
            records = self._reader.next_records(max(0.0, left_s))
            if not records and left_s <= 0:
                for source in self._sources.values():
                    source.require_hope()
                return None
            noted = set[str]()
            for partition, run in groupby(records, _PARTITION):
                source = self._owners[partition]
                source.note(partition, list(run))
                noted.add(source.name)
            for name in noted.difference(paused):
                if self._sources[name].is_due:
                    return self._turn(self._sources[name])

    def _turn(self, source: _SourceRecords) -> KafkaTransaction:
        self._sources[source.name] = self._sources.pop(source.name)
        return source.pop()


class _SourceRecords:
    """The records of one source that wait."""

    def __init__(
        self,
        name: str,
        commits: Partition,
        n: int,
        reader: CommittedReader,
        owners: dict[Partition, _SourceRecords],
        buffer_bytes: int,
        end: int,
    ) -> None:
        self.name = name
        self._end = end
        self._commits = commits
        self._n = n
        self._reader = reader
        self._owners = owners
        self._buffer_bytes = buffer_bytes
        self._waiting: deque[tuple[int, CommitRecord]] = deque()
        self._missing: dict[str, int] = {}  # of the first one that waits
        self._rows: dict[Partition, deque[CommittedRecord]] = {}
        self._paused: set[Partition] = set()
        self._bytes = 0
        self._slice_bytes = 0  # of the first one that waits

    @property
    def is_due(self) -> bool:
        """Whether the next Kafka transaction is there whole, or a slice."""
        return bool(self._waiting) and (self._slice_bytes > SLICE_BYTES or self._is_whole)

    @property
    def _is_whole(self) -> bool:
        return all(missing <= 0 for missing in self._missing.values())

    def read(self, reached: Mapping[Partition, int]) -> int:
        """Return the offset of the commit record that is next; `reached` is how far the partitions are read."""
        return self._waiting[0][0] if self._waiting else reached[self._commits]

    def pop(self) -> KafkaTransaction:
        """Return the next Kafka transaction, which is there whole, or a slice."""
        offset, commit = self._waiting[0]
        records = self._pop(commit)
        if self._is_whole:
            self._waiting.popleft()
            self._count_missing()
            return KafkaTransaction(self.name, commit, offset, records)
        self._slice_bytes = 0
        reached = self._reader.reached
        spans = ((topic, number, end) for topic in self._missing for number, (_, end) in commit.spans[topic].items())
        return KafkaTransaction(
            self.name, commit, offset, records,
            frozenset((topic, number) for topic, number, end in spans if self._missing[topic] and reached[topic, number] < end),
        )  # fmt: skip

    def note(self, partition: Partition, records: list[CommittedRecord]) -> None:
        """Note the next records of a partition of the source."""
        if partition == self._commits:
            for record in records:
                if record.offset < self._end:
                    self._note_commit(record)
            return
        topic, number = partition
        self._rows[partition] += records
        sizes = list(map(_size, records))
        self._bytes += sum(sizes)
        end = self._waiting[0][1].spans.get(topic, {}).get(number, (0, 0))[1] if self._waiting else 0
        count = bisect_left(records, end, key=_OFFSET)
        if count:
            self._missing[topic] -= count
            self._slice_bytes += sum(sizes[:count])
        if self._bytes > self._buffer_bytes and (count < len(records) or records[-1].offset == end - 1):
            self._pause(partition)

    def _note_commit(self, record: CommittedRecord) -> None:
        commit = CommitRecord.parse(record.value or b"")
        if commit.n != (self._n or commit.n):
            message = (
                f"{record.topic} has record {commit.n} at offset {record.offset}, and record {self._n} is next: Kafka does not "
                f"have all records any more, or the producer published without them. {AGAIN}"
            )
            raise StateError(message)
        if commit.reset:
            message = f"{record.topic}, record {commit.n}: the log before it was not published ({commit.reset}). {AGAIN}"
            raise StateError(message)
        self._n = commit.n + 1
        new = {
            (topic, partition): first
            for topic, spans in commit.spans.items()
            for partition, (first, _) in spans.items()
            if (topic, partition) not in self._rows
        }
        self._rows |= {partition: deque() for partition in new}
        self._owners |= dict.fromkeys(new, self)
        self._reader.begin(new)
        self._waiting.append((record.offset, commit))
        if len(self._waiting) == 1:
            self._count_missing()
        elif len(self._waiting) >= _MOST_COMMITS:
            self._pause(self._commits)

    def _count_missing(self) -> None:
        """Count the records that the first commit record still waits for, and resume their partitions."""
        self._missing, self._slice_bytes = dict(self._waiting[0][1].rows) if self._waiting else {}, 0
        for topic in self._missing:
            for partition, (_, end) in self._waiting[0][1].spans[topic].items():
                rows = self._rows[topic, partition]
                here = [_size(record) for record in rows if record.offset < end]
                self._missing[topic] -= len(here)
                self._slice_bytes += sum(here)
                if not rows or rows[-1].offset < end - 1:
                    self._resume((topic, partition))
        if len(self._waiting) < _MOST_COMMITS // 2:
            self._resume(self._commits)

    def _pop(self, commit: CommitRecord) -> list[CommittedRecord]:
        popped: list[CommittedRecord] = []
        for topic, spans in commit.spans.items():
            for partition, (_, end) in spans.items():
                rows = self._rows[topic, partition]
                while rows and rows[0].offset < end:
                    popped.append(rows.popleft())
            if self._missing[topic] < 0:
                raise StateError(self._lost(commit, topic, commit.rows[topic] - self._missing[topic]))
        self._bytes -= sum(map(_size, popped))
        return popped

    def require_hope(self) -> None:
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


def _size(record: CommittedRecord) -> int:
    """Return about how many bytes of memory a record takes."""
    return len(record.key or b"") + len(record.value or b"") + _RECORD_BYTES
