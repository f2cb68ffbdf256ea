"""When the oldest record from an offset on was written: one record of each partition is read, and nothing is committed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from kafkaio.client import client_config, opened
from schemas.applied.kafka_security import client_options

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

PartitionOffset = tuple[str, int, int]
"""Topic, partition, offset."""

_READ_S: Final = 5.0
_AT_ONCE: Final = 500
_NO_ANSWER: Final = f"Kafka did not answer in {_READ_S:g} s"
_OUT_OF_RANGE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - its public name
_FETCHED_BYTES: Final = 16_384
"""Of each partition and answer; a record that is larger comes alone."""


class OldestRecords:
    """A reader of single records that others can read as well. It connects at the first question.

    `lost` is the reason that is given for records that are gone.
    """

    def __init__(self, kafka: KafkaSettings, group: str, lost: str) -> None:
        self._lost = lost
        self._kafka = kafka
        self._group = group
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Give the connection up."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def written(self, offsets: Collection[PartitionOffset]) -> Mapping[PartitionOffset, int | str]:
        """Return when the first record from each offset on was written (Unix, ms); 0 where there is none that consumers see.

        A partition may have several offsets, because sinks have read it up to different ones. A text says why a time is not known.
        Records that were there and are gone (retention) are not known. From offset 0 on nothing was read yet, and the first one
        counts that is there.
        """
        times: dict[PartitionOffset, int | str] = dict.fromkeys(offsets, _NO_ANSWER)
        deadline = time.monotonic() + _READ_S
        for turn in _turns(times):
            for begin in range(0, len(turn), _AT_ONCE):
                self._read(turn[begin : begin + _AT_ONCE], times, deadline)
        return times

    def _read(self, offsets: Collection[PartitionOffset], found: dict[PartitionOffset, int | str], deadline: float) -> None:
        consumer = self._consumer = self._consumer or self._opened()
        waiting = {(topic, partition): (topic, partition, offset) for topic, partition, offset in offsets}
        try:
            consumer.assign([TopicPartition(topic, number, offset or OFFSET_BEGINNING) for topic, number, offset in offsets])
            while waiting and (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                if message is None:
                    continue
                if message.topic() is None:
                    continue  # about a broker: others may answer
                where = message.topic() or "", message.partition() or 0
                if (asked := waiting.pop(where, None)) is not None:
                    found[asked] = _said(message, asked, self._lost)
            consumer.unassign()
        except KafkaException as error:
            found.update(dict.fromkeys(waiting.values(), error.args[0].str()))
            self.close()

    def _opened(self) -> Consumer:
        options: dict[str, Any] = {
            **client_options(self._kafka),
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "fetch.message.max.bytes": _FETCHED_BYTES,
            "queued.min.messages": 1,
        }
        return opened(Consumer, client_config(self._kafka.bootstrap_servers, options))


def _turns(offsets: Collection[PartitionOffset]) -> list[list[PartitionOffset]]:
    """Return the offsets in lists that have each partition once: a consumer reads a partition from one offset on."""
    turns: list[list[PartitionOffset]] = []
    used: Counter[tuple[str, int]] = Counter()
    for one in offsets:
        number = used[one[:2]]
        used[one[:2]] += 1
        if number == len(turns):
            turns.append([])
        turns[number].append(one)
    return turns


def _said(message: Message, asked: PartitionOffset, lost: str) -> int | str:
    """Return the result of a message about the first record from an offset on."""
    error = message.error()
    if error is None:
        kind, ms = message.timestamp()
        return "the topic's records have no time" if kind == TIMESTAMP_NOT_AVAILABLE else ms
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        return 0
    topic, partition, offset = asked
    if error.code() in _OUT_OF_RANGE:
        return f"{topic}[{partition}] from offset {offset} on: {lost}"
    return f"{topic}[{partition}]: {error.str()}"
