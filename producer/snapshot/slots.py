"""A slot: one thread with one connection and one transactional id, reading chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pymysql
import structlog
from pymysql.constants import ER

from producer.snapshot.board import POLL_S, Board, BoardWatch
from producer.snapshot.child_rows import ChildrenUnreadableError
from producer.snapshot.documents import Origin, Window, WindowState
from producer.snapshot.filters import FilterRefusedError, is_of_values, refusal, require_filter
from producer.snapshot.held import ChunkTooLargeError
from producer.snapshot.planner import split_borders
from producer.snapshot.ranges import Key
from producer.snapshot.reader import (
    AbandonedError,
    Assignment,
    ChunkReader,
    KeyChangedError,
    SchemaReader,
    TableGoneError,
)
from producer.source.connection import close_quietly, missing_grant, source_error
from schemas import topics
from schemas.errors import (
    ACCESS_ERRORS,
    FencedError,
    PreparedXaError,
    PublishError,
    RegistryUnavailableError,
    RetriableSourceError,
    TidemarkError,
)

if TYPE_CHECKING:
    from producer.snapshot.sink import ChunkSink
    from producer.source.connection import Connection

log = structlog.get_logger(__name__)

EXPECTED: Final = (TidemarkError, pymysql.MySQLError, OSError)
_MAX_FENCE_DELAY_S: Final = 10.0
_READ_ONLY_MODE: Final = 1836


class Slot:
    """Slot `number` of `readers`; a number beyond them belonged to an earlier process and is only fenced."""

    def __init__(
        self,
        number: int,
        readers: int,
        name: str,
        board: Board,
        source: Callable[[], Connection],
        sink: Callable[[int], ChunkSink],
        reader: Callable[[ChunkSink], ChunkReader],
        schemas: SchemaReader,
        delimiter: str = topics.DELIMITER,
    ) -> None:
        self._schemas = schemas
        self._delimiter = delimiter
        self._number = number
        self._readers = readers
        self._name = name
        self._board = board
        self._source = source
        self._make_sink = sink
        self._make_reader = reader
        self._connection: Connection | None = None

    def run(self) -> None:
        """Fence the slot, then read until the board stops."""
        sink = self._make_sink(self._number)
        try:
            if not self._fence(sink):
                return
            self._fenced()
            if self._number >= self._readers:
                return
            reader = self._make_reader(sink)
            while (window := self._next_window()) is not None:
                self._read(sink, reader, window)
        finally:
            self.break_off()
            sink.close()

    def break_off(self) -> None:
        """Close the connection, also under a reader that waits for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    def _fence(self, sink: ChunkSink) -> bool:
        """Take the slot over, however long it takes; False when the process stops meanwhile."""
        delay = POLL_S
        while not self._board.stopping:
            try:
                sink.fence()
            except EXPECTED as error:
                log.warning("snapshot.slot_not_fenced", slot=self._number, error=str(error))
                self._board.sleep(delay)
                delay = min(2 * delay, _MAX_FENCE_DELAY_S)
            else:
                return True
        return False

    def _fenced(self) -> None:
        """Once the last slot is fenced, nothing of the earlier process can write any more."""
        board = self._board
        with board.changed:
            board.unfenced.discard(self._number)
            if not board.unfenced:
                board.ledger.slots_fenced()
            board.changed.notify_all()

    def _next_window(self) -> Window | None:
        board = self._board
        with board.changed:
            while not board.stopping:
                window = None if board.unfenced else board.ledger.take()
                if window is not None:
                    return window
                board.changed.wait(POLL_S)
        return None

    def _read(self, sink: ChunkSink, reader: ChunkReader, window: Window) -> None:
        """One attempt at one chunk, and what its end means."""
        try:
            assignment = self._assignment(window)
            connection = self._connection = self._connection or self._source()
            reader.read(connection, assignment, BoardWatch(self._board, window))
        except EXPECTED as error:
            self.break_off()
            visible = window.state is WindowState.CLOSING
            with suppress(*EXPECTED):
                sink.abort()
            if visible or self._fence(sink):
                self._give_up(window, error)

    def _give_up(self, window: Window, error: BaseException) -> None:
        board = self._board
        borders = self._split(window, error) if isinstance(error, ChunkTooLargeError) else ()
        refused = self._refused_filter(window, error)
        with board.changed:
            task = board.ledger.task_of(window)
            if isinstance(error, TableGoneError):
                board.ledger.gone(window)
            elif isinstance(error, KeyChangedError) and task is not None:
                board.ledger.released(window)
                board.ledger.replan(task)
            elif isinstance(error, AbandonedError):
                board.ledger.released(window)
            elif borders:
                board.ledger.split(window, borders)
            elif isinstance(error, ChildrenUnreadableError):
                board.ledger.unreadable(window, str(error))
            elif refused:
                log.warning("snapshot.filter_refused", table=window.table, chunk=window.chunk, error=refused)
                board.ledger.unreadable(window, refused)
            else:
                words = in_words(error)
                log.warning("snapshot.chunk_failed", table=window.table, chunk=window.chunk, error=words)
                heals, waits = heals_by_itself(error), isinstance(error, PreparedXaError)
                board.ledger.failed(window, words, board.clock(), heals=heals, waits=waits)
            board.changed.notify_all()

    def _split(self, window: Window, error: ChunkTooLargeError) -> Sequence[Key]:
        """Where to cut a chunk whose rows do not fit into memory; nowhere when that can't be told."""
        try:
            assignment = self._assignment(window)
            connection = self._connection = self._connection or self._source()
            table = self._schemas(connection, *assignment.table)
            if table is None:
                return ()
            rows = max(1, error.rows * 4 // 5)
            return split_borders(
                connection, table, assignment.bounds, rows, assignment.condition, assignment.surrogate
            )
        except EXPECTED as failure:
            self.break_off()
            log.warning("snapshot.chunk_not_split", table=window.table, error=in_words(failure))
            return ()

    def _refused_filter(self, window: Window, error: BaseException) -> str:
        """Why no attempt can read the table by its filter, "" where one may."""
        if not isinstance(error, pymysql.MySQLError) or heals_by_itself(error):
            return ""
        try:
            assignment = self._assignment(window)
            if assignment.condition is None:
                return ""
            if is_of_values(error):
                return refusal(assignment.full_name, assignment.condition, error)
            connection = self._connection = self._connection or self._source()
            table = self._schemas(connection, *assignment.table)
            if table is not None:
                require_filter(connection, table, assignment.condition)
        except FilterRefusedError as refused:
            return str(refused)
        except EXPECTED:
            self.break_off()
        return ""

    def _assignment(self, window: Window) -> Assignment:
        board = self._board
        with board.changed:
            task = board.ledger.task_of(window)
            if task is None or window.chunk not in task.chunks:
                message = f"window {window.id} is not needed any more"
                raise AbandonedError(message)
            table = board.table_id(window.table)
            topic = topics.change_topic if task.merge == "producer" else topics.snapshot_topic
            request = board.ledger.requests.get(window.request)
            initial = request is not None and request.origin is Origin.INITIAL
            return Assignment(
                window=window.id,
                request=window.request,
                table=table,
                topic=topic(self._name, *table, self._delimiter),
                chunk=window.chunk,
                bounds=task.chunks[window.chunk].range,
                condition=task.condition,
                bound=window.bound,
                key=task.plan.key,
                snapshot="true" if initial else "incremental",
                merge="producer" if task.merge == "producer" else "spark",
                surrogate=task.surrogate,
                children=task.children,
            )


def in_words(error: BaseException) -> str:
    """An error as status and notifications show it."""
    if isinstance(error, pymysql.MySQLError) and len(error.args) > 1:
        return f"the source answers: {error.args[1]} ({error.args[0]}){missing_grant(str(error.args[1]))}"
    return str(error) or type(error).__name__


def heals_by_itself(error: BaseException) -> bool:
    """Whether source or Kafka was unreachable, not ready or short of something: waited for longer than a wrong query."""
    if isinstance(error, pymysql.MySQLError):
        if _is_read_only(error):
            return True
        error = source_error(error, "the source")
    outages = (RetriableSourceError, PublishError, FencedError, RegistryUnavailableError, OSError, *ACCESS_ERRORS)
    return isinstance(error, outages)


def _is_read_only(error: pymysql.MySQLError) -> bool:
    """Whether the source takes no rows at present: before a switch-over, or with its disk full at some providers."""
    code, text = (*error.args, 0, "")[:2]
    return code == _READ_ONLY_MODE or (code == ER.OPTION_PREVENTS_STATEMENT and "read-only" in str(text))
