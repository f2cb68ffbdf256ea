"""The open transaction of the log reader: where it begins, and what its rows share (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer.catalog.statements import savepoint_name
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.binlog.events import MariadbGtid
    from producer.stream.pending_rows import PendingRows


@dataclass(slots=True)
class OpenTransaction:
    """One event group of the binlog.

    `position` is the boundary (ordinal 0) of the group; `next_ordinal` is the ordinal of its next row, from 1.
    `ts_us` is the source's commit time in µs where the GTID event has one, else None (the row event's own whole
    seconds are used). `needs_commit`: only an XID or COMMIT ends it; else a DDL statement does. `pending` keeps the
    rows of a group that must not be published before its end, or before the XA COMMIT in another group; None for
    all other groups. With transaction metadata, `ident` is the id in its records once it has rows, and `counts` the
    change records written so far by table. `published`: its rows are in Kafka already, or wait there for an XA
    COMMIT that is; they are read only to be dropped or kept. `in_kafka` is how many of its first rows an earlier
    start has published. `has_not_happened`: its statement is the start of an ALTER in two phases, or was rolled back.
    `unclear` says which part of its first event is not understood, "" for none. `is_ignored`: it begins with the loop mark of an
    ignored channel, and nothing of it is published.
    """

    position: Position
    gtid: str | None
    ts_us: int | None
    thread: int | None = None
    needs_commit: bool = False
    next_ordinal: int = 1
    pending: PendingRows | None = None
    ident: str = ""
    counts: dict[str, int] | None = None
    published: bool = False
    in_kafka: int = 0
    has_not_happened: bool = False
    unclear: str = ""
    is_ignored: bool = False

    def note(self, gtid: MariadbGtid) -> None:
        """Note what MariaDB's GTID event says of the group."""
        self.needs_commit, self.has_not_happened = not gtid.standalone, gtid.has_not_happened
        if gtid.unknown_flags:
            self.unclear = f"the extra flags {gtid.unknown_flags:#x} of its GTID event are not known"

    def note_savepoint(self, sql: str, flavour: str) -> None:
        """Note a SAVEPOINT among the pending rows, to which a ROLLBACK TO may return."""
        name = savepoint_name(sql, flavour)
        if self.pending is not None and name is not None and sql.lstrip()[:1].upper() == "S":
            self.pending.savepoint(name)

    def source_ts_us(self, batch: EventBatch, index: int) -> int:
        """Return the source's time in µs: of the commit where the log has it, else of that event, in whole seconds."""
        if self.ts_us is not None:
            return self.ts_us
        return int(batch.timestamps[index]) * 1_000_000


def begin(epoch: int, file: str, offset: int, gtid: str | None, ts_us: int | None) -> OpenTransaction:
    """Return the transaction whose first event is at `offset` (64 bit) of `file`."""
    return OpenTransaction(Position(epoch, file_number(file), offset, 0), gtid, ts_us)
