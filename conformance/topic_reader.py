"""Reads one side's topics from the broker: committed records only, in the order of the log, in bounded memory.

A partition holds its records in the order of the log, a topic with several does not: their heads are merged by place.
No partition has more than `BUFFERED` records waiting, and all of a side about `BUFFERED_BYTES`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from conformance.pairing import Coordinates, Incoming, Span, coordinates_of, is_read, key_text, own_key
from kafkaio.committed_reader import SILENCE_S, CommittedReader, CommittedRecord, Partition
from kafkaio.topic_admin import TopicAdmin
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.documents import OffsetDocument
from schemas.errors import DecodeError, PublishError
from schemas.settings import KafkaSettings
from schemas.state import OFFSET_PARTITION
from tidemark.api.record_decoding import Decoder, Record, Wire

BUFFERED: Final = 2_000
BUFFERED_BYTES: Final = 64 * 1024 * 1024
_TURN_S: Final = 0.05
SETTLED_S: Final = 10.0
"""How long a comparison waits for transactions that are being ended."""
_TAIL: Final = 32
"""Records read from a partition's end at first, to find its last place."""

_BEFORE_ALL: Final = Coordinates(0, "log.0")


class Side:
    """One side's topics, how far they go, and their records. Use in one thread.

    Every reading has a consumer of its own: librdkafka keeps pauses beyond an assignment, and taking them back races
    with the start of the next.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, Any],
        registry: str | None,
        access: RegistryAccess | None = None,
        *,
        is_left: bool,
    ) -> None:
        self._is_left = is_left
        self._decoder = Decoder(registry, access)
        self._reading: _Messages | None = None
        self._kafka = KafkaSettings(bootstrap_servers=bootstrap_servers, options=dict(options))
        self._reader = self._new_reader()
        self._admin = TopicAdmin(self._kafka)

    def _new_reader(self) -> CommittedReader:
        own = {"queued.max.messages.kbytes": 16_384, "fetch.wait.max.ms": 100}
        return CommittedReader(self._kafka, "tidemark-compare", own)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_reading()
        self._reader.close()

    def topics(self) -> dict[str, int]:
        """Return all topics of the broker with their numbers of partitions."""
        return {name: len(partitions) for name, partitions in self._reader.topics().items()}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset of each partition, and the one behind the last record that can be read now."""
        return self._reader.bounds(partitions)

    def settled(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, tuple[int, int]], list[Partition]]:
        """As `ends`, behind all that was written before the call; and where a transaction stays open that hides some of it.

        Kafka writes the markers that show a committed transaction partition by partition, after the commit was answered.
        """
        listed = list(partitions)
        by_topic = self._admin.end_offsets({topic for topic, _ in listed})
        written = {(topic, number): by_topic[topic][number] for topic, number in listed}
        ends = self.ends(listed)
        deadline = time.monotonic() + SETTLED_S
        while hidden := [part for part in listed if ends[part][1] < written[part]]:
            if time.monotonic() > deadline:
                break
            time.sleep(_TURN_S)
            ends |= self.ends(hidden)
        return ends, hidden

    def compacted(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the topics that keep the last record of a key only."""
        configs = self._admin.configs(topics)
        return frozenset(name for name, config in configs.items() if "compact" in config["cleanup.policy"])

    def since(self, topic: str, ends: Mapping[int, tuple[int, int]], ms: int) -> dict[int, tuple[int, int]]:
        """Offsets as `ends`, without the records that were written before a time, in milliseconds."""
        begins = self._reader.offsets_since([(topic, partition) for partition in ends], ms)
        return {
            partition: (max(low, high if begins[topic, partition] < 0 else begins[topic, partition]), high)
            for partition, (low, high) in ends.items()
        }

    def first_coordinates(self, ends: Mapping[Partition, tuple[int, int]]) -> dict[Partition, Coordinates]:
        """Return the position of the first record of each partition that has one."""
        found: dict[Partition, Coordinates] = {}
        messages = self._read(ends)
        for part, coordinates in self._coordinates_of(messages):
            found.setdefault(part, coordinates)
            messages.leave(part)
        return found

    def last_coordinates(self, ends: Mapping[Partition, tuple[int, int]]) -> dict[Partition, Coordinates]:
        """Return the position of the last record of each partition that has one."""
        found: dict[Partition, Coordinates] = {}
        pending, back = dict(ends), _TAIL
        while pending:
            tails = {part: (max(low, high - back), high) for part, (low, high) in pending.items()}
            found |= dict(self._coordinates_of(self._read(tails)))
            pending = {
                part: (low, high) for part, (low, high) in pending.items() if part not in found and low < high - back
            }
            back *= 16
        return found

    def checkpoint(self, prefix: str) -> Coordinates | None:
        """Return the position before which Tidemark has written everything under a prefix; None for another writer."""
        part = (topics.state_topic(prefix), OFFSET_PARTITION)
        if self.topics().get(part[0], 0) <= OFFSET_PARTITION:
            return None
        low, high = self.ends([part])[part]
        found: Coordinates | None = None
        messages = self._read({part: (max(low, high - _TAIL), high)})
        while not messages.is_at_end:
            for message in messages.drain():
                value = self._decoded(message, message.value)
                document = None if value is None or message.key != OffsetDocument.KEY.encode() else value["payload"]
                if isinstance(document, dict) and document.get("file"):
                    found = Coordinates(0, document["file"], document["pos"])
        return found

    def read(self, topic: str, ends: Mapping[int, tuple[int, int]], *, is_single: bool) -> Stream:
        """Read the records of one topic between offsets. Ends what was read before.

        Records without a key are distinguished by their positions, unless the topic has a single partition on both sides.
        """
        begins = {(topic, partition): span for partition, span in ends.items()}
        return Stream(self._read(begins), partial(self._incoming, is_single=is_single))

    def _read(self, ends: Mapping[Partition, tuple[int, int]]) -> _Messages:
        self._end_reading()
        self._reading = _Messages(self._new_reader(), ends)
        return self._reading

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _coordinates_of(self, messages: _Messages) -> Iterator[tuple[Partition, Coordinates]]:
        while not messages.is_at_end:
            for message in messages.drain():
                value = self._decoded(message, message.value)
                coordinates = None if value is None else coordinates_of(value["payload"])
                if coordinates is not None:
                    yield (message.topic, message.partition), coordinates

    def _incoming(self, message: CommittedRecord, last: Incoming | None, *, is_single: bool) -> Incoming:
        """Return a record on its way; a tombstone is where the delete before it is, which may not be there any more."""
        record = self._record(message)
        payload = None if record.value is None else record.value["payload"]
        coordinates = coordinates_of(payload)
        key = key_text(record.key)
        if payload is None and last is not None and last.key == key:
            coordinates = last.coordinates
        elif payload is None and last is None and record.offset > 0:
            coordinates = _BEFORE_ALL
        if record.key is None and not is_single and payload is not None:
            key = own_key(payload, coordinates)
        raw = message
        return Incoming(
            is_left=self._is_left,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=key,
            coordinates=coordinates,
            is_read=is_read(payload),
            size=_size(message),
            load=lambda: self._record(raw),
            record=record,
        )

    def _record(self, message: CommittedRecord) -> Record:
        headers = {name: (value or b"").decode("utf-8", "backslashreplace") for name, value in message.headers}
        key, value = message.key, message.value
        wire = Wire(key, value, tuple(message.headers))
        decoded = self._decoded(message, key), self._decoded(message, value)
        return Record(message.topic, message.partition, message.offset, *decoded, headers, wire)

    def _decoded(self, message: CommittedRecord, data: Any) -> Any:
        try:
            return self._decoder.decode(data)
        except DecodeError as error:
            raise error.at(f"{message.topic}[{message.partition}] offset {message.offset}") from error


class Stream:
    """The records of one topic, in the order of the log as far as they show it."""

    def __init__(self, messages: _Messages, unpack: Callable[[CommittedRecord, Incoming | None], Incoming]) -> None:
        self._messages = messages
        self._unpack = unpack
        self._heads: dict[int, Incoming] = {}
        self._last: dict[int, Incoming] = {}
        self.taken = 0

    @property
    def rank(self) -> tuple[int, tuple[int, int]] | None:
        """Where the next record is among those of both sides: what has no position comes first, by number."""
        head = self._head()
        return None if head is None else _rank(head, self.taken)

    def next_record(self) -> Incoming:
        """Return the next record."""
        head = self._head()
        assert head is not None, "there is no next record"
        del self._heads[head.partition]
        self._last[head.partition] = head
        self.taken += 1
        return head

    def _head(self) -> Incoming | None:
        for partition in self._messages.without(self._heads):
            message = self._messages.next_of(partition)
            if message is not None:
                self._heads[partition] = self._unpack(message, self._last.get(partition))
        heads = self._heads.values()
        return min(heads, key=lambda head: _rank(head, head.offset), default=None)


class _Messages:
    """Messages of some partitions from begin to end offsets, buffered by partition. Owns its reader."""

    def __init__(self, reader: CommittedReader, ends: Mapping[Partition, tuple[int, int]]) -> None:
        begins = {part: low for part, (low, high) in ends.items() if low < high}
        self._reader, self._ends, self._silent_s = reader, {part: ends[part][1] for part in begins}, 0.0
        reader.begin(begins)
        self._buffers: dict[Partition, deque[CommittedRecord]] = {part: deque() for part in reader.reached}
        self._sizes = dict.fromkeys(self._buffers, 0)
        self._share = BUFFERED_BYTES // max(1, len(begins))
        self._paused: set[Partition] = set()

    @property
    def _open(self) -> Mapping[Partition, int]:
        return self._reader.reached

    def close(self) -> None:
        """Give the connection up."""
        self._reader.close()

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read; it may not have been taken yet."""
        return not self._open

    def without(self, heads: Mapping[int, Incoming]) -> list[int]:
        """Return the partitions of the one topic that have no head, and may have records."""
        return [
            partition
            for (topic, partition), buffer in self._buffers.items()
            if partition not in heads and (buffer or (topic, partition) in self._open)
        ]

    def next_of(self, partition: int) -> CommittedRecord | None:
        """Return the next message of a partition of the one topic; None at its end."""
        (part,) = (part for part in self._buffers if part[1] == partition)
        buffer = self._buffers[part]
        while not buffer and part in self._open:
            self._fill()
        if not buffer:
            return None
        message = buffer.popleft()
        self._sizes[part] -= _size(message)
        is_low = len(buffer) < BUFFERED // 4 and self._sizes[part] <= self._share // 4
        if part in self._paused and part in self._open and is_low:
            self._paused.discard(part)
            self._reader.resume(part)
        return message

    def drain(self) -> Iterator[CommittedRecord]:
        """Yield what is there of any partition; nothing at the end. Not to be mixed with `next_of`."""
        if self._open:
            self._fill()
        for part, buffer in self._buffers.items():
            while buffer:
                message = buffer.popleft()
                self._sizes[part] -= _size(message)
                yield message
        for part in self._paused.intersection(self._open):
            self._reader.resume(part)
        self._paused.clear()

    def leave(self, part: Partition) -> None:
        """Read no more of a partition."""
        self._reader.leave(part)

    def _fill(self) -> None:
        """Buffer the next message, if one comes soon, and leave the partitions that have reached their ends."""
        began = time.monotonic()
        record = self._reader.next_record(_TURN_S)
        self._silent_s = 0.0 if record is not None else self._silent_s + time.monotonic() - began
        if self._silent_s > SILENCE_S:
            raise PublishError(f"Kafka sent nothing for {self._silent_s:.0f} s")
        if record is not None and record.offset < self._ends[record.topic, record.partition]:
            part = record.topic, record.partition
            self._buffers[part].append(record)
            self._sizes[part] += _size(record)
            is_full = len(self._buffers[part]) >= BUFFERED or self._sizes[part] >= self._share
            if is_full and part not in self._paused:
                self._paused.add(part)
                self._reader.pause(part)
        for part in [part for part, reached in self._open.items() if reached >= self._ends[part]]:
            self._reader.leave(part)
            self._silent_s = 0.0


def _size(message: CommittedRecord) -> int:
    return message.size + 200


def span_of(coordinates: Iterable[Coordinates]) -> Span:
    """Return the span that reaches to all places."""
    span = Span()
    for each in coordinates:
        span = span.with_coordinates(each)
    return span


def _rank(head: Incoming, number: int) -> tuple[int, tuple[int, int]]:
    return (0, (number, 0)) if head.rank is None else (1, head.rank)
