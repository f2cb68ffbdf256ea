"""The source's log as mysql-replication reads it: the second opinion on what was changed, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from devservers import Database


@dataclass(frozen=True, slots=True)
class Logged:
    """One change of one row, as a change topic carries it: an update of the key is a delete and a create."""

    table: str
    op: str
    key: tuple[Any, ...]
    after: dict[str, Any] | None


def logged_changes(
    server: Database, database: str, keys: dict[str, Sequence[str]], start: tuple[str, int]
) -> Iterator[Logged]:
    """Every change of these tables (`keys`: table to key columns) from a position in the log to its end."""
    stream = BinLogStreamReader(
        connection_settings={
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        server_id=71_234, log_file=start[0], log_pos=start[1], resume_stream=True,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent],
        only_schemas=[database], only_tables=list(keys),
    )  # fmt: skip
    try:
        for event in stream:
            for row in event.rows:
                yield from changes_of(event, row, keys[event.table])
    finally:
        stream.close()


def changes_of(event: Any, row: dict[str, Any], names: Sequence[str]) -> Iterator[Logged]:
    """The changes that one row of a rows event stands for."""
    before = row.get("before_values") or row.get("values") or {}
    after = row.get("after_values") or row.get("values") or {}
    old, new = tuple(before[name] for name in names), tuple(after[name] for name in names)
    if isinstance(event, WriteRowsEvent):
        yield Logged(event.table, "c", new, after)
    elif isinstance(event, DeleteRowsEvent):
        yield Logged(event.table, "d", old, None)
    elif old == new:
        yield Logged(event.table, "u", new, after)
    else:
        yield Logged(event.table, "d", old, None)
        yield Logged(event.table, "c", new, after)
