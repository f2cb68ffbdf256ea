"""How a window is opened and closed on a source: by rows of ours in its log, or without writing anything.

Both give a `low`: a position such that every transaction at or before it is visible to a read view opened from now
on. `SignalRows` commits a row behind all others (see `watermark`). `ReadOnly` waits instead:

* MySQL: until the server has executed the GTIDs of everything the log reader has committed; low is that place. A
  GTID counts as executed only when its transaction is visible, in whatever order replicas apply.
* MariaDB: a consistent snapshot tells its own place in the log (`binlog_snapshot_position`), and shows exactly what
  stands before it; low is that place, once it is not before the bound.

Without a close row a window closes where the log ended when its rows had been read: no row can be newer than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from producer.snapshot.watermark import (
    Low,
    SignalTable,
    Watermarking,
    WindowRow,
    commit_close,
    end_of_binlog,
    take_low,
)
from producer.source.connection import server_version
from producer.source.facts import LogPosition, ask, flavour_of
from producer.source.visibility import AGAIN_S, PATIENCE_S, require_gtids, snapshot_position
from schemas.errors import RetriableSourceError
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from producer.source.connection import Connection


class Place(Protocol):
    """Where the log reader has committed: `producer.stream.offset.LogOffset`. `gtid_set` holds all before it."""

    @property
    def position(self) -> Position:
        """The border."""

    @property
    def file(self) -> str:
        """The log file it is in."""

    @property
    def pos(self) -> int:
        """The offset in that file."""

    @property
    def gtid_set(self) -> str:
        """The GTIDs of every transaction before it."""


class Windowing(Protocol):
    """Opens and closes windows over a chunk reader's connection."""

    @property
    def writes_rows(self) -> bool:
        """Whether open and close are rows in the log, which the log reader meets."""

    def prepare(self, connection: Connection) -> None:
        """Make sure that windows can be opened; `SourceError` in words where not."""

    def open(self, connection: Connection, row: WindowRow, bound: Position) -> Low:
        """Take low. The connection is in autocommit mode."""

    def close(self, connection: Connection, row: WindowRow) -> None:
        """Commit the close row, where rows are written."""


class SignalRows:
    """Open and close rows in the signal table."""

    writes_rows = True

    def __init__(self, table: SignalTable, watermarking: Watermarking) -> None:
        self.table = table
        self._watermarking = watermarking

    def prepare(self, connection: Connection) -> None:
        """Make the signal table where it is missing."""
        self.table.ensure(connection)

    def open(self, connection: Connection, row: WindowRow, bound: Position) -> Low:
        """As `take_low`."""
        return take_low(connection, self.table, row, bound)

    def close(self, connection: Connection, row: WindowRow) -> None:
        """As `commit_close`."""
        commit_close(connection, self.table, row, self._watermarking)


class ReadOnly:
    """Nothing is written. `committed` tells where the log reader is."""

    writes_rows = False

    def __init__(self, committed: Callable[[], Place]) -> None:
        self._committed = committed

    def prepare(self, connection: Connection) -> None:
        """MySQL must have GTIDs."""
        if _is_mariadb(connection):
            return
        ((mode,),) = ask(connection, "SELECT @@GLOBAL.gtid_mode")
        require_gtids(mode)

    def open(self, connection: Connection, row: WindowRow, bound: Position) -> Low:
        """See the module. Raises `RetriableSourceError` when the server does not get there in time."""
        low = self._stated(connection, bound) if _is_mariadb(connection) else self._executed(connection)
        if low is None or low.position < bound:
            message = (
                f"the source has not made visible within {PATIENCE_S:g} s what stands before {bound.text} in its log "
                f"(window {row.id}): is it stopped in the middle of a commit?"
            )
            raise RetriableSourceError(message)
        return low

    def close(self, connection: Connection, row: WindowRow) -> None:
        """Nothing is to be done: the log reader closes the window."""

    def _executed(self, connection: Connection) -> Low | None:
        place = self._committed()
        with connection.cursor() as cursor:
            # the mode can be changed while we run: what has no GTID is not waited for, and with OFF the function is an error
            cursor.execute(
                "SELECT IF(@@GLOBAL.gtid_mode = 'ON', WAIT_FOR_EXECUTED_GTID_SET(%s, %s), 1), @@GLOBAL.gtid_mode",
                (place.gtid_set, PATIENCE_S),
            )
            timed_out, mode = cursor.fetchone() or (1, "")
        require_gtids(mode)
        return None if timed_out else Low(place.position, place.file, place.pos)

    def _stated(self, connection: Connection, bound: Position) -> Low | None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            low = _low(snapshot_position(connection), bound.epoch)
            if low.position >= bound:
                return low
            if time.monotonic() > deadline:
                return None
            time.sleep(AGAIN_S)


def end_of_reading(connection: Connection, epoch: int) -> Position:
    """Where the log ends now: whatever was visible until now stands before it."""
    return end_of_binlog(connection, epoch).position


def _low(place: LogPosition, epoch: int) -> Low:
    return Low(Position(epoch, file_number(place.file), place.pos, 0), place.file, place.pos)


def _is_mariadb(connection: Connection) -> bool:
    return flavour_of(server_version(connection)) == "mariadb"
