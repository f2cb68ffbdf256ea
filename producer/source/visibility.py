"""When what is in the log can be seen, on sources that nothing is written to.

A transaction is written to the log first and becomes visible a moment later. A connection enters; a position in the log
leaves, every transaction before which a read view opened from now on shows.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from mysqlio.server_facts import LogPosition, ask, current_position, is_mariadb
from schemas.errors import RetriableSourceError, SourceError

if TYPE_CHECKING:
    from mysqlio.connection import Connection

PATIENCE_S: Final = 20.0
AGAIN_S: Final = 0.01
_OWNED: Final = re.compile(r"([0-9a-f-]{36}(?::[a-z_]\w*)?)((?::\d+#[\d#]+)+)", re.IGNORECASE)


def require_gtids(mode: object) -> None:
    """Raise `SourceError` unless every transaction has a GTID; `mode` is MySQL's `gtid_mode`."""
    if str(mode) != "ON":
        message = (
            f"source.read_only: gtid_mode is {mode}, and without GTIDs nothing reports when a transaction is visible. "
            f"Set gtid_mode=ON on the server, or let chunks be marked in a signal table (read_only: false)"
        )
        raise SourceError(message)


def visible_position(connection: Connection) -> LogPosition:
    """Return the end of the log, once all before it is visible. Raises `SourceError`, also when it takes too long.

    MySQL: a GTID is owned from before its transaction is written until after it is visible (`gtid_owned`), so those
    owned when the end is known are waited for. MariaDB: the place of a consistent snapshot.
    """
    if is_mariadb(connection):
        return snapshot_position(connection)
    end = current_position(connection)
    left = still_owned(connection, PATIENCE_S)
    require_gtids(ask(connection, "SELECT @@GLOBAL.gtid_mode")[0][0])
    if left:
        message = f"{left} transactions before {end.file}:{end.pos} are still not visible after {PATIENCE_S:g} s"
        raise RetriableSourceError(message)
    return end


def still_owned(connection: Connection, patience_s: float) -> int:
    """MySQL: wait until no GTID is owned any more that is owned now; return how many still are after `patience_s`.

    Where it is 0, all that was in the log at the call is visible and executed. Raises `SourceError`.
    """
    wanted = None
    deadline = time.monotonic() + patience_s
    while wanted is None or wanted:
        owned = owned_gtids(str(ask(connection, "SELECT @@GLOBAL.gtid_owned")[0][0] or ""))
        wanted = owned if wanted is None else wanted & owned
        if wanted and time.monotonic() > deadline:
            break
        if wanted:
            time.sleep(AGAIN_S)
    return len(wanted)


def owned_gtids(text: str) -> frozenset[tuple[str, str]]:
    """(source with tag, number with its owners) of each GTID in `gtid_owned`: `uuid:7#12:8#13, uuid:tag:1#5`."""
    return frozenset(
        (match[1], token) for match in _OWNED.finditer(text) for token in match[2].split(":") if token
    )


def snapshot_position(connection: Connection) -> LogPosition:
    """MariaDB: where in the log a consistent snapshot that is taken now is; `gtid_set` is not reported."""
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        try:
            cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
            stated = {str(name).lower(): value for name, value in cursor.fetchall()}
        finally:
            cursor.execute("ROLLBACK")
    return LogPosition(str(stated["binlog_snapshot_file"]), int(stated["binlog_snapshot_position"]), "")
