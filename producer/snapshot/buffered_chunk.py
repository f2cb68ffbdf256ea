"""A chunk that waits in memory for its close row (`merge: producer`), and the records it becomes there.

Rows are kept as the server sent them: that is smaller than any envelope, and the records can say, as
Debezium's do, at which position of the log they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rowcodec import ChunkContext, Records
from schemas.errors import TidemarkError
from schemas.windows import Touched

if TYPE_CHECKING:
    from mysqlio.binary_query import Buffer
    from rowcodec import EventContext, TableCodec
    from rowcodec.codec_factory import RowIdentity
    from schemas.position import Position


class ChunkTooLargeError(TidemarkError):
    """A chunk has more rows than may wait in memory; about `rows` of them would fit."""

    def __init__(self, message: str, rows: int) -> None:
        super().__init__(message)
        self.rows = rows


class BufferedChunk:
    """The buffered rows of one chunk. Filled by a chunk reader, then handed over to the log reader.

    `identity` identifies its rows. Where rows may be equal, or change without a record (`unique` is False), the
    log does not say which rows it overtook: such a chunk is written only if it touched none.
    """

    def __init__(
        self,
        topic: str,
        codec: TableCodec,
        identity: RowIdentity,
        context: ChunkContext,
        limit_bytes: int,
        *,
        unique: bool = True,
    ) -> None:
        self._unique = unique
        self.topic = topic
        self.rows = 0
        self.size_bytes = 0
        self._codec = codec
        self._identity = identity
        self._context = context
        self._limit_bytes = limit_bytes
        self._blocks: list[Buffer] = []

    def add(self, buf: Buffer, start: int, end: int, rows: int) -> None:
        """Keep a block of whole row packets; `ChunkTooLargeError` when that is too much, unless it is one row."""
        size = end - start
        if self.size_bytes + size > self._limit_bytes and self.rows + rows > 1:
            message = (
                f"a chunk for {self.topic} has more than {self._limit_bytes} bytes of rows "
                f"(snapshot.chunk_bytes) and has to be cut into smaller ones by its key"
            )
            fitting = (self.rows + rows) * self._limit_bytes // (self.size_bytes + size)
            raise ChunkTooLargeError(message, max(1, fitting))
        self._blocks.append(buf[start:end].copy())
        self.rows += rows
        self.size_bytes += size

    def is_doubtful(self, touched: Touched) -> bool:
        """Return whether the log changed a row of the chunk, and nobody can know which."""
        if self._unique or not touched:
            return False
        return any(
            key in touched
            for block in self._blocks
            for key in record_keys(self._identities(block), self._identity.skip)
        )

    def _identities(self, block: Buffer) -> Records:
        codec = self._codec if self._identity.codec is None else self._identity.codec
        return codec.encode_resultset(block, 0, block.size, self._context)

    def written_at(self, close: EventContext) -> tuple[str, int]:
        """Return the log file and the offset that its records name; `close` is as in `records`."""
        is_later = self._context.snapshot == "incremental"
        return (close.file, close.pos) if is_later else (self._context.file, self._context.pos)

    def records(self, touched: Touched, close: EventContext, now_ns: int) -> Iterator[Records]:
        """Yield the records of the rows that the log did not change, block by block; to be called once.

        `close` has the facts of the close row's event. An initial snapshot's rows have no
        transaction to name; rows of a later one name the transaction that closed the window.
        """
        context = replace(self._context, ts_us=now_ns // 1000, now_ns=now_ns)
        if context.snapshot == "incremental":
            context = replace(
                context,
                file=close.file,
                pos=close.pos,
                gtid=close.gtid,
                thread=close.thread,
                server_id=close.server_id,
            )
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            records = self._codec.encode_resultset(block, 0, block.size, context)
            if not touched:
                yield records
                continue
            identities = records
            if self._identity.codec is not None:
                identities = self._identity.codec.encode_resultset(block, 0, block.size, context)
            keys = record_keys(identities, self._identity.skip)
            kept = [index for index, key in enumerate(keys) if key not in touched]
            if kept:
                yield records if len(kept) == records.count else chosen(records, kept)


@dataclass(frozen=True, slots=True)
class ClosedChunk:
    """A chunk whose window closes here, and the keys that the log changed while it was open."""

    chunk: BufferedChunk
    touched: Touched
    request: str
    table: str


class WrittenRows(NamedTuple):
    """Rows of a snapshot request that were written into the table's change topic: records with `file` and `pos` in their source.

    They are among the changes at position `at`. `ts_us` is the time of that transaction, None at a transaction boundary.
    """

    request: str
    table: str
    file: str
    pos: int
    at: Position
    ts_us: int | None
    rows: int


def record_keys(records: Records, skip: int) -> Iterator[bytes]:
    """Return the key of each record, behind its first `skip` bytes."""
    keys, offsets = records.keys, records.key_offsets.tolist()
    return (keys[offsets[index] + skip : offsets[index + 1]] for index in range(records.count))


def chosen(records: Records, kept: list[int]) -> Records:
    """Return the records with these indices, in that order. They are rows of a SELECT: none belongs to another."""
    values, value_offsets = _chosen(records.values, records.value_offsets.tolist(), kept)
    keys, key_offsets, exact = records.keys, records.key_offsets, records.exact
    if records.has_key:
        keys, key_offsets = _chosen(records.keys, records.key_offsets.tolist(), kept)
    return Records(
        count=len(kept),
        rows=len(kept),
        values=values,
        value_offsets=value_offsets,
        is_tombstone=records.is_tombstone[kept],
        keys=keys,
        key_offsets=key_offsets,
        has_key=records.has_key,
        ops=records.ops[kept],
        related=np.full(len(kept), -1, np.int32),
        exact=None if exact is None else {new: exact[old] for new, old in enumerate(kept) if old in exact},
    )


def _chosen(
    data: bytes, offsets: list[int], kept: list[int]
) -> tuple[bytes, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    pieces = [data[offsets[index] : offsets[index + 1]] for index in kept]
    ends = np.zeros(len(kept) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=ends[1:])
    return b"".join(pieces), ends
