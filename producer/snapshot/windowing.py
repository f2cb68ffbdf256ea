"""Windowing strategies: how the low watermark of a chunk is taken, and how its window closes.

A strategy gives a low watermark: a position such that every transaction at or before it is visible to a read view that
is opened from then on. `RowWindowing` commits a row behind all others; `ReadOnly` writes nothing and waits. Every chunk is
read by the same protocol (`producer.snapshot.reader`), whichever strategy takes its low watermark.

The consistent view (`producer.snapshot.view`, `producer.snapshot.blocking`) is not a third strategy, for these reasons:

* A window needs a durable bound before its low watermark is taken. At a first start the view itself decides from which
  position the log is read: a checkpoint before it, which could contain a bound, does not exist.
* A strategy serves chunks of several connections, in parallel, each retried by itself. A view is one transaction of one
  connection; a lost connection voids every row of the request, not one chunk.
* The log continues while a window is open, so `merge: producer` remembers each key that changes in it, in bounded memory.
  Debezium's BLOCKING promises the opposite: no record of a later change precedes a row of the view. Windows over the same
  view would have to remember the keys of the whole reading, or let later changes pass.
* Rows of a window are committed by the transactional id of a reader's slot, which the horizon guards until it is fenced.
  Rows of a view are in the log reader's own Kafka transactions, with the offset. The horizon cannot pass them because
  the offset does not move; nothing is to be fenced or registered.

For `merge: spark` alone the position of a view would be a correct low watermark of every chunk. It would still hold the
horizon for the whole reading, and would give a BLOCKING request another order of records than Debezium's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mysqlio.server_facts import LogPosition, ask, is_mariadb
from mysqlio.signal_table import SignalTable, delete_row
from producer.snapshot.watermark import (
    LowWatermark,
    Watermarking,
    WindowRow,
    choose_low_watermark,
    commit_close,
)
from producer.source.visibility import AGAIN_S, PATIENCE_S, require_gtids, snapshot_position
from schemas.errors import RetriableSourceError
from schemas.loads import LoadAnswer
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.position import Position


class Windowing(Protocol):
    """A strategy that opens and closes windows over a chunk reader's connection; it has no state of a window."""

    @property
    def writes_rows(self) -> bool:
        """Whether windows open and close by rows in the log, which the log reader reads."""

    def prepare(self, connection: Connection) -> None:
        """Make sure that windows can be opened; `SourceError` explains why not."""

    def open(self, connection: Connection, row: WindowRow, bound: Position) -> LowWatermark:
        """Take the low watermark, never below `bound`. The connection is in autocommit mode."""

    def close(self, connection: Connection, row: WindowRow) -> None:
        """Commit the close row, if rows are written."""


class RowWindowing(Windowing):
    """Windows that open and close by rows of the signal table: DBLog's watermarks, as Debezium writes them.

    The open row is the barrier of the low watermark (`choose_low_watermark`).
    """

    writes_rows = True

    def __init__(self, table: SignalTable, watermarking: Watermarking) -> None:
        self.table = table
        self._watermarking = watermarking

    @override
    def prepare(self, connection: Connection) -> None:
        self.table.ensure(connection)

    @override
    def open(self, connection: Connection, row: WindowRow, bound: Position) -> LowWatermark:
        return choose_low_watermark(connection, self.table, row, bound)

    @override
    def close(self, connection: Connection, row: WindowRow) -> None:
        commit_close(connection, self.table, row, self._watermarking)

    def forget_answer(self, connection: Connection, window: str) -> None:
        """Delete the merge job's answer to a window, if the signal table is to stay empty."""
        if self._watermarking == "insert_delete":
            delete_row(connection, self.table, LoadAnswer(window).row[0])


class ReadOnly(Windowing):
    """Windows on a source that is only read: the low watermark is waited for, and the log reader closes the window.

    * MySQL: wait until the server has executed the GTIDs of everything that the log reader has committed; the low watermark is that
      position. A GTID counts as executed only when its transaction is visible, in whatever order replicas apply.
    * MariaDB: a consistent snapshot reports its own position in the log (`binlog_snapshot_position`) and shows exactly what
      precedes it. The low watermark is that position, once it is not before the bound.

    The window closes at the end of the log after its rows had been read (`end_of_binlog`): no row can be newer than that.
    `committed` returns the position that the log reader has committed, with the GTIDs of every transaction before it.
    """

    writes_rows = False

    def __init__(self, committed: Callable[[], LogPosition]) -> None:
        self._committed = committed

    @override
    def prepare(self, connection: Connection) -> None:
        if is_mariadb(connection):
            return
        ((mode,),) = ask(connection, "SELECT @@GLOBAL.gtid_mode")
        require_gtids(mode)

    @override
    def open(self, connection: Connection, row: WindowRow, bound: Position) -> LowWatermark:
        low = self._reported(connection, bound) if is_mariadb(connection) else self._executed(connection, bound)
        if low is None or low.position < bound:
            message = (
                f"the source has not made visible within {PATIENCE_S:g} s what precedes {bound.text} in its log "
                f"(window {row.id}): is it stopped in the middle of a commit?"
            )
            raise RetriableSourceError(message)
        return low

    @override
    def close(self, connection: Connection, row: WindowRow) -> None:
        """Do nothing: the log reader closes the window."""

    def _executed(self, connection: Connection, bound: Position) -> LowWatermark | None:
        committed = self._committed()
        with connection.cursor() as cursor:
            # the mode can be changed while we run: without a GTID nothing is waited for, and with OFF the function is an error
            cursor.execute(
                "SELECT IF(@@GLOBAL.gtid_mode = 'ON', WAIT_FOR_EXECUTED_GTID_SET(%s, %s), 1), @@GLOBAL.gtid_mode",
                (committed.gtid_set, PATIENCE_S),
            )
            timed_out, mode = cursor.fetchone() or (1, "")
        require_gtids(mode)
        return None if timed_out else LowWatermark.at(committed, bound.epoch)

    def _reported(self, connection: Connection, bound: Position) -> LowWatermark | None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            low = LowWatermark.at(snapshot_position(connection), bound.epoch)
            if low.position >= bound:
                return low
            if time.monotonic() > deadline:
                return None
            time.sleep(AGAIN_S)
