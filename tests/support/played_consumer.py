"""A consumer that plays a broker, in place of confluent-kafka's: no server, no thread, and it answers at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PlayedMessage:
    """A message as confluent-kafka has it: a record, or an error."""

    where: Partition
    at: int
    content: bytes | None = None
    failure: KafkaError | None = None

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.content

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def error(self) -> KafkaError | None:
        return self.failure


class PlayedConsumer:
    """Gives the messages of the partitions that are assigned and not paused, round by round, and then none."""

    def __init__(self, messages: Mapping[Partition, Sequence[PlayedMessage]]) -> None:
        self._messages = {one: deque(given) for one, given in messages.items()}
        self._assigned: set[Partition] = set()
        self._paused: set[Partition] = set()

    def list_topics(self, *_: object, **__: object) -> None:
        """As a broker that answers."""

    def incremental_assign(self, parts: Sequence[TopicPartition]) -> None:
        self._assigned |= {(one.topic, one.partition) for one in parts}

    def incremental_unassign(self, parts: Sequence[TopicPartition]) -> None:
        self._assigned -= {(one.topic, one.partition) for one in parts}

    assign = incremental_assign

    def pause(self, parts: Sequence[TopicPartition]) -> None:
        self._paused |= {(one.topic, one.partition) for one in parts}

    def resume(self, parts: Sequence[TopicPartition]) -> None:
        self._paused -= {(one.topic, one.partition) for one in parts}

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, 0

    def poll(self, timeout: float) -> PlayedMessage | None:
        for one in sorted(self._assigned - self._paused):
            if left := self._messages.get(one):
                return left.popleft()
        time.sleep(min(timeout, 0.01))
        return None

    def close(self) -> None:
        """Nothing to give up."""


def play(monkeypatch: pytest.MonkeyPatch, messages: Mapping[Partition, Sequence[PlayedMessage]]) -> list[dict[str, Any]]:
    """Have every committed reader read from here; return the configurations that they are opened with."""
    configs: list[dict[str, Any]] = []

    def consumer(config: dict[str, Any]) -> PlayedConsumer:
        configs.append(config)
        return PlayedConsumer(messages)

    monkeypatch.setattr("kafkaio.committed_reader.Consumer", consumer)
    return configs
