"""Chunk rows into the snapshot topic: one transactional id per chunk reader slot.

The slot's rows become visible only with its commit, and a slot that is fenced can write no more: that is what
lets a window leave the register (DESIGN: horizon).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from producer.kafka.publisher import TransactionalPublisher

if TYPE_CHECKING:
    from kafkaio.topic_admin import TopicAdmin
    from rowcodec import Records
    from schemas.settings import KafkaSettings

# A chunk's transaction waits for the log reader to meet its open row, and lasts as long as its SELECT.
_CHUNK_OPTIONS: Final[Mapping[str, Any]] = {"transaction.timeout.ms": 180_000}


@dataclass(frozen=True, slots=True)
class ChunkReceipt:
    """What a committed chunk wrote: rows, and per partition an offset at or before its first row."""

    rows: int
    first_offsets: Mapping[int, int]


class KafkaChunkWriter:
    """The chunk writer of one slot; used by one thread."""

    def __init__(self, admin: TopicAdmin, kafka: KafkaSettings, transactional_id: str) -> None:
        self._admin = admin
        self._kafka = kafka
        self._transactional_id = transactional_id
        self._publisher = self._new_publisher()
        self._first_offsets: dict[int, int] = {}
        self._rows = 0

    def _new_publisher(self) -> TransactionalPublisher:
        return TransactionalPublisher(self._kafka, self._transactional_id, _CHUNK_OPTIONS)

    def fence(self) -> None:
        """Abort what an earlier holder of this slot left open; it can write no more.

        By a client of its own, with credentials read again: the log reader may continue for days on the connections it has.
        """
        self._publisher.close()
        self._publisher = self._new_publisher()
        self._publisher.fence()

    def begin(self, topic: str) -> None:
        """Start a chunk: remembers the topic's end offsets, at or before any row of this chunk."""
        self._rows = 0
        self._first_offsets = self._admin.end_offsets([topic])[topic]

    def write(self, topic: str, records: Records) -> None:
        """Produce a block of snapshot rows."""
        self._publisher.write(topic, records)
        self._rows += records.count

    def flush_and_commit(self) -> ChunkReceipt:
        """Make the chunk's rows visible, all of them."""
        self._publisher.commit()
        return ChunkReceipt(self._rows, dict(self._first_offsets))

    def abort(self) -> None:
        """Drop the chunk's rows."""
        self._publisher.abort()

    def close(self) -> None:
        """Give the connection up; an open transaction is left to be fenced."""
        self._publisher.close()
