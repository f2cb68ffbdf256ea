"""The log reader: one binlog connection, one thread, one stream of Kafka transactions.

The loop reads events, has them assembled into steps (`groups`), publishes each step (`publication`) and commits at
transaction boundaries (`checkpoint`). Log events are never delayed for a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from producer.stream.steps import (
    Begin,
    BeginRows,
    Boundary,
    CommitFirst,
    DataStatement,
    Definition,
    Drop,
    End,
    Kept,
    PartialRows,
    Release,
    RereadError,
    Rows,
    SqlText,
    TableMapStep,
)
from schemas.errors import DecodeError, LogTornError, TidemarkError, is_of_one_table

if TYPE_CHECKING:
    from threading import Event

    from producer.binlog import EventBatch
    from producer.binlog.transaction_runs import TransactionRun
    from producer.source.dump import BinlogStream
    from producer.stream.checkpoint import Checkpoints
    from producer.stream.groups import TransactionAssembler
    from producer.stream.offset import LogOffset
    from producer.stream.ports import BoundaryTask, RecordPublisher
    from producer.stream.publication import LogPublication
    from producer.stream.reader_progress import LogProgress
    from producer.stream.view_publication import ViewPublication
    from schemas.position import Position

log = structlog.get_logger(__name__)

_BOUNDARY: Final = Boundary()
_BACKLOG_BYTES: Final = 128 << 10
"""A read that brings so much was not waited for: the log is longer than what is read of it."""


class LogReader:
    """The loop over one source's log. Owned by one thread."""

    def __init__(
        self,
        stream: BinlogStream,
        assembler: TransactionAssembler,
        publication: LogPublication,
        checkpoints: Checkpoints,
        view: ViewPublication,
        publisher: RecordPublisher,
        clock: Callable[[], float] = time.monotonic,
        tasks: Sequence[BoundaryTask] = (),
    ) -> None:
        """`tasks` are what others want done between two transactions."""
        self._tasks = tasks
        self._stream = stream
        self._assembler = assembler
        self._publication = publication
        self._checkpoints = checkpoints
        self._view = view
        self._publisher = publisher
        self._clock = clock
        self._stop: Event | None = None
        self._actions: dict[type[Any], Callable[[Any], None]] = {
            Begin: self._begin,
            BeginRows: publication.begin_rows,
            TableMapStep: publication.table_map,
            PartialRows: self._partial_rows,
            SqlText: publication.sql_text,
            Definition: publication.definition,
            DataStatement: publication.data_statement,
            Kept: self._kept,
            Release: publication.release,
            Drop: publication.drop,
            CommitFirst: self._commit_first,
            End: self._end,
            Boundary: self._boundary,
        }

    @property
    def progress(self) -> LogProgress:
        """Live figures."""
        return self._checkpoints.progress

    @property
    def committed(self) -> LogOffset:
        """The offset of the last commit: everything before it is in Kafka."""
        return self._checkpoints.committed

    @property
    def boundary(self) -> Position:
        """The end of the last whole transaction that was read."""
        return self._boundary_position()

    def run(self, stop: Event) -> None:
        """Read and publish until `stop` is set; then commit the last whole transaction read.

        Raises the errors of source, Kafka and decoding; nothing after `committed` is then visible.
        """
        self._stop = stop
        try:
            while not stop.is_set():
                self._look_for_view()
                self._look_for_tasks(stop)
                if stop.is_set():
                    break
                try:
                    self._read()
                except LogTornError as error:
                    self._continue_in(error.next_file)
                if self._is_commit_due():
                    self._commit_later()
            if self._assembler.can_commit:
                self._commit()
            else:
                self._checkpoints.abort()
        finally:
            self._assembler.close()

    def _read(self) -> None:
        checkpoints = self._checkpoints
        batch = self._stream.read(checkpoints.read_timeout())
        self.progress.alive_s = self._clock()
        checkpoints.note_answer()
        checkpoints.is_behind = batch is not None and batch.size >= _BACKLOG_BYTES
        times = self.progress.times
        if batch is not None:
            proved_ms, size = times.came(batch), batch.size
            self._publish(batch)
            times.published(proved_ms)
            self.progress.bytes += size
        else:
            can_commit = self._assembler.can_commit
            times.nothing_came(at_boundary=can_commit)
            if can_commit and checkpoints.has_everything:
                times.committed()

    def _publish(self, batch: EventBatch) -> None:
        assembler, at = self._assembler, 0
        self._publication.note_server_version()
        try:
            while at < batch.count:
                run = None if self._publication.has_metadata else assembler.runs.find(batch, at)
                self._publish_events(batch, at, batch.count if run is None else run.first)
                at = batch.count if run is None else self._publish_run(run)
        except DecodeError as error:
            self._commit_what_is_whole()
            if error.position:
                raise
            raise error.at(assembler.where) from error
        except TidemarkError as error:
            if is_of_one_table(error):
                self._commit_what_is_whole()
            raise

    def _publish_events(self, batch: EventBatch, begin: int, end: int) -> None:
        """Carry out the steps of these events one by one."""
        if begin == end:
            return
        publish_rows, actions, publisher = self._publication.rows, self._actions, self._publisher
        for step in self._assembler.steps(batch, begin, end):
            if type(step) is Rows:
                publish_rows(step)
                if publisher.is_long_open:
                    self._commit_part_if_possible()
            else:
                actions[type(step)](step)

    def _publish_run(self, run: TransactionRun) -> int:
        """Publish a run at once as far as it can be, and the transaction that cannot be step by step; return the next event."""
        assembler, publication, batch = self._assembler, self._publication, run.batch
        first, end, fitting = run.first, run.end, -1
        is_waiting = self._view.position is not None or self._publisher.is_long_open
        if assembler.can_pass_runs and publication.publishes_runs and not is_waiting:
            fitting = publication.run(run, assembler.runs, self._boundary_position(), assembler.cursor.file)
        if fitting == run.count:
            assembler.pass_run(run)
            self._checkpoints.note_transaction()
            self._boundary(_BOUNDARY)
            return end
        if fitting < 0:
            self._publish_events(batch, first, end)
            return end
        middle, end = run.event_of(fitting), run.event_of(fitting + 1)
        shorter = assembler.runs.find(batch, first, fitting) if fitting else None
        if shorter is not None and (shorter.first, shorter.end) == (first, middle):
            self._publish_run(shorter)
        else:
            self._publish_events(batch, first, middle)
        self._publish_events(batch, middle, end)
        return end

    def _commit_what_is_whole(self) -> None:
        """Commit the transactions before the open one, if nothing of that is in the Kafka transaction yet.

        An error that needs a person comes back at each start: what was committed in the source before it would wait as long.
        """
        if self._assembler.can_commit_before and not self._publication.has_metadata:
            self._commit()

    def _continue_in(self, next_file: str) -> None:
        """Continue at the beginning of the next file. Rows of prepared XA transactions stay: their commit may be there."""
        if self._assembler.transaction is not None:
            self._assembler.break_off(next_file)
            self._publication.drop(Drop())
        self._stream.continue_in(next_file)

    # ---- steps

    def _begin(self, _: Begin) -> None:
        self._checkpoints.note_transaction()

    def _partial_rows(self, step: PartialRows) -> None:
        self._publication.partial_rows(step)
        self._commit_part_where_long()

    def _kept(self, _: Kept) -> None:
        self._commit_part_where_long()

    def _commit_first(self, _: CommitFirst) -> None:
        self._commit()

    def _end(self, step: End) -> None:
        self._publication.end(step)
        self._boundary(_BOUNDARY)

    def _boundary(self, _: Boundary) -> None:
        if self._view.position is not None:
            self._publish_view()
        if self._is_commit_due():
            self._commit_later()

    # ---- parts of long transactions

    def _commit_part_where_long(self) -> None:
        if self._publisher.is_long_open:
            self._commit_part_if_possible()

    def _commit_part_if_possible(self) -> None:
        transaction = self._assembler.transaction
        if transaction is not None and transaction.is_ignored:
            self._commit_what_is_whole()
        elif self._assembler.can_be_divided:
            self._commit_part()

    def _commit_part(self) -> None:
        """Commit what is published of the open transaction, so that Kafka's transaction does not time out.

        Everything before the boundary must be in Kafka already, and so must the requests of this start. Where they are not,
        reading restarts and commits them first.
        """
        checkpoints, assembler = self._checkpoints, self._assembler
        checkpoints.settle()
        committed = checkpoints.committed
        if not checkpoints.has_committed or (committed.file, committed.pos) != assembler.cursor.boundary:
            raise RereadError(assembler.reread_hint())
        part = assembler.divide()
        checkpoints.commit_part(replace(committed, part=part))
        log.info("log.part_published", file=part.begun.file, pos=part.begun.pos, rows=part.rows)

    # ---- snapshots in one view

    def _look_for_view(self) -> None:
        """Ask whether and where reading is to wait for a view: here, perhaps."""
        assembler = self._assembler
        if not assembler.cursor.has_new_boundary:
            return
        if assembler.transaction is None:
            self._view.approach(assembler.cursor.boundary_position())
            self._publish_view()
        else:
            self._view.approach(replace(assembler.transaction.position, ordinal=1))

    def _publish_view(self) -> None:
        if self._view.position is not None and self._boundary_position() >= self._view.position:
            self._view.publish(self._boundary_offset(), self._stop)

    # ---- between transactions

    def _look_for_tasks(self, stop: Event) -> None:
        """Carry out the tasks. If the loop is to end, `run` commits behind them."""
        for task in self._tasks:
            while task.is_waiting and self._assembler.can_commit and self._view.position is None and not stop.is_set():
                self._commit()
                task.carry_out(self._boundary_position())
                if not stop.is_set():
                    self._commit()

    # ---- commits

    def _boundary_position(self) -> Position:
        return self._assembler.cursor.boundary_position()

    def _boundary_offset(self) -> LogOffset:
        return self._assembler.boundary_offset(self._checkpoints.committed)

    def _is_commit_due(self) -> bool:
        return self._assembler.can_commit and self._checkpoints.is_due(self._boundary_position)

    def _commit(self) -> None:
        self._checkpoints.commit(self._boundary_offset())
        self._assembler.runs.leave_out_none()

    def _commit_later(self) -> None:
        self._checkpoints.commit_later(self._boundary_offset())
        self._assembler.runs.leave_out_none()
