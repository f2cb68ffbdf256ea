"""A few records of Kafka, read by the driver itself: a job of Spark's takes ten times as long for them.

Each batch of the merge job has some markers of each table. confluent-kafka makes an object of each record, which does for a few.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import structlog

from schemas.settings import KafkaSettings
from schemas.waiting import waiting
from spark_jobs.kafka.librdkafka import KafkaReadError
from spark_jobs.kafka.slices import Slice
from spark_jobs.kafka.worker_options import worker_options

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = structlog.get_logger()

FEW: Final = 2_000
"""With more records Spark's tasks are faster."""
_SILENCE_S: Final = 15.0
_PAUSE_S: Final = 600.0
_POLL_S: Final = 0.1
_ADVICE: Final = "Nothing is lost: Spark reads them for ten minutes, which makes each batch longer; see the reason"


@dataclass(frozen=True, slots=True)
class Record:
    """A record; `timestamp` is its time in Kafka, by this machine's zone, None where it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None


class FewRecords:
    """Reads slices that are small, until that fails: then not for ten minutes. For one thread."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._reads_from_s = 0.0

    def read(self, slices: Sequence[Slice], key: bytes) -> list[Record] | None:
        """Return the committed records of the slices, those of a partition in order; None where another one is to read them.

        Values are kept of records with this key only; those of others are b"" where they have one.
        """
        if not slices:
            return []
        if sum(part.size for part in slices) > FEW or time.monotonic() < self._reads_from_s:
            return None
        try:
            return [one if one.key == key or one.value is None else replace(one, value=b"") for one in self._records(slices)]
        except ImportError:
            self._reads_from_s = math.inf  # the workers' reader has said so
        except KafkaReadError as error:
            self._reads_from_s = time.monotonic() + _PAUSE_S
            log.warning("merge.markers_read_by_spark", reason=str(error), advice=_ADVICE)
        return None

    def _records(self, slices: Sequence[Slice]) -> Iterator[Record]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition  # a driver may be without it

        asked = [TopicPartition(part.topic, part.partition, part.start) for part in slices]
        try:
            consumer = Consumer({**worker_options(self._kafka), "error_cb": lambda _: None})  # errors that last end in silence
            try:
                consumer.assign(asked)
                with waiting("kafka", self._kafka.bootstrap_servers, "markers"):
                    yield from _until_ends(consumer, {(part.topic, part.partition): part for part in slices})
            finally:
                consumer.close()
        except KafkaException as error:
            raise KafkaReadError(str(error)) from None


def _until_ends(consumer: Consumer, left: dict[tuple[str, int], Slice]) -> Iterator[Record]:
    """Return the records of the slices, until each has ended: by a record, or because the broker says so.

    Ends of transactions take offsets as well, and are no records.
    """
    moved_s = time.monotonic()
    while left:
        message = consumer.poll(_POLL_S)
        if message is None:
            if time.monotonic() - moved_s > _SILENCE_S:
                topics = ", ".join(sorted({topic for topic, _ in left}))
                reason = f"Kafka has sent no record of {topics} for {_SILENCE_S:g} s"
                raise KafkaReadError(reason)
            continue
        moved_s = time.monotonic()
        where, offset = (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
        part = left.get(where)
        is_end = _is_end(message)
        if part is None:
            continue
        if not is_end and offset < part.end:
            yield _record(message, offset)
        if offset >= (part.end if is_end else part.end - 1):
            del left[where]


def _is_end(message: Message) -> bool:
    """Return whether it is no record, and says that the partition ends at its offset; `KafkaReadError` for any other error."""
    error = message.error()
    if error is None:
        return False
    if error.name() != "_PARTITION_EOF":
        reason = f"topic {message.topic()} partition {message.partition()} cannot be read: {error.str()}"
        raise KafkaReadError(reason)
    return True


def _record(message: Message, offset: int) -> Record:
    kind, at_ms = message.timestamp()
    written = datetime.fromtimestamp(at_ms / 1000) if kind else None  # noqa: DTZ006 - as Spark gives it, without a zone
    key, value = message.key(), message.value()
    return Record(str(message.topic()), int(message.partition() or 0), offset, key, value, written)
