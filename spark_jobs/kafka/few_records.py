"""A few records of Kafka, read by the driver itself: a job of Spark's takes ten times as long for them.

Each batch of the merge job has some markers of each table, and the producer's documents say which tables there are.
confluent-kafka makes an object of each record, which does for a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from kafkaio.committed_reader import OPEN_END, CommittedReader, CommittedRecord
from kafkaio.slices import EARLIEST, Slice
from schemas.errors import EndingError, PublishError, StateError
from schemas.settings import KafkaSettings
from schemas.waiting import ENDING, WAITS
from spark_jobs.kafka.read import CONSUMERS
from spark_jobs.kafka.worker_options import READING, connection_options

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
class DriverRecord:
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
        self._kafka = replace(kafka, options=connection_options(kafka))
        self._pauses = {what: _Pause() for what in _ADVICE}

    def read(self, slices: Sequence[Slice], key: bytes) -> list[DriverRecord] | None:
        """Return the committed records of the slices, those of a partition in order; None where another one is to read them.

        Values are kept of records with this key only; those of others are b"" where they have one. `EndingError` where the process
        is asked to end meanwhile.
        """
        if not slices:
            return []
        if sum(part.size for part in slices) > FEW:
            return None
        found = self._attempted("markers", lambda reader: reader.read_slices(slices))
        if found is None:
            return None
        return [_record(one, one.value if one.key == key or one.value is None else b"") for one in found]

    def read_partition(self, topic: str, partition: int, prefix: bytes) -> list[DriverRecord] | None:
        """Return what is committed now in a whole partition, in order, of keys that begin so; None and errors as above.

        Records that a transaction hides which is open now are waited for, 2 s at most. Records that a leader which has just been
        chosen does not know yet are not: who needs a certain document asks again.
        """
        whole = Slice(topic, partition, EARLIEST, OPEN_END)

        def records(reader: CommittedReader) -> Iterator[CommittedRecord]:
            if (topic, partition) not in reader.partitions(topic):
                raise PublishError(f"topic {topic} has no partition {partition}")
            with suppress(StateError):  # the transaction is still open
                for passed, record in enumerate(reader.read_slices([whole], _OPEN_S)):
                    if passed == _MOST_PASSED:
                        raise _TooMuch
                    if record.key is not None and record.key.startswith(prefix):
                        yield record

        found = self._attempted("documents", records)
        return None if found is None else [_record(one, one.value) for one in found]

    def _attempted(
        self, what: str, records: Callable[[CommittedReader], Iterator[CommittedRecord]]
    ) -> list[CommittedRecord] | None:
        """Return the records; None if they are large, or if reading fails or has failed: `what` is for the log."""
        pause = self._pauses[what]
        if time.monotonic() < pause.until_s:
            return None
        try:
            found = self._records(what, records)
        except _TooMuch:
            if what == "documents":  # they will not be less soon
                pause.until_s = time.monotonic() + _PAUSE_S
            return None
        except (PublishError, StateError) as error:
            if WAITS.is_ending:
                raise EndingError(ENDING) from error
            pause.begin()
            log.warning("merge.records_read_by_spark", what=what, reason=str(error), advice=_ADVICE[what])
            return None
        pause.failures = 0
        return found

    def _records(self, what: str, records: Callable[[CommittedReader], Iterator[CommittedRecord]]) -> list[CommittedRecord]:
        group = self._kafka.options.get("group.id", CONSUMERS)
        rack = {"client.rack": ""} if what == "documents" else {}  # of a follower that is behind, the end would be too early
        with CommittedReader(self._kafka, group, {**READING, **rack}, _SILENCE_S) as reader:
            found, size = [], 0
            for record in records(reader):
                size += record.size
                if size > _MOST_BYTES:
                    raise _TooMuch
                found.append(record)
        return found


@dataclass(slots=True)
class _Pause:
    """Until when Spark reads, and how many readings in a row have failed."""

    until_s: float = 0.0
    failures: int = 0

    def begin(self) -> None:
        """Have Spark read for a while, after a reading that failed."""
        self.until_s = time.monotonic() + min(_PAUSE_S * 2**self.failures, _LONGEST_PAUSE_S)
        self.failures += 1


def _record(record: CommittedRecord, value: bytes | None) -> DriverRecord:
    at_ms = record.timestamp_ms
    written = None if at_ms is None else datetime.fromtimestamp(at_ms / 1000)  # noqa: DTZ006 - as Spark gives it, without a zone
    return DriverRecord(record.topic, record.partition, record.offset, record.key, value, written)
