"""What the log of the source has: its files, the first position to read, databases that it leaves out, and other readers.

What enters: a connection. What leaves: log positions, sizes of files, sentences for errors; `SourceError` for a start that would
lose rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mysqlio.connection import server_version
from mysqlio.server_facts import (
    LOG_STATUS_SINCE,
    ask,
    current_position,
    flavour_of,
    is_denied,
    is_mariadb,
    log_status,
)
from schemas.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mysqlio.connection import Connection
    from mysqlio.server_facts import LogPosition, ServerFacts

XA_PATIENCE_S: Final = 30.0
"""How long a first start waits for XA transactions that were prepared before it."""
_XA_POLL_S: Final = 0.2


def xa_recover(connection: Connection) -> tuple[str, ...]:
    """Return the prepared XA transactions, each as XA COMMIT takes it: `X'gtrid',X'bqual',format`."""
    if is_mariadb(connection):
        return tuple(str(row[3]) for row in ask(connection, "XA RECOVER FORMAT = 'SQL'"))
    ids = []
    for format_id, gtrid_size, bqual_size, data in ask(connection, "XA RECOVER CONVERT XID"):
        digits = str(data)[2:]
        gtrid, bqual = digits[: 2 * int(gtrid_size)], digits[2 * int(gtrid_size) :][: 2 * int(bqual_size)]
        ids.append(f"X'{gtrid}',X'{bqual}',{int(format_id)}")
    return tuple(ids)


def require_logged(connection: Connection, facts: ServerFacts, databases: Iterable[str]) -> None:
    """Refuse databases whose changes the server does not log: `binlog_do_db` and `binlog_ignore_db`.

    Raises `SourceError` that names them.
    """
    (_, _, logged, left_out, *_) = log_status(connection, facts.version_text)[0]
    fold = str.lower if facts.lower_case_table_names else str
    only, never = ({fold(name) for name in str(names or "").split(",") if name} for names in (logged, left_out))
    silent = sorted(name for name in set(databases) if (fold(name) not in only if only else fold(name) in never))
    if silent:
        option = f"binlog_do_db={logged}" if only else f"binlog_ignore_db={left_out}"
        message = (
            f"the server does not log changes in {', '.join(silent)} ({option}): they would never arrive. Take the option out "
            f"of the server's configuration and restart it, or capture other tables (source.tables)"
        )
        raise SourceError(message)


def require_stored_name(facts: ServerFacts, setting: str, name: str | None) -> None:
    """Refuse a table's name that the log never has: with `lower_case_table_names=1` the server keeps small letters only."""
    if name is not None and facts.lower_case_table_names == 1 and name != name.lower():
        message = (
            f"{setting}: {name!r} is {name.lower()!r} on this server and in its log (lower_case_table_names=1). Write it so"
        )
        raise SourceError(message)


def first_position(
    connection: Connection, patience_s: float = XA_PATIENCE_S
) -> tuple[LogPosition, LogPosition]:
    """Return the position to begin to read at, and the first boundary to publish from: the same, unless XA transactions are open.

    The rows of an XA transaction that is prepared now stand in the log before this place. So those are waited
    for, and reading begins at the end that the log had before: every PREPARE whose COMMIT is still to come is behind
    that. Raises `SourceError` naming those that do not end within `patience_s`.
    """
    begin = current_position(connection)
    left = set(xa_recover(connection))
    if not left:
        return begin, begin
    deadline = time.monotonic() + patience_s
    while left := left & set(xa_recover(connection)):
        if time.monotonic() > deadline:
            shown = ", ".join(sorted(left)[:5])
            message = (
                f"{len(left)} XA transactions are prepared and not finished ({shown}): they began before the "
                f"place where the log is first read, their rows would be lost. XA COMMIT or XA ROLLBACK each of "
                f"them, or start again when they have ended"
            )
            raise SourceError(message)
        time.sleep(_XA_POLL_S)
    return begin, current_position(connection)


def log_sizes(connection: Connection) -> dict[str, int]:
    """Return the log files the server has, oldest first, each with its size in bytes. Raises `SourceError`."""
    return {str(row[0]): int(row[1]) for row in ask(connection, "SHOW BINARY LOGS")}


def other_replica(connection: Connection, facts: ServerFacts, server_id: int, ours: str) -> str:
    """Return who else is connected as a replica with that server id, "" when nobody is known to be.

    `ours` is the host that our readers register with. MariaDB reports it only to users with REPLICATION MASTER ADMIN.
    """
    is_renamed = facts.flavour == "mysql" and facts.version >= LOG_STATUS_SINCE
    try:
        replicas = ask(connection, "SHOW REPLICAS" if is_renamed else "SHOW SLAVE HOSTS")
    except SourceError as error:
        if is_denied(error):
            return ""
        raise
    others = [f"{row[1] or 'a host without name'}:{row[2]}" for row in replicas if int(row[0]) == server_id and row[1] != ours]
    return ", ".join(others)


def available_log(connection: Connection) -> str:
    """Return a sentence: which log files the server still has, and which GTIDs it no longer has."""
    rows = ask(connection, "SHOW BINARY LOGS")
    if not rows:
        return "The server has no log files"
    text = f"The server has {rows[0][0]} to {rows[-1][0]}, {int(rows[-1][1])} bytes"
    if flavour_of(server_version(connection)) == "mysql":
        purged = "".join(str(ask(connection, "SELECT @@global.gtid_purged")[0][0] or "").split())
        text += f"; purged GTIDs: {purged or 'none'}"
    return text + ". What is gone cannot be read: start with a new snapshot"
