"""The source's log as mysql-replication reads it: row changes in the order of their commits, XA at XA COMMIT."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, XAPrepareEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.e2e.binlog import Logged, changes_of
from tidemark.embedded import Database

_XA = re.compile(r"XA (START|COMMIT|ROLLBACK) ([^ ]+)", re.IGNORECASE)


def committed_changes(
    server: Database, database: str, keys: Mapping[str, Sequence[str]], start: tuple[str, int]
) -> Iterator[Logged]:
    """Every committed change of these tables (`keys`: table to key columns) from a place in the log to its end."""
    stream = BinLogStreamReader(
        connection_settings={
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        server_id=71_235, log_file=start[0], log_pos=start[1], resume_stream=True,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent, QueryEvent, XidEvent, XAPrepareEvent],
    )  # fmt: skip
    # Not by its filters: a table map that is filtered leaves an old one of that number, which a restart gives anew.
    rows: list[Logged] = []
    xid: str | None = None
    prepared: dict[str, list[Logged]] = {}
    try:
        for event in stream:
            if isinstance(event, RowsEvent):
                if event.schema != database or event.table not in keys:
                    continue
                rows += [one for row in event.rows for one in changes_of(event, row, keys[event.table])]
            elif isinstance(event, XAPrepareEvent):
                assert xid is not None
                prepared[xid], rows, xid = rows, [], None
            elif isinstance(event, XidEvent):
                yield from rows
                rows = []
            else:
                verb, name = _xa(event)
                if verb == "START":
                    xid = name
                elif verb == "COMMIT":
                    yield from prepared.pop(name)
                elif verb == "ROLLBACK":
                    prepared.pop(name)
                elif verb == "" and event.query != "BEGIN":  # a DDL, or the end of a group without one
                    yield from rows
                    rows = []
    finally:
        stream.close()


def _xa(event: Any) -> tuple[str, str]:
    match = _XA.match(event.query)
    if match is None:
        return ("other", "") if event.query.upper().startswith(("XA ", "SAVEPOINT")) else ("", "")
    return match[1].upper(), match[2].lower()
