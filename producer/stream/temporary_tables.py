"""Temporary tables of sessions that log statements: their DDL looks like DDL of the stored table of the same name.

Only a session with binlog_format=STATEMENT or MIXED has them in the log. `DROP TEMPORARY TABLE` says it; ALTER, CREATE INDEX,
RENAME and TRUNCATE do not. Their events have a flag that says that the session, or the statement, uses temporary tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from schemas.identity import TableId

if TYPE_CHECKING:
    from producer.binlog.events import QueryEvent
    from producer.catalog.effects import DdlChange
    from producer.catalog.statements import Statement

UNSEEN: Final = "its session may have a temporary table of that name, which it made before this producer started"
_MOST: Final = 100_000  # sessions that end leave a DROP behind, unless their server dies


class TemporaryTables:
    """The temporary tables that the log has shown. Owned by the log reader's thread.

    A session whose number is at most `oldest_unseen` may have made some before this start began to read.
    """

    def __init__(self, oldest_unseen: int) -> None:
        self._oldest_unseen = oldest_unseen
        self._tables: set[tuple[int, TableId]] = set()

    def note(self, query: QueryEvent, parsed: Statement) -> None:
        """Note a CREATE or DROP of a temporary table."""
        for table in parsed.tables if query.may_be_temporary else ():
            if parsed.kind == "drop_temporary":
                self._tables.discard((query.thread_id, table.name))
            elif parsed.kind == "create_temporary" and len(self._tables) < _MOST:
                self._tables.add((query.thread_id, table.name))

    def holds(self, query: QueryEvent, change: DdlChange) -> bool:
        """Return whether the change is one of a temporary table; follow it to a new name."""
        key = query.thread_id, change.name
        if not query.may_be_temporary or change.kind in ("create", "drop") or key not in self._tables:
            return False
        if change.kind == "rename":
            self._tables.discard(key)
            self._tables.add((query.thread_id, change.new_name))
        return True

    def doubt(self, query: QueryEvent, changes: Iterable[DdlChange]) -> str:
        """Return why changes that are not of a known temporary table may be of an unknown one, "" where they are not."""
        may_be = query.may_be_temporary and query.thread_id <= self._oldest_unseen
        return UNSEEN if may_be and any(one.kind in ("alter", "rename", "truncate") for one in changes) else ""
