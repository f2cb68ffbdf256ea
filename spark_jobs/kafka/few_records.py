"""A few records of Kafka, read by the driver itself: a job of Spark's takes ten times as long for them.

Each batch of the merge job has some markers of each table, and the producer's documents say which tables there are.
confluent-kafka makes an object of each record, which does for a few.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import structlog

from kafkaio.librdkafka import END, LASTING, NO_BROKER, PASSING, KafkaReadError
from kafkaio.slices import EARLIEST, Slice
from schemas.errors import EndingError
from schemas.overriding import override
from schemas.settings import KafkaSettings
from schemas.waiting import ENDING, WAITS, waiting
from spark_jobs.kafka.worker_options import worker_options

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

log = structlog.get_logger()

FEW: Final = 2_000
"""With more records Spark's tasks are faster."""
_MOST_BYTES: Final = 32 << 20
_MOST_PASSED: Final = 200_000
"""So many records of a whole partition take 1 s; a log that is not compacted can have many more."""
_SILENCE_S: Final = 10.0
_OPEN_S: Final = 2.0
_PAUSE_S: Final = 600.0
_LONGEST_PAUSE_S: Final = 86_400.0
_POLL_S: Final = 0.1
_CONNECT_S: Final = 1.0
_NO_END: Final = 2**63 - 1
_ADVICE: Final = {
    "markers": (
        "Nothing is lost: Spark reads them for ten minutes, or longer where that was so before; batches are longer; see the reason"
    ),
    "documents": (
        "Spark reads them for ten minutes, or longer where that was so before: a first batch, a new table and a new schema need "
        "2 to 3 s more; see the reason"
    ),
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record; `timestamp` is its time in Kafka, by this machine's zone, None where it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None


class _TooMuch(Exception):  # noqa: N818 - no error: Spark's tasks read so much faster
    """The records are large, or more than was expected."""


class FewRecords:
    """Reads a few records, until that fails: then not for ten minutes, and longer where it fails again. For several threads."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._pauses = {what: _Pause() for what in _ADVICE}

    def read(self, slices: Sequence[Slice], key: bytes) -> list[Record] | None:
        """Return the committed records of the slices, those of a partition in order; None where another one is to read them.

        Values are kept of records with this key only; those of others are b"" where they have one. `EndingError` where the process
        is asked to end meanwhile.
        """
        if not slices:
            return []
        if sum(part.size for part in slices) > FEW:
            return None
        found = self._attempted("markers", lambda consumer, errors: _Reading(consumer, slices, errors))
        if found is None:
            return None
        return [one if one.key == key or one.value is None else replace(one, value=b"") for one in found]

    def read_partition(self, topic: str, partition: int, prefix: bytes) -> list[Record] | None:
        """Return what is committed now in a whole partition, in order, of keys that begin so; None and errors as above.

        What a transaction hides that is open now is waited for, 2 s at most. What a leader that has just been chosen does not know
        yet is not: who needs a certain document asks again.
        """
        return self._attempted(
            "documents", lambda consumer, errors: _WholePartition(consumer, errors, topic, partition, prefix)
        )

    def _attempted(self, what: str, reading_by: Callable[[Consumer, list[KafkaError]], _Reading]) -> list[Record] | None:
        """Return the records; None where they are large, or where reading fails or has failed: `what` is for the log."""
        pause = self._pauses[what]
        if time.monotonic() < pause.until_s:
            return None
        try:
            found = self._records(what, reading_by)
        except _TooMuch:
            if what == "documents":  # they will not be less soon
                pause.until_s = time.monotonic() + _PAUSE_S
            return None
        except ImportError:
            pause.until_s = math.inf  # the workers' reader has said so
            return None
        except KafkaReadError as error:
            pause.begin()
            log.warning("merge.records_read_by_spark", what=what, reason=str(error), advice=_ADVICE[what])
            return None
        pause.failures = 0
        return found

    def _records(self, what: str, reading_by: Callable[[Consumer, list[KafkaError]], _Reading]) -> list[Record]:
        from confluent_kafka import Consumer, KafkaException  # a driver may be without it

        errors: list[KafkaError] = []
        options = worker_options(self._kafka)
        if what == "documents":
            options.pop("client.rack", None)  # of a follower that is behind, the end would be too early
        with waiting("kafka", self._kafka.bootstrap_servers, what):
            try:
                consumer = Consumer({**options, "error_cb": errors.append})
                try:
                    return list(reading_by(consumer, errors).records())
                finally:
                    consumer.close()
            except KafkaException as error:
                raise KafkaReadError(str(error)) from None


@dataclass(slots=True)
class _Pause:
    """Until when Spark reads, and how many readings in a row have failed."""

    until_s: float = 0.0
    failures: int = 0

    def begin(self) -> None:
        """Have Spark read for a while, after a reading that failed."""
        self.until_s = time.monotonic() + min(_PAUSE_S * 2**self.failures, _LONGEST_PAUSE_S)
        self.failures += 1


class _Reading:
    """The records of slices, until each has ended: by a record, or because the broker says so.

    Ends of transactions take offsets as well, and are no records.
    """

    def __init__(self, consumer: Consumer, slices: Sequence[Slice], errors: list[KafkaError]) -> None:
        self._consumer = consumer
        self._left = {(part.topic, part.partition): part for part in slices}
        self._next = {where: part.start for where, part in self._left.items()}
        self._errors = errors
        self._error = ""
        self._bytes = 0
        self._until_s = math.inf
        self._moved_s = time.monotonic()

    def records(self) -> Iterator[Record]:
        """Return the records; `KafkaReadError` where they are gone, a right is missing, or none of a slice has come for 10 s."""
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in self._left.values()])
        while self._left and time.monotonic() < self._until_s:
            self._require_hope()
            message = self._consumer.poll(_POLL_S)
            if message is not None:
                yield from self._taken(message)

    def _taken(self, message: Message) -> Iterator[Record]:
        where = str(message.topic()), int(message.partition() or 0)
        part, offset, error = self._left.get(where), int(message.offset() or 0), message.error()
        if error is not None and error.code() != END:
            self._note(error, part)
            return
        if part is None:
            return  # of a slice that has ended: its partition may have more
        if error is None:
            if offset < self._next[where]:
                reason = f"topic {where[0]} partition {where[1]}: a record at {offset} came where {self._next[where]} was next"
                raise KafkaReadError(reason)
            self._next[where], self._moved_s = offset + 1, time.monotonic()
            if offset < part.end and self._wants(message.key()):
                yield self._record(message, where, offset)
        if self._is_over(part, offset, is_end=error is not None):
            self._end(where)

    def _wants(self, _key: bytes | None) -> bool:
        return True

    def _is_over(self, part: Slice, offset: int, *, is_end: bool) -> bool:
        """Return whether a slice is over with a record, or with the end of its partition, at this offset."""
        return offset >= (part.end if is_end else part.end - 1)

    def _end(self, where: tuple[str, int]) -> None:
        from confluent_kafka import TopicPartition

        del self._left[where]
        self._moved_s = time.monotonic()
        if self._left:
            self._consumer.incremental_unassign([TopicPartition(*where)])

    def _note(self, error: KafkaError, part: Slice | None) -> None:
        """Remember an error that may pass, and one of no slice; `KafkaReadError` for any other."""
        self._error = error.str()
        if part is not None and error.code() not in PASSING:
            reason = f"topic {part.topic} partition {part.partition} cannot be read: {self._error}"
            raise KafkaReadError(reason)

    def _require_hope(self) -> None:
        while self._errors:
            error = self._errors.pop(0)
            if error.code() != NO_BROKER or not self._error:
                self._error = error.str()
            if error.code() in LASTING:
                reason = f"Kafka cannot be read: {self._error}"
                raise KafkaReadError(reason)
        if WAITS.is_ending:
            raise EndingError(ENDING)
        if time.monotonic() - self._moved_s > _SILENCE_S:
            topics = ", ".join(sorted({topic for topic, _ in self._left}))
            reason = f"Kafka has sent no record of {topics} for {_SILENCE_S:g} s{self._error and f': {self._error}'}"
            raise KafkaReadError(reason)

    def _record(self, message: Message, where: tuple[str, int], offset: int) -> Record:
        kind, at_ms = message.timestamp()
        written = datetime.fromtimestamp(at_ms / 1000) if kind else None  # noqa: DTZ006 - as Spark gives it, without a zone
        key, value = message.key(), message.value()
        self._bytes += len(key or b"") + len(value or b"")
        if self._bytes > _MOST_BYTES:
            raise _TooMuch
        return Record(*where, offset, key, value, written)


class _WholePartition(_Reading):
    """All that was committed in a partition, of keys that begin so. It is over when the broker says that it ends.

    For a reader of what is committed, a partition ends before the first open transaction. What that hides now is waited for.
    """

    def __init__(self, consumer: Consumer, errors: list[KafkaError], topic: str, partition: int, prefix: bytes) -> None:
        super().__init__(consumer, [Slice(topic, partition, EARLIEST, _NO_END)], errors)
        self._prefix = prefix
        self._hidden_end = self._passed = 0

    @override
    def records(self) -> Iterator[Record]:
        self._require_partition()
        yield from super().records()

    def _require_partition(self) -> None:
        """`KafkaReadError` for a topic without this partition.

        Without metadata librdkafka looks for the leader half a second later.
        """
        from confluent_kafka import KafkaException

        ((topic, partition),) = self._left
        with suppress(KafkaException):
            known = self._consumer.list_topics(topic, timeout=_CONNECT_S).topics.get(topic)
            if known is not None and known.error is None and partition not in known.partitions:
                reason = f"topic {topic} has no partition {partition}"
                raise KafkaReadError(reason)

    @override
    def _wants(self, key: bytes | None) -> bool:
        self._passed += 1
        if self._passed > _MOST_PASSED:
            raise _TooMuch
        return key is not None and key.startswith(self._prefix)

    @override
    def _is_over(self, part: Slice, offset: int, *, is_end: bool) -> bool:
        from confluent_kafka import TopicPartition

        if not is_end:
            return False
        _, end = self._consumer.get_watermark_offsets(TopicPartition(part.topic, part.partition), cached=True)
        if end > offset and not self._hidden_end:
            self._hidden_end, self._until_s = end, time.monotonic() + _OPEN_S
        return offset >= self._hidden_end
