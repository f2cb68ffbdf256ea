"""The log offset: where reading resumes after a restart (document `offset` of the state topic)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from producer.source.begun import Begun
from schemas.commit_records import StreamState
from schemas.documents import OffsetDocument, PartDocument, ResumePoint, TransactionStart
from schemas.json_codec import encode
from schemas.position import Position, file_number
from schemas.state import parse

__all__ = ["LogOffset", "Part", "ResumePoint"]


@dataclass(frozen=True, slots=True)
class Part:
    """The transaction at a boundary of which the first `rows` rows are in Kafka: it took too long for one Kafka transaction.

    On another server it has the same GTID, and begins where that is seen: `begun` then names no file.
    """

    begun: Begun
    rows: int

    def is_of(self, file: str, pos: int, gtid: str | None) -> bool:
        """Whether that is the transaction."""
        begun = self.begun
        return gtid == begun.gtid if begun.gtid is not None else (file, pos) == (begun.file, begun.pos)


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A transaction boundary: everything before it is in Kafka, and a `part` of the transaction behind it, where there is one.

    `pos` is the 64-bit offset of the next transaction's first event in `file`; `gtid_set` holds every
    transaction before it ("" without GTIDs); `server` is the server's UUID, or `server_id=<n>` on MariaDB.
    `resume` is the oldest XA PREPARE group before the boundary whose transaction is not finished: its rows are
    in no topic, so reading begins there again. None without one. `last` is the last transaction before the boundary, None
    where none was read yet. `inherited` holds the transactions published in earlier epochs which may be after the boundary in the
    log of this one, "" where there are none: another server may have them in another order. `stream` has the number and
    the promise of the last commit record, None without one; it says nothing of the log, so offsets that differ in it are equal.
    """

    epoch: int
    file: str
    pos: int
    gtid_set: str
    server: str
    resume: ResumePoint | None = None
    last: Begun | None = None
    inherited: str = ""
    part: Part | None = None
    stream: StreamState | None = field(default=None, compare=False)

    @property
    def start(self) -> ResumePoint:
        """Where reading begins after a restart; never after the boundary."""
        return self.resume or ResumePoint(self.file, self.pos, self.gtid_set)

    @property
    def position(self) -> Position:
        """The boundary as a position (ordinal 0)."""
        return Position(self.epoch, file_number(self.file), self.pos, 0)

    def sealed(self, stream: StreamState) -> LogOffset:
        """Return the same offset behind a commit record."""
        return replace(self, stream=stream)

    def document(self, committed_ms: int) -> dict[str, Any]:
        """Return the JSON form of its state document."""
        document = OffsetDocument(
            self.epoch,
            self.file,
            self.pos,
            self.gtid_set,
            self.server,
            self.position,
            committed_ms,
            self.resume,
            None if self.last is None else TransactionStart(*self.last),
            self.inherited,
            None if self.part is None else PartDocument(begun=TransactionStart(*self.part.begun), rows=self.part.rows),
            self.stream,
        )
        form: dict[str, Any] = encode(document)
        return form

    @staticmethod
    def parse(document: Mapping[str, Any]) -> LogOffset:
        """Return the offset of a state document; `StateError` if it is not one of ours, or of a newer version."""
        one = parse(OffsetDocument, OffsetDocument.KEY, document)
        last = None if one.last is None else _begun(one.last)
        part = None if one.part is None else Part(_begun(one.part.begun), one.part.rows)
        return LogOffset(one.epoch, one.file, one.pos, one.gtid_set, one.server, one.resume, last, one.inherited, part, one.stream)


def _begun(start: TransactionStart) -> Begun:
    return Begun(start.file, start.pos, start.gtid, start.ts_us, start.checksum)
