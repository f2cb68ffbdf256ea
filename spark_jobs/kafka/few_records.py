"""A few records of Kafka, read by the driver itself: a job of Spark's takes ten times as long for them.

Each batch of the merge job has some markers of each table, and the producer's documents say which tables there are.
confluent-kafka makes an object of each record, which does for a few.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import structlog

from schemas.errors import SinkError
from schemas.overriding import override
from schemas.settings import KafkaSettings
from schemas.waiting import ENDING, WAITS, waiting
from spark_jobs.kafka.librdkafka import END, LASTING, PASSING, KafkaReadError
from spark_jobs.kafka.slices import Slice
from spark_jobs.kafka.worker_options import worker_options

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

log = structlog.get_logger()

FEW: Final = 2_000
"""With more records Spark's tasks are faster."""
_MOST_BYTES: Final = 32 << 20
_SILENCE_S: Final = 10.0
_OPEN_S: Final = 2.0
_PAUSE_S: Final = 600.0
_LONGEST_PAUSE_S: Final = 86_400.0
_POLL_S: Final = 0.1
_ADVICE: Final = (
    "Nothing is lost: Spark reads them for ten minutes, or longer where that was so before, so batches are longer; see the reason"
)
_Slices = Callable[["Consumer"], Sequence[Slice]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record; `timestamp` is its time in Kafka, by this machine's zone, None where it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None


class _TooManyBytes(Exception):  # noqa: N818 - no error: Spark's tasks read so much faster
    """The records of the slices are few, and large."""


class FewRecords:
    """Reads slices that are small, until that fails: then not for ten minutes, and longer where it fails again. For one thread."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._reads_from_s = 0.0
        self._failures = 0

    def read(self, slices: Sequence[Slice], key: bytes) -> list[Record] | None:
        """Return the committed records of the slices, those of a partition in order; None where another one is to read them.

        Values are kept of records with this key only; those of others are b"" where they have one. `SinkError` where the process
        is asked to end meanwhile.
        """
        if not slices:
            return []
        if sum(part.size for part in slices) > FEW:
            return None
        found = self._attempted(lambda _: slices, "markers")
        if found is None:
            return None
        return [one if one.key == key or one.value is None else replace(one, value=b"") for one in found]

    def read_partition(self, topic: str, partition: int, prefix: bytes) -> list[Record] | None:
        """Return what is committed now in a whole partition, in order, of keys that begin so; None and errors as above.

        What a transaction hides that is open now is waited for, 2 s at most.
        """

        def whole(consumer: Consumer) -> Sequence[Slice]:
            from confluent_kafka import TopicPartition

            return [Slice(topic, partition, *consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_SILENCE_S))]

        found = self._attempted(whole, "documents", _WholePartitions)
        return None if found is None else [one for one in found if one.key is not None and one.key.startswith(prefix)]

    def _attempted(self, slices_of: _Slices, what: str, reading: type[_Reading] | None = None) -> list[Record] | None:
        """Return the records; None where they are large, or where reading fails or has failed: `what` is for the log."""
        if time.monotonic() < self._reads_from_s:
            return None
        try:
            found = list(self._records(slices_of, what, reading or _Reading))
        except _TooManyBytes:
            return None
        except ImportError:
            self._reads_from_s = math.inf  # the workers' reader has said so
            return None
        except KafkaReadError as error:
            self._reads_from_s = time.monotonic() + min(_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
            self._failures += 1
            log.warning("merge.records_read_by_spark", what=what, reason=str(error), advice=_ADVICE)
            return None
        self._failures = 0
        return found

    def _records(self, slices_of: _Slices, what: str, reading: type[_Reading]) -> Iterator[Record]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition  # a driver may be without it

        errors: list[KafkaError] = []
        with waiting("kafka", self._kafka.bootstrap_servers, what):
            try:
                consumer = Consumer({**worker_options(self._kafka), "error_cb": errors.append})
                try:
                    slices = slices_of(consumer)
                    consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in slices])
                    yield from reading(consumer, slices, errors).records()
                finally:
                    consumer.close()
            except KafkaException as error:
                raise KafkaReadError(str(error)) from None


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
            if offset < part.end:
                yield self._record(message, where, offset)
        if self._is_over(part, offset, is_end=error is not None):
            self._end(where)

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
            self._error = error.str()
            if error.code() in LASTING:
                reason = f"Kafka cannot be read: {self._error}"
                raise KafkaReadError(reason)
        if WAITS.is_ending:
            raise SinkError(ENDING)
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
            raise _TooManyBytes
        return Record(*where, offset, key, value, written)


class _WholePartitions(_Reading):
    """The same of slices that are all that was committed in their partitions: ended by the broker's word alone.

    For a reader of what is committed, a partition ends before the first open transaction. What that hides now is waited for.
    """

    @override
    def _is_over(self, part: Slice, offset: int, *, is_end: bool) -> bool:
        from confluent_kafka import TopicPartition

        if not is_end:
            return False
        _, end = self._consumer.get_watermark_offsets(TopicPartition(part.topic, part.partition), cached=True)
        if end > offset and self._until_s == math.inf:
            self._left[part.topic, part.partition] = replace(part, end=end)
            self._until_s = time.monotonic() + _OPEN_S
            return False
        return super()._is_over(part, offset, is_end=is_end)
