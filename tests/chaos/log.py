"""The source's log as mysql-replication reads it: row changes in the order of their commits, XA at XA COMMIT."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, XAPrepareEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from devservers import Database
from schemas.position import file_number
from tests.e2e.binlog import Logged, changes_of

_XA_END = re.compile(r"XA (COMMIT|ROLLBACK) X'([0-9a-f]*)'", re.IGNORECASE)
_COLLATIONS = 131
"""A status variable of MariaDB that mysql-replication does not know: pairs of collations, of two bytes each."""
_NO_END = ("BEGIN", "SAVEPOINT", "XA START", "XA END", "START TRANSACTION")


def _with_collations(read: Callable[[QueryEvent, int], None]) -> Callable[[QueryEvent, int], None]:
    def read_one(event: QueryEvent, key: int) -> None:
        if key == _COLLATIONS:
            event.packet.advance(4 * event.packet.read_uint8())
        else:
            read(event, key)

    return read_one


QueryEvent._read_status_vars_value_for_key = _with_collations(QueryEvent._read_status_vars_value_for_key)


class CommittedChanges:
    """Every committed change of a database's tables since a position in the log of one server.

    `keys` are the key columns by table. The log may be purged up to a file when `read_before` that file returned.
    """

    def __init__(
        self, server: Database, database: str, keys: Mapping[str, Sequence[str]], start: tuple[str, int]
    ) -> None:
        self._server, self._database, self._keys, self._next = server, database, keys, start
        self._prepared: dict[str, list[Logged]] = {}
        self._found: list[Logged] = []

    def read(self) -> list[Logged]:
        """All of them, to the end of the log."""
        self._read_until(None)
        return self._found

    def read_before(self, file: str) -> None:
        """Read the files before that one, now: they are about to go. A transaction never spans files."""
        if file_number(self._next[0]) < file_number(file):
            self._read_until(file)
            self._next = (file, 4)

    def _read_until(self, end: str | None) -> None:
        stream = BinLogStreamReader(
            connection_settings={
                "host": self._server.host, "port": self._server.port,
                "user": self._server.user, "password": self._server.password,
            },
            server_id=71_235, log_file=self._next[0], log_pos=self._next[1], resume_stream=True,
            only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent, QueryEvent, XidEvent, XAPrepareEvent],
        )  # fmt: skip
        # Not by its filters: a table map that is filtered leaves an old one of that number, which a restart gives again.
        rows: list[Logged] = []
        columns = self._columns()
        try:
            for event in stream:
                if end is not None and file_number(stream.log_file) >= file_number(end):
                    break
                if isinstance(event, RowsEvent):
                    if event.schema == self._database and event.table in self._keys:
                        rows += self._changes(event, columns[event.table])
                elif isinstance(event, XAPrepareEvent):
                    if event.one_phase:
                        self._found += rows
                    else:
                        self._prepared[event.xid_gtrid.hex()] = rows
                    rows = []
                elif isinstance(event, XidEvent) or self._ends_group(event.query):
                    self._found += rows
                    rows = []
        finally:
            stream.close()
        assert not rows, f"the log ends within a transaction: {len(rows)} changes"

    def _changes(self, event: Any, columns: Sequence[str]) -> list[Logged]:
        """Where the log does not name columns (MySQL 5.7), they are those of today: they were only ever added behind."""
        rows = [
            {kind: _named(values, columns) for kind, values in row.items() if isinstance(values, dict)}
            for row in event.rows
        ]
        return [one for row in rows for one in changes_of(event, row, self._keys[event.table])]

    def _ends_group(self, query: str) -> bool:
        """Whether a statement ends what is before it; an XA COMMIT adds what was prepared."""
        if match := _XA_END.match(query):
            prepared = self._prepared.pop(match[2].lower())
            if match[1].upper() == "COMMIT":
                self._found += prepared
            return False
        return not query.upper().startswith(_NO_END)

    def _columns(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
                " ORDER BY table_name, ordinal_position",
                (self._database,),
            )
            for table, column in cursor.fetchall():
                found.setdefault(table, []).append(column)
        return found


def _named(values: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    if not any(name.startswith("UNKNOWN_COL") for name in values):
        return dict(values)
    return dict(zip(columns, values.values(), strict=False))
