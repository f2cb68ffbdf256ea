"""The position of a log reader in its log: the last transaction boundary, and which transactions are before it (pure)."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from producer.binlog.events import parse_start
from producer.source.begun import Begun
from producer.stream import transaction as transactions
from schemas.gtid_sets import parse_gtid_set
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from producer.binlog.events import Rotate
    from producer.binlog.transaction_runs import TransactionRun
    from producer.stream.offset import LogOffset, Part, ResumePoint
    from producer.stream.steps import RereadHint
    from producer.stream.transaction import OpenTransaction

log = structlog.get_logger(__name__)

_FIRST_OFFSET: Final = 4


class LogCursor:
    """The file that is read, and the boundary up to which whole transactions were read. Starts at an offset.

    `gtids` are all transactions before the boundary, `last` is the last of them. `part` is the transaction of which an
    earlier start, or this one, has committed some rows.
    """

    def __init__(self, offset: LogOffset, flavour: str) -> None:
        self.epoch = offset.epoch
        self.file = offset.start.file
        self.gtids = parse_gtid_set(offset.start.gtid_set, flavour)
        self.part: Part | None = offset.part
        self._inherited = parse_gtid_set(offset.inherited, flavour)
        self._boundary_file = offset.start.file
        self._boundary_pos = offset.start.pos
        self._read_back_to = offset.position if offset.resume else None
        self.last: Begun | None = offset.last

    @property
    def boundary(self) -> tuple[str, int]:
        """The log file and the offset of the last transaction boundary; no file before the first event of a log."""
        return self._boundary_file, self._boundary_pos

    @property
    def is_reading_back(self) -> bool:
        """Whether the log is before the committed offset, to reach an XA PREPARE again."""
        return self._read_back_to is not None

    @property
    def has_new_boundary(self) -> bool:
        """Whether the boundary is known, and not before the committed offset."""
        return self._read_back_to is None and bool(self._boundary_file)

    @property
    def is_plain(self) -> bool:
        """Whether each transaction that follows is new as a whole: the log is not read back, none was published before."""
        return self._read_back_to is None and self.part is None and not self._inherited

    def boundary_position(self) -> Position:
        """Return the last transaction boundary as a position."""
        return Position(self.epoch, file_number(self._boundary_file), self._boundary_pos, 0)

    def offset(self, committed: LogOffset, resume: ResumePoint | None) -> LogOffset:
        """Return the offset of the boundary, which follows the committed one; `resume` is its oldest open XA PREPARE."""
        return replace(
            committed,
            file=self._boundary_file,
            pos=self._boundary_pos,
            gtid_set=str(self.gtids),
            resume=resume,
            last=self.last,
            inherited=str(self._inherited),
            part=self.part,
        )

    def is_ahead(self, pos: int) -> bool:
        """Return whether an offset of this file is after the boundary.

        A stream by GTIDs begins before the boundary, and leaves out what was read.
        """
        return (file_number(self.file), pos) > (file_number(self._boundary_file), self._boundary_pos)

    def is_inherited(self, gtid: str | None) -> bool:
        """Return whether an earlier epoch has published the transaction; one that it has not is noted as seen."""
        if gtid is None or not self._inherited:
            return False
        if self._inherited.contains(gtid):
            return True
        self._inherited.passed(gtid)
        return False

    def has_passed(self, hint: RereadHint) -> bool:
        """Return whether the transaction that the hint names is before the boundary."""
        return self.boundary_position() > Position(hint.epoch, file_number(hint.file), hint.pos, 0)

    def begin(self, offset: int, gtid: str | None, ts_us: int | None) -> OpenTransaction:
        """Return the transaction that begins at an offset of this file: `published` if it was, `in_kafka` as far as it was."""
        begun = transactions.begin(self.epoch, self.file, offset, gtid, ts_us)
        self.end_reading_back(begun.position)
        begun.published = self.is_reading_back or self.is_inherited(gtid)
        if not self.is_reading_back and self.part is not None and self.part.is_of(self.file, offset, gtid):
            begun.in_kafka = self.part.rows
            log.info("log.part_read_again", file=self.file, pos=offset, rows=begun.in_kafka)
        return begun

    def rotate(self, rotate: Rotate, *, is_boundary: bool) -> None:
        """Continue in another file, whose beginning is a boundary unless a transaction is open."""
        self.file, begins = rotate.file, max(rotate.position, _FIRST_OFFSET)
        if is_boundary and self.is_ahead(begins):
            self.move_boundary(begins)

    def end_transaction(self, transaction: OpenTransaction, began: Begun | None) -> None:
        """Note that the transaction is read whole; `move_boundary` follows."""
        if transaction.gtid is not None:
            self.gtids.add(transaction.gtid)
        self.last = began or self.last
        if self.part is not None and self.part.is_of(self.file, transaction.position.offset, transaction.gtid):
            self.part = None

    def pass_run(self, run: TransactionRun) -> Begun:
        """Note that the transactions of the run are read whole; return the beginning of the last one."""
        batch, first, end = run.batch, run.event_of(run.count - 1), run.end - 1
        view = batch.memory[batch.starts[first] : batch.ends[first]]
        gtid, ts_us = parse_start(view, 0, len(view), int(batch.types[first]))
        self.last = Begun(self.file, int(batch.offsets[first]), gtid, ts_us, zlib.crc32(view))
        for gtids in run.gtids():
            self.gtids.add_run(gtids)
        self.move_boundary(int(batch.offsets[end] + batch.sizes[end]))
        return self.last

    def move_boundary(self, pos: int) -> None:
        """Move the boundary to an offset of this file."""
        self._boundary_file, self._boundary_pos = self.file, pos
        if self._read_back_to is not None:
            self.end_reading_back(self.boundary_position())

    def end_reading_back(self, boundary: Position) -> None:
        """End the second reading where the log reaches the committed offset: everything after it is new."""
        if self._read_back_to is not None and boundary >= self._read_back_to:
            self._read_back_to = None
            log.info("log.read_back", boundary=boundary.text)
