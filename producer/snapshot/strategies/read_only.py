"""Windows on a source that is only read: the low watermark is waited for, and the log reader closes the window.

* MySQL: wait until the server has executed the GTIDs of everything that the log reader has committed; the low watermark is
  that position. A GTID counts as executed only when its transaction is visible, in whatever order replicas apply.
* MariaDB: a consistent snapshot reports its own position in the log (`binlog_snapshot_position`) and shows exactly what
  precedes it. The low watermark is that position, once it is not before the bound.

The window closes where the log ended when its rows had been read (`end_of_reading`): no row can be newer than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mysqlio.server_facts import LogPosition, ask, is_mariadb
from producer.snapshot.strategies import Windowing
from producer.snapshot.strategies.watermark import LowWatermark, WindowRow, end_of_binlog
from producer.source.visibility import AGAIN_S, PATIENCE_S, require_gtids, snapshot_position
from schemas.errors import RetriableSourceError
from schemas.overriding import override
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from mysqlio.connection import Connection


class CommittedOffset(Protocol):
    """Where the log reader has committed (`producer.stream.offset.LogOffset`); `gtid_set` has all GTIDs before it."""

    @property
    def position(self) -> Position:
        """The transaction boundary."""

    @property
    def file(self) -> str:
        """The log file of the boundary."""

    @property
    def pos(self) -> int:
        """The offset in that file."""

    @property
    def gtid_set(self) -> str:
        """The GTIDs of every transaction before it."""


class ReadOnly(Windowing):
    """A strategy that writes nothing. `committed` returns the log reader's last committed offset."""

    writes_rows = False

    def __init__(self, committed: Callable[[], CommittedOffset]) -> None:
        self._committed = committed

    @override
    def prepare(self, connection: Connection) -> None:
        """Raise `SourceError` on a MySQL server without GTIDs."""
        if is_mariadb(connection):
            return
        ((mode,),) = ask(connection, "SELECT @@GLOBAL.gtid_mode")
        require_gtids(mode)

    @override
    def open(self, connection: Connection, row: WindowRow, bound: Position) -> LowWatermark:
        """Wait as the module says; `RetriableSourceError` when the server does not reach the position in time."""
        low = self._reported(connection, bound) if is_mariadb(connection) else self._executed(connection)
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

    def _executed(self, connection: Connection) -> LowWatermark | None:
        committed = self._committed()
        with connection.cursor() as cursor:
            # the mode can be changed while we run: what has no GTID is not waited for, and with OFF the function is an error
            cursor.execute(
                "SELECT IF(@@GLOBAL.gtid_mode = 'ON', WAIT_FOR_EXECUTED_GTID_SET(%s, %s), 1), @@GLOBAL.gtid_mode",
                (committed.gtid_set, PATIENCE_S),
            )
            timed_out, mode = cursor.fetchone() or (1, "")
        require_gtids(mode)
        return None if timed_out else LowWatermark(committed.position, committed.file, committed.pos)

    def _reported(self, connection: Connection, bound: Position) -> LowWatermark | None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            low = _low(snapshot_position(connection), bound.epoch)
            if low.position >= bound:
                return low
            if time.monotonic() > deadline:
                return None
            time.sleep(AGAIN_S)


def end_of_reading(connection: Connection, epoch: int) -> Position:
    """Return where the log ends now: whatever was visible until now precedes it."""
    return end_of_binlog(connection, epoch).position


def _low(at: LogPosition, epoch: int) -> LowWatermark:
    return LowWatermark(Position(epoch, file_number(at.file), at.pos, 0), at.file, at.pos)
