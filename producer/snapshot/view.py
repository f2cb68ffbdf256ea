"""A view: tables as they all were at one position of the log, for consumers that want a single point in time.

A view is one transaction (`START TRANSACTION WITH CONSISTENT SNAPSHOT`) whose position is known: it shows every
transaction before that boundary of the log, and none behind it. How that is made true::

    minimal, extended   nobody commits while the transaction is opened and the position is read: FLUSH TABLES WITH READ
                        LOCK, or LOCK TABLES of the tables where that is not granted. What was logged by then is
                        visible, since both wait for running commits. `minimal` unlocks at once, `extended` at the end
    none, on MariaDB    the server itself reports the position of the transaction (Binlog_snapshot_file, _position)
    none, on MySQL      nothing says it. A barrier (see `watermark`) makes all before it visible; if it is the only
                        transaction between the log's end before it and the end after the view was opened, that is the
                        position. Repeated until a moment without another commit is found, else an explicit error

Prepared XA transactions would be in the log before the position and visible behind it: a view waits until there are none.
A table's definition is read before the view is opened and again when its rows are: if they are equal, no DDL came between.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from mysqlio.connection import server_version
from mysqlio.quoting import qualified
from mysqlio.server_errors import ServerCode, ServerError, server_code
from mysqlio.server_facts import LogPosition, current_position, flavour_of
from mysqlio.signal_table import TRANSACTIONAL_ENGINES, SignalTable
from producer.snapshot.watermark import Watermarking, WindowRow, commit_barrier, commit_close, require_no_xa
from schemas.errors import RetriableSourceError, SourceError
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.table_access import SchemaReader
    from schemas.columns import TableSchema
    from schemas.settings import SnapshotSettings

log = structlog.get_logger(__name__)

_DENIED: Final = frozenset({1044, 1045, 1142, 1227})
_LOOK_AT_EVENTS: Final = 2000
_PAUSE_S: Final = 0.01
_XA: Final = re.compile(r"\bXA (START|END|PREPARE|COMMIT|ROLLBACK)\b")


@dataclass(slots=True)
class View:
    """An open view. `position` is its transaction boundary, `opened_us` when it was opened, in µs since the epoch.

    `tables` are those that existed, as they were shortly before. `reader` has the view, `lock` the lock if there is one.
    """

    reader: Connection
    lock: Connection | None
    position: LogPosition
    tables: Mapping[TableId, TableSchema]
    opened_us: int

    def pin(self, table: TableSchema) -> None:
        """Let no DDL statement change the table until `release`."""
        _run(self.reader, "SAVEPOINT tidemark")
        _run(self.reader, f"SELECT 1 FROM {qualified(table.database, table.name)} LIMIT 0")  # noqa: S608 - quoted

    def release(self) -> None:
        """Let statements that wait for the table continue."""
        _run(self.reader, "ROLLBACK TO SAVEPOINT tidemark")

    def check_lock(self) -> None:
        """Make sure that the lock still exists."""
        if self.lock is not None:
            _run(self.lock, "DO 0")

    def close(self) -> None:
        """Close the view, and release the lock."""
        for connection in (self.lock, self.reader):
            if connection is not None:
                with suppress(ServerError, OSError):
                    connection.close()


class FirstView:
    """The view at which a first start begins. `open` opens it, and another one at each call."""

    def __init__(self, open_one: Callable[[], View]) -> None:
        self._open = open_one
        self._view: View | None = None

    def open(self) -> LogPosition:
        """Open a view; return its position, where reading begins."""
        self.close()
        self._view = self._open()
        return self._view.position

    def strangers(self, tables: Iterable[TableId]) -> set[TableId]:
        """Return tables that were created or dropped while the view was opened; none without a view."""
        return set() if self._view is None else set(tables) ^ set(self._view.tables)

    def release(self) -> View | None:
        """Return the view, which is the caller's to close from now on."""
        view, self._view = self._view, None
        return view

    def close(self) -> None:
        """Close the view, if it is still here."""
        view = self.release()
        if view is not None:
            view.close()


def open_view(
    connect: Callable[[], Connection],
    tables: Iterable[TableId],
    snapshot: SnapshotSettings,
    signal_table: SignalTable | None,
    schemas: SchemaReader,
) -> View:
    """Open a view of these tables as `snapshot.locking_mode` says.

    Raises `RetriableSourceError` where a retry may help (a lock that was not granted in time, prepared XA
    transactions), `SourceError` where a person has to act: a privilege, the mode, or a table's engine.
    """
    wanted = list(tables)
    side = connect()
    try:
        _require_views(side, wanted, snapshot)
        found = {table: schema for table in wanted if (schema := schemas(side, *table)) is not None}
        reader = connect()
        try:
            _run(reader, f"SET SESSION lock_wait_timeout = {_timeout_s(snapshot)}")
            position = _open(side, reader, found, snapshot, signal_table)
        except BaseException:
            reader.close()
            raise
    except BaseException:
        side.close()
        raise
    if snapshot.locking_mode != "extended":
        side.close()
    lock = side if snapshot.locking_mode == "extended" else None
    log.info("snapshot.view_opened", file=position.file, pos=position.pos, tables=len(found), locking=snapshot.locking_mode)
    return View(reader, lock, position, found, time.time_ns() // 1000)


def _open(
    side: Connection,
    reader: Connection,
    tables: Iterable[TableId],
    snapshot: SnapshotSettings,
    signal_table: SignalTable | None,
) -> LogPosition:
    """Open the view in `reader`; return its position."""
    attempt: Callable[[Connection, Connection], LogPosition | None]
    if snapshot.locking_mode != "none":
        return _locked(side, reader, tables, snapshot)
    if flavour_of(server_version(side)) == "mariadb":
        attempt, words = _as_reported, _ALWAYS_XA
    elif signal_table is None:
        raise SourceError(_NO_BARRIER)
    else:
        attempt, words = partial(_in_a_quiet_moment, signal_table, snapshot.watermarking_strategy), _NEVER_QUIET
    deadline = time.monotonic() + snapshot.lock_timeout_ms / 1000
    while (position := attempt(side, reader)) is None:
        _run(reader, "ROLLBACK")
        if time.monotonic() > deadline:
            raise SourceError(words.format(seconds=snapshot.lock_timeout_ms / 1000))
        time.sleep(_PAUSE_S)
    return position


def _locked(
    side: Connection, reader: Connection, tables: Iterable[TableId], snapshot: SnapshotSettings
) -> LogPosition:
    """Open the view while nobody commits: whatever is in the log is visible, and nothing else comes."""
    _run(side, f"SET SESSION lock_wait_timeout = {_timeout_s(snapshot)}")
    try:
        try:
            _run(side, "FLUSH TABLES WITH READ LOCK")
        except ServerError as error:
            if server_code(error) not in _DENIED:
                raise
            reason = "RELOAD is not granted: the tables are locked one by one, which blocks clients that write to them"
            log.warning("snapshot.no_global_lock", answer=str(error.args[-1]), reason=reason)
            _lock_tables(side, tables)
    except ServerError as error:
        if server_code(error) != ServerCode.LOCK_WAIT_TIMEOUT:
            raise
        message = (
            f"the lock for a consistent snapshot was not granted within {_timeout_s(snapshot)} s "
            f"(snapshot.lock_timeout_ms): a statement or transaction that writes runs for longer. Nobody is blocked "
            f"any more; the lock is retried"
        )
        raise RetriableSourceError(message) from error
    _run(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    position = _reported_position(reader) or current_position(side)
    require_no_xa(side)
    return position


def _lock_tables(side: Connection, tables: Iterable[TableId]) -> None:
    names = [f"{qualified(*table)} READ" for table in tables]
    try:
        if names:
            _run(side, f"LOCK TABLES {', '.join(names)}")
    except ServerError as error:
        if server_code(error) not in _DENIED:
            raise
        message = (
            f"a consistent snapshot with snapshot.locking_mode minimal or extended needs a lock, which is not granted "
            f"({error.args[-1]}). GRANT RELOAD ON *.* TO <the user of source.user>, or GRANT LOCK TABLES on the databases "
            f"of the tables; or read without locks: snapshot.consistency: chunked"
        )
        raise SourceError(message) from error


def _as_reported(side: Connection, reader: Connection) -> LogPosition | None:
    """Take the position that MariaDB reports. XA transactions alone may be in the log before they are visible."""
    before = current_position(side)
    require_no_xa(side)
    _run(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    position = _reported_position(reader)
    events = None if position is None else _events_between(side, before, position)
    return None if events is None or any(_XA.search(info) for _, info in events) else position


def _in_a_quiet_moment(
    signal_table: SignalTable, watermarking: Watermarking, side: Connection, reader: Connection
) -> LogPosition | None:
    """Open the view on MySQL behind a barrier, where nothing but the barrier was logged until the view was open."""
    row = WindowRow.open(str(uuid.uuid4()), "", "", datetime.now(UTC))
    before = current_position(side)
    commit_barrier(side, signal_table, row)
    require_no_xa(side)
    _run(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    position = current_position(side)
    events = _events_between(side, before, position)
    if watermarking == "insert_delete":
        commit_close(side, signal_table, row, watermarking)
    transactions = [kind for kind, _ in events or () if "gtid" in kind and kind != "previous_gtids"]
    return position if len(transactions) == 1 else None


def _reported_position(reader: Connection) -> LogPosition | None:
    """Return the position of the open view as MariaDB reports it; None on MySQL."""
    if flavour_of(server_version(reader)) != "mariadb":
        return None
    known = {str(name).lower(): value for name, value in _rows(reader, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
    file, pos = str(known["binlog_snapshot_file"]), int(known["binlog_snapshot_position"])
    gtids = _rows(reader, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)[0][0]
    return LogPosition(file, pos, str(gtids or ""))


def _events_between(side: Connection, start: LogPosition, end: LogPosition) -> list[tuple[str, str]] | None:
    """Return (type in lower case, description) of the events between two positions; None where the server does not say."""
    if start.file != end.file:
        return None
    if start.pos >= end.pos:
        return []
    side.use_unicode = False  # statements are in the character sets of their clients
    try:
        rows = _rows(side, f"SHOW BINLOG EVENTS IN %s FROM {start.pos} LIMIT {_LOOK_AT_EVENTS}", start.file)
    finally:
        side.use_unicode = True
    if not rows or int(rows[-1][4]) < end.pos:
        return None
    return [(row[2].decode().lower(), row[5].decode(errors="replace")) for row in rows if int(row[1]) < end.pos]


def _require_views(side: Connection, tables: Sequence[TableId], snapshot: SnapshotSettings) -> None:
    """Refuse tables whose engine has no views, unless they are locked until they are read."""
    if snapshot.locking_mode == "extended" or not tables:
        return
    names = [name for table in tables for name in table]
    rows = _rows(
        side,
        "SELECT table_schema, table_name, engine FROM information_schema.tables WHERE (table_schema, table_name) IN "  # noqa: S608
        f"({', '.join(['(%s, %s)'] * len(tables))})",
        *names,
    )
    wrong = [f"{row[0]}.{row[1]} ({row[2]})" for row in rows if str(row[2]).lower() not in TRANSACTIONAL_ENGINES]
    if wrong:
        message = (
            f"the engines of {', '.join(wrong)} have no consistent reads: a snapshot in one transaction would not show "
            f"them as they were at its position. Set snapshot.locking_mode: extended, which locks until all is read, or "
            f"snapshot.consistency: chunked"
        )
        raise SourceError(message)


def _timeout_s(snapshot: SnapshotSettings) -> int:
    return max(1, -(-snapshot.lock_timeout_ms // 1000))


def _run(connection: Connection, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _rows(connection: Connection, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return list(cursor.fetchall())


_NO_BARRIER: Final = (
    "snapshot.locking_mode: none on MySQL needs a signal table to find the position of its transaction in the log: set "
    "source.signal_table, or snapshot.locking_mode: minimal"
)
_NEVER_QUIET: Final = (
    "snapshot.locking_mode: none gives no exact position here: MySQL does not report the position of a transaction in the log, and "
    "no moment without another commit was found within {seconds:g} s (snapshot.lock_timeout_ms). Set snapshot.locking_mode: "
    "minimal, or snapshot.consistency: chunked, which needs neither lock nor quiet"
)
_ALWAYS_XA: Final = (
    "snapshot.locking_mode: none gives no exact position here: XA transactions, which are in the log before they are "
    "visible, continued for {seconds:g} s (snapshot.lock_timeout_ms). Set snapshot.locking_mode: minimal, or "
    "snapshot.consistency: chunked"
)
