"""MEMORY tables that a restart of the server has emptied: older servers log it as a DELETE, later ones as a TRUNCATE (pure)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from producer.binlog.events import QueryEvent

_DELETE: Final = re.compile(r"DELETE FROM (`(?:[^`]|``)+`\.`(?:[^`]|``)+`)\s*\Z")


def as_truncate(query: QueryEvent, flavour: str, *, needs_commit: bool) -> QueryEvent | None:
    """Return the statement as MySQL 9.7 and MariaDB 11.4 log it; None for one that is not the server's own.

    No client's DELETE is without databases on MySQL, or in a group without COMMIT on MariaDB.
    """
    match = _DELETE.match(query.sql)
    is_of_server = query.databases is None if flavour == "mysql" else not needs_commit
    return query._replace(sql=f"TRUNCATE TABLE {match[1]}") if match is not None and is_of_server else None
