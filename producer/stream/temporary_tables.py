"""Temporary tables of sessions that log statements: their DDL looks like DDL of the stored table of the same name.

Only a session with binlog_format=STATEMENT or MIXED has them in the log. `DROP TEMPORARY TABLE` says it; ALTER, CREATE INDEX,
RENAME and TRUNCATE do not. Their events have a flag that says that the session, or the statement, uses temporary tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from producer.catalog.statements.token_cursor import Cursor
from producer.catalog.statements.tokens import tokenise

if TYPE_CHECKING:
    from producer.binlog.events import QueryEvent
    from producer.catalog.effects import DdlChange

Table = tuple[str, str]  # database, name

UNSEEN: Final = "its session may have a temporary table of that name, which it made before this producer started"
_MOST: Final = 100_000  # sessions that end leave a DROP behind, unless their server dies


class TemporaryTables:
    """The temporary tables that the log has shown. Owned by the log reader's thread.

    A session whose number is at most `oldest_unseen` may have made some before this start began to read.
    """

    def __init__(self, flavour: str, *, oldest_unseen: int, lower_case_names: bool) -> None:
        self._flavour = flavour
        self._oldest_unseen = oldest_unseen
        self._lower_case_names = lower_case_names
        self._tables: set[tuple[int, Table]] = set()

    def note(self, query: QueryEvent) -> None:
        """Note a CREATE or DROP of a temporary table."""
        if not query.may_be_temporary:
            return
        cursor = Cursor(tokenise(query.sql, self._flavour, query.sql_mode))
        verb = cursor.accept_any("CREATE", "DROP")
        cursor.accept("OR", "REPLACE")
        if not verb or not cursor.accept("TEMPORARY"):
            return
        cursor.accept_any("TABLE", "TABLES")
        cursor.accept("IF", "NOT", "EXISTS")
        cursor.accept("IF", "EXISTS")
        while True:
            first = cursor.name()
            table = (first, cursor.name()) if cursor.accept_punctuation(".") else (query.database, first)
            key = query.thread_id, self._stored(table)
            if verb == "DROP":
                self._tables.discard(key)
            elif len(self._tables) < _MOST:
                self._tables.add(key)
            if verb == "CREATE" or not cursor.accept_punctuation(","):
                return

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

    def _stored(self, table: Table) -> Table:
        return (table[0].lower(), table[1].lower()) if self._lower_case_names else table
