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

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from conformance.pairing import Coordinates, Incoming, Span, coordinates_of, is_read, key_text, own_key
from kafkaio.client import client_config, offsets_for_times, opened, watermarks
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.documents import OffsetDocument
from schemas.errors import DecodeError, PublishError
from schemas.state import OFFSET_PARTITION
from tidemark.api.record_decoding import Decoder, Record, Wire

BUFFERED: Final = 2_000
BUFFERED_BYTES: Final = 64 * 1024 * 1024
_BATCH: Final = 500
_POLL_S: Final = 1.0
_BROKER_S: Final = 30.0
_SILENCE_S: Final = 60.0
_TURN_S: Final = 0.05
SETTLED_S: Final = 10.0
"""How long a comparison waits for transactions that are being ended."""
_TAIL: Final = 32
"""Records read from a partition's end at first, to find its last place."""

_BEFORE_ALL: Final = Coordinates(0, "log.0")

Partition = tuple[str, int]


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
        own = {
            **options,
            "group.id": "tidemark-compare",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 16_384,
            "fetch.wait.max.ms": 100,
        }
        self._config = client_config(bootstrap_servers, own)
        self._consumer = opened(Consumer, self._config)
        self._admin = opened(AdminClient, client_config(bootstrap_servers, options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_reading()
        self._consumer.close()

    def topics(self) -> dict[str, int]:
        """Return all topics of the broker with their numbers of partitions."""
        try:
            described = self._consumer.list_topics(timeout=_BROKER_S).topics
        except KafkaException as error:
            message = f"Kafka cannot be reached: {error.args[0].str()}; check kafka.bootstrap_servers"
            raise PublishError(message) from error
        return {name: len(topic.partitions) for name, topic in described.items() if topic.error is None}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset of each partition, and the one behind the last record that can be read now."""
        return self._watermarks(self._consumer, partitions)

    @staticmethod
    def _watermarks(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        try:
            return {part: watermarks(consumer, TopicPartition(*part), _BROKER_S) for part in partitions}
        except KafkaException as error:
            raise PublishError(f"offsets cannot be read: {error.args[0].str()}") from error

    def settled(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, tuple[int, int]], list[Partition]]:
        """As `ends`, behind all that was written before the call; and where a transaction stays open that hides some of it.

        Kafka writes the markers that show a committed transaction partition by partition, after the commit was answered.
        """
        listed = list(partitions)
        writers = opened(Consumer, {**self._config, "isolation.level": "read_uncommitted"})
        try:
            written = {part: high for part, (_, high) in self._watermarks(writers, listed).items()}
        finally:
            writers.close()
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
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not wanted:
            return frozenset()
        try:
            configs = {
                resource.name: answer.result()
                for resource, answer in self._admin.describe_configs(wanted, request_timeout=_BROKER_S).items()
            }
        except KafkaException as error:
            raise PublishError(f"settings of topics cannot be read: {error.args[0].str()}") from error
        return frozenset(name for name, config in configs.items() if "compact" in config["cleanup.policy"].value)

    def since(self, topic: str, ends: Mapping[int, tuple[int, int]], ms: int) -> dict[int, tuple[int, int]]:
        """Offsets as `ends`, without the records that were written before a time, in milliseconds."""
        wanted = [TopicPartition(topic, partition, ms) for partition in ends]
        try:
            found = offsets_for_times(self._consumer, wanted, _BROKER_S)
        except KafkaException as error:
            raise PublishError(f"offsets of {topic} cannot be read: {error.args[0].str()}") from error
        begins = {part.partition: part.offset for part in found}
        return {
            partition: (max(low, high if begins[partition] < 0 else begins[partition]), high)
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
                value = self._decoded(message, message.value())
                document = None if value is None or message.key() != OffsetDocument.KEY.encode() else value["payload"]
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
        self._reading = _Messages(opened(Consumer, self._config), ends)
        return self._reading

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _coordinates_of(self, messages: _Messages) -> Iterator[tuple[Partition, Coordinates]]:
        while not messages.is_at_end:
            for message in messages.drain():
                value = self._decoded(message, message.value())
                coordinates = None if value is None else coordinates_of(value["payload"])
                if coordinates is not None:
                    yield (str(message.topic()), int(message.partition() or 0)), coordinates

    def _incoming(self, message: Message, last: Incoming | None, *, is_single: bool) -> Incoming:
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

    def _record(self, message: Message) -> Record:
        raw_headers: Any = message.headers() or ()
        headers = {name: (value or b"").decode("utf-8", "backslashreplace") for name, value in raw_headers}
        key: Any = message.key()
        value: Any = message.value()
        return Record(
            str(message.topic()),
            int(message.partition() or 0),
            int(message.offset() or 0),
            self._decoded(message, key),
            self._decoded(message, value),
            headers,
            Wire(key, value, tuple(raw_headers)),
        )

    def _decoded(self, message: Message, data: Any) -> Any:
        try:
            return self._decoder.decode(data)
        except DecodeError as error:
            raise error.at(f"{message.topic()}[{message.partition()}] offset {message.offset()}") from error


class Stream:
    """The records of one topic, in the order of the log as far as they show it."""

    def __init__(self, messages: _Messages, unpack: Callable[[Message, Incoming | None], Incoming]) -> None:
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
    """Messages of some partitions from begin to end offsets, buffered by partition. Owns its consumer."""

    def __init__(self, consumer: Consumer, ends: Mapping[Partition, tuple[int, int]]) -> None:
        self._consumer = consumer
        self._ends = {part: high for part, (low, high) in ends.items() if low < high}
        self._buffers: dict[Partition, deque[Message]] = {part: deque() for part in self._ends}
        self._sizes = dict.fromkeys(self._ends, 0)
        self._share = BUFFERED_BYTES // max(1, len(self._ends))
        self._open = set(self._ends)
        self._paused: set[Partition] = set()
        self._silent_s = 0.0
        begins = [TopicPartition(*part, low) for part, (low, high) in ends.items() if low < high]
        consumer.assign(begins)

    def close(self) -> None:
        """Give the connection up."""
        self._consumer.close()

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

    def next_of(self, partition: int) -> Message | None:
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
            self._consumer.resume([TopicPartition(*part)])
        return message

    def drain(self) -> Iterator[Message]:
        """Yield what is there of any partition; nothing at the end. Not to be mixed with `next_of`."""
        if self._open:
            self._fill()
        for part, buffer in self._buffers.items():
            while buffer:
                message = buffer.popleft()
                self._sizes[part] -= _size(message)
                yield message
        again = [TopicPartition(*part) for part in self._paused & self._open]
        self._paused -= self._open
        if again:
            self._consumer.resume(again)

    def leave(self, part: Partition) -> None:
        """Read no more of a partition."""
        if part in self._open:
            self._open.discard(part)
            self._consumer.pause([TopicPartition(*part)])

    def _fill(self) -> None:
        begun = time.monotonic()
        first = self._consumer.poll(_POLL_S)
        messages = [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]  # which waits for its number
        self._silent_s = 0.0 if messages else self._silent_s + time.monotonic() - begun  # not while the other side is read
        if self._silent_s > _SILENCE_S:
            waited = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(self._open))
            raise PublishError(f"for {_SILENCE_S:.0f} s the broker sent nothing of {waited}")
        for message in messages:
            self._sort(message)

    def _sort(self, message: Message) -> None:
        part = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                raise PublishError(f"topic {part[0]} cannot be read: {error.str()}")
            self._open.discard(part)
            return
        if part not in self._open:
            return
        offset, end = int(message.offset() or 0), self._ends[part]
        if offset < end:
            self._buffers[part].append(message)
            self._sizes[part] += _size(message)
        if offset >= end - 1:
            self._open.discard(part)
        is_full = len(self._buffers[part]) >= BUFFERED or self._sizes[part] >= self._share
        if part not in self._paused and (part not in self._open or is_full):
            self._paused.add(part)
            self._consumer.pause([TopicPartition(*part)])


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"") + 200


def span_of(coordinates: Iterable[Coordinates]) -> Span:
    """Return the span that reaches to all places."""
    span = Span()
    for each in coordinates:
        span = span.with_coordinates(each)
    return span


def _rank(head: Incoming, number: int) -> tuple[int, tuple[int, int]]:
    return (0, (number, 0)) if head.rank is None else (1, head.rank)
