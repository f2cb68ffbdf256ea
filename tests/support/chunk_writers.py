"""Twins of the chunk writer: one in memory, and one that breaks on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from producer.kafka.chunk_sink import ChunkReceipt
from producer.snapshot.reader import ChunkWriter
from schemas.errors import FencedError, PublishError
from schemas.overriding import override

if TYPE_CHECKING:
    from rowcodec import Records


@dataclass(slots=True)
class MemoryTopics:
    """What all memory writers of a test write into: committed records per topic, and the holder of each slot."""

    records: dict[str, list[tuple[bytes | None, bytes]]] = field(default_factory=dict)
    holders: dict[int, object] = field(default_factory=dict)
    commits: int = 0
    aborts: int = 0
    fences: int = 0


class MemoryChunkWriter(ChunkWriter):
    """The memory twin: one partition, and transactions that a newer holder of the slot fences."""

    def __init__(self, topics: MemoryTopics, slot: int) -> None:
        self._topics = topics
        self._slot = slot
        self._pending: list[tuple[str, bytes | None, bytes]] = []
        self._topic = ""

    @override
    def fence(self) -> None:
        self._pending.clear()
        self._topics.holders[self._slot] = self
        self._topics.fences += 1

    @override
    def begin(self, topic: str) -> None:
        self._check()
        self._topic = topic

    @override
    def write(self, topic: str, records: Records) -> None:
        self._check()
        values, keys = bytes(records.values), bytes(records.keys)
        value_at, key_at = records.value_offsets.tolist(), records.key_offsets.tolist()
        for index in range(records.count):
            key = keys[key_at[index] : key_at[index + 1]] if records.has_key else None
            self._pending.append((topic, key, values[value_at[index] : value_at[index + 1]]))

    @override
    def flush_and_commit(self) -> ChunkReceipt:
        self._check()
        first = len(self._topics.records.get(self._topic, ()))
        for topic, key, value in self._pending:
            self._topics.records.setdefault(topic, []).append((key, value))
        receipt = ChunkReceipt(len(self._pending), {0: first})
        self._pending.clear()
        self._topics.commits += 1
        return receipt

    @override
    def abort(self) -> None:
        self._pending.clear()
        self._topics.aborts += 1

    @override
    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self._topics.holders.get(self._slot) is not self:
            message = f"slot {self._slot} was taken over"
            raise FencedError(message)


class FaultyChunkWriter(MemoryChunkWriter):
    """The memory twin that breaks where `fault` says: it is called with each step's name and may raise.

    `PublishError` is what a broken broker raises; a fault of "commit" strikes before anything is visible, a
    fault of "committed" after it is.
    """

    def __init__(self, topics: MemoryTopics, slot: int, fault: Callable[[str], None]) -> None:
        super().__init__(topics, slot)
        self._fault = fault

    @override
    def fence(self) -> None:
        self._fault("fence")
        super().fence()

    @override
    def write(self, topic: str, records: Records) -> None:
        self._fault("write")
        super().write(topic, records)

    @override
    def flush_and_commit(self) -> ChunkReceipt:
        self._fault("commit")
        receipt = super().flush_and_commit()
        self._fault("committed")
        return receipt

    @override
    def abort(self) -> None:
        self._fault("abort")
        super().abort()


def broken(step: str) -> PublishError:
    """Return the error that a faulty writer raises."""
    return PublishError(f"the broker broke at {step} (on purpose)")
