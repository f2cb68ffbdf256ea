"""A topic with one partition that several processes write and read whole: its order decides their races.

A record is a transaction of its own. Each writer has a transactional id of its own: a process that takes the id over ends the one
before it. `read` comes to a record of another process at most some seconds late, if that one died before its transaction ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkaio.committed_reader import CommittedReader, CommittedRecord
from kafkaio.slices import EARLIEST
from kafkaio.transactional_writer import TransactionalWriter
from schemas.errors import StateError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from schemas.settings import KafkaSettings

_READING: Final[Mapping[str, Any]] = {"fetch.wait.max.ms": 100}
"""An end that is the marker of a transaction is reported by a fetch that found nothing."""
_WRITING: Final[Mapping[str, Any]] = {"transaction.timeout.ms": 10_000, "linger.ms": 0}
"""Nobody reads further than the open transaction of a process that died, until it times out."""


class SharedLog:
    """The topic as one process has it: readable at once, writable after `fence`. Close it; for one thread.

    The topic must exist; `StateError` if it was created again. The other errors come from `CommittedReader` and
    `TransactionalWriter`; after an error of `append`, call `fence` again, or close it.
    """

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._reader = CommittedReader(kafka, f"{topic}-reader", _READING)
        self._writer: TransactionalWriter | None = None

    def close(self) -> None:
        """Give the connections up."""
        self._reader.close()
        if self._writer is not None:
            self._writer.close()

    def fence(self, transactional_id: str) -> None:
        """Write by that transactional id from now on: the process that had it can write no more."""
        if self._writer is not None:
            self._writer.close()
        self._writer = TransactionalWriter(self._kafka, transactional_id, _WRITING)
        self._writer.fence()

    def begin(self) -> int:
        """Begin to read at the first record; return the present end."""
        one = self._topic, 0
        self._reader.begin({one: EARLIEST})
        return self._reader.ends([one])[one]

    def read(self, until: int = 0) -> Iterator[CommittedRecord]:
        """Yield the records behind the last one, up to the offset `until`, or to the present end if they are behind it."""
        one = self._topic, 0
        reached = self._reader.reached[one]
        if until <= max(0, reached):
            until = self._reader.ends([one])[one]
        if until < reached:
            raise self._created_again(reached)
        for record in self._reader.read_to({one: until}):
            if record.offset < reached:
                raise self._created_again(reached)
            yield record

    def append(self, key: bytes, value: bytes) -> int:
        """Append a record; return its offset when it is committed."""
        assert self._writer is not None
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)

        self._writer.produce(self._topic, value, key, 0, on_delivery=delivered)
        self._writer.commit()
        return offsets[0]

    def _created_again(self, reached: int) -> StateError:
        return StateError(f"topic {self._topic} was deleted and created again: it was read up to {reached}, and ends before that")
