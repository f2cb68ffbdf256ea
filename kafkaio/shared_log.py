"""A topic with one partition that several processes write and read whole: its order decides their races.

A record is a transaction of its own. Each writer has a transactional id of its own: a process that takes the id over ends the one
before it. `read` comes to a record of another process at most some seconds late, if that one died before its transaction ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkaio.committed_reader import SOON, CommittedReader, CommittedRecord
from kafkaio.slices import Slice
from kafkaio.transactional_writer import TransactionalWriter
from schemas.errors import StateError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from schemas.settings import KafkaSettings

_WRITING: Final[Mapping[str, Any]] = {"transaction.timeout.ms": 10_000, "linger.ms": 0}
"""Nobody reads further than the open transaction of a process that died, until it times out."""


class SharedLog:
    """The topic as one process has it: readable at once, writable after `fence`. Close it; for one thread.

    `ident` is the transactional id, and the consumer group, which is only a name.
    The topic must exist; `StateError` if it was created again. The other errors come from `CommittedReader` and
    `TransactionalWriter`; after an error of `append`, call `fence` again, or close it.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, ident: str) -> None:
        self._topic = topic
        self._reader = CommittedReader(kafka, ident, SOON)
        self._writer = TransactionalWriter(kafka, ident, _WRITING)
        self._next = 0

    def close(self) -> None:
        """Give the connections up."""
        self._reader.close()
        self._writer.close()

    def fence(self) -> None:
        """Take the transactional id over: the process that had it can write no more."""
        self._writer.fence()

    def begin(self) -> int:
        """Begin to read at the first record; return the present end."""
        self._next = 0
        return self._end()

    def read(self, until: int = 0) -> Iterator[CommittedRecord]:
        """Yield the records behind the last one, up to the offset `until`, or to the present end if they are behind it."""
        begin, end = self._next, until if until > self._next else self._end()
        if end < begin:
            raise self._created_again()
        for record in self._reader.read_slices([Slice(self._topic, 0, begin, end)] if end > begin else []):
            if record.offset < begin:
                raise self._created_again()
            yield record
            self._next = record.offset + 1
        self._next = end

    def append(self, key: bytes, value: bytes) -> int:
        """Append a record; return its offset when it is committed. Only `read(offset + 1)` waits until it can be read."""
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)

        self._writer.produce(self._topic, value, key, 0, on_delivery=delivered)
        self._writer.commit()
        return offsets[0]

    def _end(self) -> int:
        one = self._topic, 0
        return self._reader.ends([one])[one]

    def _created_again(self) -> StateError:
        return StateError(f"topic {self._topic} was deleted and created again: it was read to {self._next}, and ends before that")
