"""Low watermarks: which position of the log a chunk's rows have, and the barrier that makes it true.

`SHOW BINARY LOG STATUS` is ahead of what a SELECT sees: a transaction is written to the log first and becomes
visible later. `choose_low_watermark` therefore commits a row of its own *after* reading the position: a commit is visible
only after all that precede it in the log, so once it returns, every transaction at or before the
position is visible to a read view opened from then on. On MySQL this rests on `binlog_order_commits=ON`,
which is dynamic and hence part of the very statement that commits; MariaDB always orders its commits.

The row proves nothing unless it really is in the log: its sender waits until the log reader has read it.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from mysqlio.server_facts import current_position, is_mariadb
from mysqlio.signal_table import SignalTable, delete_row, insert_row
from producer.source.log_facts import xa_recover
from schemas.errors import PreparedXaError, RetriableSourceError, SourceError
from schemas.position import Position, file_number
from schemas.signals import WINDOW_CLOSE, WINDOW_OPEN

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import LogPosition

Watermarking = Literal["insert_insert", "insert_delete"]
OPEN_SUFFIX: Final = "-open"
CLOSE_SUFFIX: Final = "-close"
XA_PATIENCE_S: Final = 2.0
_XA_AGAIN_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class LowWatermark:
    """A low watermark. `position` is a transaction boundary; every transaction before it is visible, see `choose_low_watermark`."""

    position: Position
    file: str
    pos: int

    @staticmethod
    def at(end: LogPosition, epoch: int) -> LowWatermark:
        """Return the position of a log as one; whether all before it is visible is for the caller to know."""
        return LowWatermark(Position(epoch, file_number(end.file), end.pos, 0), end.file, end.pos)


@dataclass(frozen=True, slots=True)
class WindowRow:
    """The open or close row of a window, as Debezium writes them."""

    id: str
    type: str
    data: str

    @staticmethod
    def open(window: str, table: str, request: str, opened: dt.datetime) -> WindowRow:
        """Return the row that opens a window: the barrier."""
        data = {"openWindowTimestamp": _instant(opened), "correlationId": request, "dataCollectionId": table}
        return WindowRow(window + OPEN_SUFFIX, WINDOW_OPEN, json.dumps(data, separators=(",", ":")))

    @staticmethod
    def close(window: str, table: str, request: str, opened: dt.datetime, closed: dt.datetime) -> WindowRow:
        """Return the row that closes a window: every row of its chunk is committed in Kafka."""
        data = {
            "openWindowTimestamp": _instant(opened),
            "closeWindowTimestamp": _instant(closed),
            "correlationId": request,
            "dataCollectionId": table,
        }
        return WindowRow(window + CLOSE_SUFFIX, WINDOW_CLOSE, json.dumps(data, separators=(",", ":")))


def window_of(row_id: str) -> tuple[str, str] | None:
    """Return window id and suffix of a window row's id, None for other ids."""
    for suffix in (OPEN_SUFFIX, CLOSE_SUFFIX):
        if row_id.endswith(suffix):
            return row_id[: -len(suffix)], suffix
    return None


def choose_low_watermark(connection: Connection, table: SignalTable, row: WindowRow, bound: Position) -> LowWatermark:
    """Return a position such that every transaction at or before it is visible to a read view opened from now on.

    1. Read the current end of the binlog: that is the low watermark, unless the bound is later.
    2. Commit the open row, on MySQL only if `binlog_order_commits` is ON at that moment: the barrier.

    The connection is in autocommit mode. The result counts once the log reader has read the row. Raises
    `SourceError` when the server does not order its commits, and PyMySQL's errors.
    """
    low = end_of_binlog(connection, bound.epoch)
    commit_barrier(connection, table, row)
    return max(low, LowWatermark(bound, low.file, low.pos), key=lambda candidate: candidate.position)


def end_of_binlog(connection: Connection, epoch: int) -> LowWatermark:
    """Return where the next transaction will be in the log: the bare position, without any promise."""
    return LowWatermark.at(current_position(connection), epoch)


def commit_barrier(connection: Connection, table: SignalTable, row: WindowRow) -> None:
    """Commit a window row behind all that is in the log; `SourceError` where commits are not ordered."""
    ordered = (
        "" if is_mariadb(connection) else " WHERE @@GLOBAL.binlog_order_commits"
    )
    with connection.cursor() as cursor:
        inserted = cursor.execute(
            f"INSERT INTO {table.sql_with_arguments} SELECT %s, %s, %s FROM DUAL{ordered}",  # noqa: S608 - a quoted name
            (row.id, row.type, row.data),
        )
    if not inserted:
        message = (
            "binlog_order_commits is OFF: a chunk could miss rows that are in the log already. "
            "Run SET GLOBAL binlog_order_commits = ON (and set it in the server's configuration)"
        )
        raise SourceError(message)


def commit_close(
    connection: Connection,
    table: SignalTable,
    row: WindowRow,
    watermarking: Watermarking = "insert_insert",
) -> None:
    """Commit a close row; one that is there already (an answer was lost) is as good.

    With `insert_delete` the open row is deleted instead; `RetriableSourceError` when somebody else did that.
    """
    if watermarking == "insert_delete":
        _delete_open(connection, table, row)
    else:
        insert_row(connection, table, (row.id, row.type, row.data))


def _delete_open(connection: Connection, table: SignalTable, row: WindowRow) -> None:
    window = row.id.removesuffix(CLOSE_SUFFIX).removesuffix(OPEN_SUFFIX)
    if not delete_row(connection, table, window + OPEN_SUFFIX):
        message = f"the open row of window {window} is gone from {table.sql}: something else deletes its rows"
        raise RetriableSourceError(message)


def require_no_xa(connection: Connection, patience_s: float = 0.0) -> None:
    """Refuse to read while prepared XA transactions exist: their COMMIT is logged before it is visible.

    Those that are there at first are waited for so long, each by itself: one that is prepared later has its COMMIT
    behind all that is in the log by now. Raises `PreparedXaError`, and what the source's refusals are.
    """
    xids = set(xa_recover(connection))
    deadline = time.monotonic() + patience_s
    while xids:
        if time.monotonic() >= deadline:
            message = (
                f"{len(xids)} prepared XA transaction(s) are open (XA RECOVER lists them): a snapshot could miss "
                f"their rows, so chunks wait until they are committed or rolled back"
            )
            raise PreparedXaError(message)
        time.sleep(_XA_AGAIN_S)
        xids &= set(xa_recover(connection))


def _instant(time: dt.datetime) -> str:
    return time.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
