"""Committed records of partitions, from offsets on: up to ends that are known, to their present ends, or as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from kafkaio.client import client_config, failure, offsets_for_times, opened, watermarks, with_leaders
from kafkaio.librdkafka import END, LASTING, NO_BROKER, PASSING
from kafkaio.slices import Slice
from schemas.applied.kafka_security import client_options
from schemas.errors import KafkaAccessError, PublishError, StateError
from schemas.waiting import ENDING, TURN_S, WAITS, waiting

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

OPEN_END: Final = (1 << 63) - 1
"""An end that is not known before the broker reports it."""
ANSWER_S: Final = 20.0
SILENCE_S: Final = 60.0
SOON: Final[Mapping[str, Any]] = {"fetch.wait.max.ms": 10}
"""For one that reads to an end and is closed: the end is reported by a fetch that found nothing."""
_CONNECT_S: Final = 1.0
_AT_ONCE: Final = 1_000
_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - its public name

Partition = tuple[str, int]


class CommittedRecord(NamedTuple):
    """One record; `timestamp_ms` is its time in Kafka (Unix), None if it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: Collection[tuple[str, bytes | None]]

    @property
    def size(self) -> int:
        """The bytes of its key and value."""
        return len(self.key or b"") + len(self.value or b"")


class CommittedReader:
    """A consumer of the committed records of partitions. Use it in one thread, and close it, or in a `with` block.

    It joins no group, commits nothing and creates no topic. Of a transaction all records are read or none. Records have gaps
    between their offsets: the ends of transactions take one each, aborted and compacted records are not shown.

    Each method raises `PublishError` if Kafka does not answer, or refuses. Errors that may pass, as a lost connection, are waited
    out for `silence_s`. Then the client is replaced by a new one (`leaders_of`), which continues with the same records.
    """

    def __init__(
        self, kafka: KafkaSettings, group: str, options: Mapping[str, Any] | None = None, silence_s: float | None = None
    ) -> None:
        own = {
            **client_options(kafka),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            **(options or {}),
        }
        self._servers, self._silence_s = kafka.bootstrap_servers, SILENCE_S if silence_s is None else silence_s
        self._has_metadata = False
        self._config = {**client_config(kafka.bootstrap_servers, own), "error_cb": self._note}
        self._next: dict[Partition, int] = {}
        self._left: dict[Partition, int] = {}
        self._reason = ""
        self._lasting: KafkaError | None = None
        self.is_cut_off = False
        """Whether the client said that no broker is left, and nothing came since. One that lives long makes another reader then."""
        self._consumer = opened(Consumer, self._config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection up."""
        self._consumer.close()

    # ---- questions

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of all topics that our user may see."""
        with self._asking("the list of topics"):
            listed = self._consumer.list_topics(timeout=self._answer_s).topics
        return {name: sorted(topic.partitions) for name, topic in listed.items() if topic.error is None}

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic; an empty list if it does not exist."""

        def ask() -> list[Partition]:
            listed = self._consumer.list_topics(topic, timeout=self._answer_s).topics.get(topic)
            if listed is None or (listed.error is not None and listed.error.code() in _UNKNOWN):
                return []
            if listed.error is not None:  # no right to describe it, no leader: that says nothing of what is in it
                raise KafkaException(listed.error)
            return [(topic, number) for number in sorted(listed.partitions)]

        with self._asking(f"topic {topic}"):
            return with_leaders(ask, self._answer_s)

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset of each partition, and the one behind the last that can be read now."""
        listed = list(partitions)
        with self._asking(_named(listed)):
            return {one: watermarks(self._consumer, TopicPartition(*one), self._answer_s) for one in listed}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offset behind the last one of each partition that can be read now."""
        return {one: end for one, (_, end) in self.bounds(partitions).items()}

    def offsets_since(self, partitions: Iterable[Partition], ms: int) -> dict[Partition, int]:
        """Return the offset of the first record of each partition from a time (Unix, ms) on; -1 if it has no such record."""
        listed = list(partitions)
        with self._asking(_named(listed)):
            answers = offsets_for_times(self._consumer, [TopicPartition(*one, ms) for one in listed], self._answer_s)
        return {(one.topic, one.partition): one.offset for one in answers}

    # ---- records

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions, too, each from an offset on (or `EARLIEST`)."""
        if not offsets:
            return
        self._next |= offsets
        if not self._has_metadata:  # without it librdkafka looks for the leaders half a second later
            with suppress(KafkaException):
                self._consumer.list_topics(min(offsets)[0], timeout=_CONNECT_S)
        with self._asking(_named(offsets)):
            self._consumer.incremental_assign([TopicPartition(*one, offset) for one, offset in offsets.items()])

    def leave(self, partition: Partition) -> None:
        """Read no more of a partition."""
        self._left.pop(partition, None)
        if self._next.pop(partition, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(*partition)])

    def pause(self, partition: Partition) -> None:
        """Fetch nothing of a partition until `resume`."""
        self._consumer.pause([TopicPartition(*partition)])

    def resume(self, partition: Partition) -> None:
        """Fetch records of a partition again."""
        self._consumer.resume([TopicPartition(*partition)])

    @property
    def reached(self) -> Mapping[Partition, int]:
        """The offset behind the last record, or end, that was read of each partition."""
        return self._next

    @property
    def unread(self) -> int:
        """The number of records that were not read yet, as the brokers said with their last answers: at least so many."""
        ends = {one: self._written(one) for one in self._next}
        return sum(max(0, ends[one] - reached) for one, reached in self._next.items() if reached >= 0)

    def read_to(self, ends: Mapping[Partition, int], hidden_s: float | None = None) -> Iterator[CommittedRecord]:
        """Yield the records of the partitions that were begun, until each of these has reached its end, which is exclusive.

        An end is reached by its last record or because the broker says that nothing is left before it. Records behind an end may
        come as well. `OPEN_END` is the end of all records that were written when the broker says first that nothing is left.
        `StateError` if an open transaction hides an end for longer than `hidden_s`, which is `silence_s` by default.
        """
        return self._read(ends, hidden_s, lambda _: None)

    def read_slices(self, slices: Collection[Slice], hidden_s: float | None = None) -> Iterator[CommittedRecord]:
        """Yield the records of slices alone, and leave each partition at the end of its slice; errors as `read_to`."""
        ends = {(part.topic, part.partition): part.end for part in slices}
        self.begin({(part.topic, part.partition): part.start for part in slices})
        records = self._read(ends, hidden_s, self.leave)
        return (record for record in records if record.offset < ends[record.topic, record.partition])

    def next_record(self, timeout_s: float) -> CommittedRecord | None:
        """Return the next record of any partition; None if none came in that time."""
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            self._require_hope()
            record = None if message is None else self._record(message)
            if message is None or record is not None:
                return record

    def next_records(self, timeout_s: float) -> list[CommittedRecord]:
        """Return the next records of all partitions, as many as are there up to a thousand; none if none came in that time.

        After an error some may be lost: make another reader.
        """
        messages = self._consumer.consume(_AT_ONCE, 0)
        if not messages:
            record = self.next_record(timeout_s)
            return [] if record is None else [record]
        self._require_hope()
        return [record for message in messages if (record := self._record(message)) is not None]

    def _read(
        self, ends: Mapping[Partition, int], hidden_s: float | None, leave: Callable[[Partition], None]
    ) -> Iterator[CommittedRecord]:
        left = self._left = {one: end for one, end in ends.items() if self._next[one] < end}
        hidden: dict[Partition, float] = {}
        silent_s = 0.0
        while left:
            began = time.monotonic()
            until_s = began + self._silence_s - silent_s
            if all(one in hidden for one in left):
                until_s = min(until_s, max(hidden[one] for one in left))
            message = self._awaited(silent_s, until_s)
            silent_s += time.monotonic() - began  # not while the caller does something else
            if message is not None:
                one, record = (message.topic() or "", message.partition() or 0), self._record(message)
                if record is not None:
                    yield record
                if one in left and self._has_moved(one, message, hidden_s, hidden):
                    silent_s, self._reason = 0.0, ""
                if one in left and self._next[one] >= left[one]:
                    del left[one]
                    leave(one)
            self._require_hope()
            if left and all(one in hidden and time.monotonic() >= hidden[one] for one in left):
                raise StateError(_hidden(left))
            if left and (silent_s > self._silence_s or WAITS.is_ending):
                raise self._failed(_named(left), f"Kafka sent nothing for {silent_s:.3g} s")

    def _has_moved(self, one: Partition, message: Message, hidden_s: float | None, hidden: dict[Partition, float]) -> bool:
        """Return whether a message is a record or an end; note until when a hidden end is waited for."""
        error, left = message.error(), self._left
        if error is not None and error.code() == END:
            if left[one] == OPEN_END:
                left[one] = self._written(one)
            if self._next[one] < left[one]:
                hidden.setdefault(one, time.monotonic() + (self._silence_s if hidden_s is None else hidden_s))
        return error is None or error.code() == END

    def _awaited(self, silent_s: float, until_s: float) -> Message | None:
        """Return the next message; None if none came until then (of the monotonic clock). `silent_s`: since when there was none.

        It is one wait, however long: the log reports each once, and again after some time.
        """
        message = self._consumer.poll(0)
        if message is None:
            what, since_s = f"records of {_named(self._left)}", time.monotonic() - silent_s
            with waiting("kafka", self._servers, what, since_s):
                while message is None:
                    message = self._consumer.poll(min(TURN_S, self._silence_s))
                    if WAITS.is_ending or self._lasting is not None or time.monotonic() >= until_s:
                        break
        return message

    def _record(self, message: Message) -> CommittedRecord | None:
        """Return a record; None for the end of a partition, an error that may pass, and messages of a partition that was left."""
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        error, one = message.error(), (topic, partition)
        if error is not None and error.code() != END:
            self._note(error)
            if error.code() not in PASSING:
                raise self._failed(_named([one]), "", error)
            return None
        self.is_cut_off = False
        if one not in self._next:
            return None
        self._next[one] = offset + 1 if error is None else max(self._next[one], offset)
        if error is not None:
            return None
        kind, at_ms = message.timestamp()
        written = None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms
        headers: Any = message.headers() or ()
        return CommittedRecord(topic, partition, offset, message.key(), message.value(), written, headers)

    def _written(self, one: Partition) -> int:
        """Return the end of a partition as the broker said with its last answer, records of open transactions included."""
        return max(self._next[one], self._consumer.get_watermark_offsets(TopicPartition(*one), cached=True)[1])

    # ---- errors

    def _note(self, error: KafkaError) -> None:
        """Keep the reason; that no broker is left comes after the reason why the last one is not."""
        if error.code() != NO_BROKER or not self._reason:
            self._reason = error.str()
        self._lasting = error if error.code() in LASTING else self._lasting
        self.is_cut_off |= error.code() == NO_BROKER

    def _require_hope(self) -> None:
        if self._lasting is not None:
            raise self._failed(_named(self._left or self._next), "", self._lasting)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        if WAITS.is_ending:
            raise PublishError(f"{what} cannot be read: {ENDING}")
        self._reason = ""
        try:
            with waiting("kafka", self._servers, what):
                yield
            self._has_metadata = True
        except KafkaException as error:
            if not self._next:  # it returns no record, and calls `_note` with the reason, which may be a refused password
                self._consumer.poll(0)
            self._reason = self._reason or error.args[0].str()
            raise self._failed(what, "", error.args[0]) from error

    def _failed(self, what: str, silence: str, cause: KafkaError | None = None) -> PublishError:
        """Return the error, and continue with another client: this one may have lost every broker (`leaders_of`)."""
        text = f"{what} cannot be read: {': '.join(filter(None, (silence, self._reason)))}"
        self._reason, self._lasting, self.is_cut_off = "", None, False
        with suppress(KafkaAccessError):  # a file that is missing for a moment: the next error comes here again
            fresh = opened(Consumer, self._config)
            self._consumer.close()
            self._consumer, self._has_metadata = fresh, False
            self._consumer.assign([TopicPartition(*one, offset) for one, offset in self._next.items()])
        return PublishError(text) if cause is None else failure(text, cause)

    @property
    def _answer_s(self) -> float:
        return min(ANSWER_S, self._silence_s)


def _hidden(left: Mapping[Partition, int]) -> str:
    wanted = ", ".join(f"[{number}] up to {end}" for (_, number), end in sorted(left.items()))
    return (
        f"{_named(left)} could not be read to its end ({wanted}): an open transaction of another writer hides the last offset; "
        f"stop it or wait for its transaction to time out"
    )


def _named(partitions: Iterable[Partition]) -> str:
    """Return the topics, for messages."""
    return "topic " + ", ".join(sorted({topic for topic, _ in partitions}))
