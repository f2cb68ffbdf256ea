"""The transaction the log reader stands in: where it began, and what its rows share. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.position import Position, file_number

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.stream.pending_rows import HeldRows


@dataclass(slots=True)
class OpenTransaction:
    """One event group of the binlog.

    `position` is the border (ordinal 0) of the group; `next_ordinal` is what its next row gets, from 1.
    `ts_us` is the source's commit time in µs where the GTID event carries one, else None (the row
    event's own whole seconds are used). `needs_commit`: only an XID or COMMIT ends it; else a DDL statement
    does. `held` takes the rows of a group that must not be published before its end, or before another
    group's XA COMMIT; None for all others. With transaction metadata `ident` is the id its records have, once
    it has begun to have rows, and `counts` the change records written so far by table. `published`: its rows
    are in Kafka already, or wait there for an XA COMMIT that is; they are read only to be dropped or held. `in_kafka` are
    those of its first rows that an earlier start has published.
    """

    position: Position
    gtid: str | None
    ts_us: int | None
    thread: int | None = None
    needs_commit: bool = False
    next_ordinal: int = 1
    held: HeldRows | None = None
    ident: str = ""
    counts: dict[str, int] | None = None
    published: bool = False
    in_kafka: int = 0

    @property
    def is_in_kafka(self) -> bool:
        """Whether its next row is there."""
        return self.next_ordinal <= self.in_kafka

    def take(self, rows: int) -> int:
        """Reserve ordinals for `rows` rows; the first of them."""
        first = self.next_ordinal
        self.next_ordinal += rows
        return first

    def source_ts_us(self, batch: EventBatch, index: int) -> int:
        """The source's time in µs: of the commit where the log tells it, else of that event, in whole seconds."""
        if self.ts_us is not None:
            return self.ts_us
        return int(batch.timestamps[index]) * 1_000_000


def begin(epoch: int, file: str, offset: int, gtid: str | None, ts_us: int | None) -> OpenTransaction:
    """The transaction whose first event starts at `offset` (64 bit) of `file`."""
    return OpenTransaction(Position(epoch, file_number(file), offset, 0), gtid, ts_us)
