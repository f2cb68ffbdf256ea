"""A first start that skips events and rows after its position: a `Part` of a transaction that counts as published already.

What enters: the boundary of the settings, and how many events and rows after it another reader has dealt with (`skip-events` and
`skip-rows` of Flink CDC). What leaves: the offset of the transaction boundary before the first row to publish, with the rows of the
open transaction to leave out.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_facts import current_position
from producer.binlog import events
from producer.source.dump import StreamStart
from producer.source.log_scan import batches_before
from producer.stream.cursor import LogCursor
from producer.stream.groups import TransactionAssembler
from producer.stream.routes import count_event, counted, whole_rows
from producer.stream.steps import Drop, End, PartialRows, Rows, TableMapStep
from schemas.errors import SourceError

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.binlog import EventBatch
    from producer.stream.offset import LogOffset
    from producer.stream.ports import Route
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

_HEADER: Final = 19
_TABLE_ID_END: Final = _HEADER + 6


def after_skipped(settings: SourceSettings, facts: ServerFacts, connection: Connection, offset: LogOffset) -> LogOffset:
    """Return the offset after the events and rows that `source.start_at` skips; they are looked up in the log.

    Events that the server makes up for a connection do not count; a compressed transaction is one event. Raises `SourceError` where
    the log ends before, and where the events end among rows that may still be rolled back.
    """
    start_at = settings.start_at
    if not (start_at.skip_events or start_at.skip_rows):
        return offset
    end, counter = current_position(connection, facts), SkippedEvents(offset, facts.flavour, start_at.skip_rows)
    left, start = start_at.skip_events, StreamStart(offset.start.file, offset.start.pos)
    with closing(batches_before(settings, facts, start, end)) as batches:
        for batch in batches:
            for index in range(batch.count):
                if left == 0 and counter.passes_events():
                    return _noted(counter.offset)
                counter.read(batch, index)
                left -= bool(left) and not batch.is_artificial(index)
    if left == 0 and counter.passes_events():
        return _noted(counter.offset)
    missing = f"{left} of the events" if left else "the rows"
    message = (
        f"source.start_at: {missing} to skip after {offset.file}:{offset.pos} are not in the log yet, which ends at "
        f"{end.file}:{end.pos}"
    )
    raise SourceError(message)


def _noted(offset: LogOffset) -> LogOffset:
    rows = 0 if offset.part is None else offset.part.rows
    log.info("log.start_skips", file=offset.file, pos=offset.pos, rows_of_transaction=rows)
    return offset


class SkippedEvents:
    """The events of a log that are read to be skipped, and then `rows` rows of the next rows event (pure).

    `offset` is the one that the rows after them are read from, once `passes_events` has returned true.
    """

    def __init__(self, offset: LogOffset, flavour: str, rows: int) -> None:
        self._first = self.offset = offset
        self._assembler = TransactionAssembler(LogCursor(offset, flavour), flavour)
        self._rows = rows
        self._tables: dict[int, Route] = {}
        self._version = ""
        self._are_events_passed = False
        self._is_inside = False

    def passes_events(self) -> bool:
        """Note that all events are read; return whether there are no rows left to skip, so that `offset` is the one."""
        if not self._are_events_passed:
            self._are_events_passed = True
            transaction = self._assembler.transaction
            self._is_inside = transaction is not None
            if transaction is not None and transaction.pending is not None:
                message = (
                    f"source.start_at.skip_events: they end at {self._assembler.where}, inside a transaction whose rows may be "
                    f"rolled back further on. Skip the events before it, or all of it"
                )
                raise SourceError(message)
            self._note_offset()
        return self._rows == 0

    def read(self, batch: EventBatch, index: int) -> None:
        """Read one event: count its rows."""
        if int(batch.types[index]) == events.FORMAT_DESCRIPTION_EVENT:
            start, end = int(batch.starts[index]), int(batch.ends[index])
            self._version = events.parse_format_description(batch.memory, start, end).server_version
        for step in self._assembler.steps(batch, index, index + 1):
            if type(step) is TableMapStep:
                self._table_map(step)
            elif type(step) is Rows:
                self._count(step)
            elif type(step) is PartialRows:
                table = self._tables[_table_id(step.batch, int(step.batch.starts[step.at]))]
                self._count(whole_rows(step, table))
            elif type(step) in (End, Drop):
                self._tables.clear()
                if self._is_inside and self._rows:  # it had no more rows: those to skip are of another transaction
                    self._is_inside = False
                    self._note_offset()

    def _note_offset(self) -> None:
        """Take the boundary as the offset, with the rows of the open transaction that were read."""
        transaction = self._assembler.transaction
        self.offset = self._assembler.boundary_offset(self._first)
        if transaction is not None and transaction.next_ordinal > 1:
            self.offset = replace(self.offset, part=self._assembler.divide())

    def _table_map(self, step: TableMapStep) -> None:
        view, start, end = step.batch.memory, step.start, step.end
        table = events.parse_table_map(view, start, end, server_version=self._version)
        self._tables[_table_id(step.batch, start)] = counted(table)

    def _count(self, step: Rows) -> None:
        transaction, batch, _, kind, start, end, file, offset = step
        route = self._tables.get(_table_id(batch, start))
        if route is None:  # the empty event that only ends a statement
            return
        rows = count_event(route, batch, kind, start, end, f"{file}:{offset}")
        if self._are_events_passed and self._rows:
            transaction.next_ordinal += min(rows, self._rows)
            self.offset = replace(self.offset, part=self._assembler.divide())
            self._rows = 0
            return
        transaction.next_ordinal += rows


def _table_id(batch: EventBatch, start: int) -> int:
    return int.from_bytes(batch.memory[start + _HEADER : start + _TABLE_ID_END], "little")
