"""Reads the binlog file of a test's own server: the TABLE_MAP events and query texts since a position in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producer.binlog.events import QueryEvent, parse_query
from producer.binlog.tablemap import TableMap, parse_table_map

_HEADER = struct.Struct("<IBIIIH")
_CHECKSUM = 4
_QUERY, _TABLE_MAP = 2, 19


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A binlog file, an offset in it, and the version of the server that writes it."""

    path: Path
    offset: int
    version: str = ""


def end_of_log(connection: Any) -> LogPosition:
    """Where the next event will be written."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@version")
        version = cursor.fetchone()[0]
        new = "MariaDB" not in version and tuple(int(part) for part in version.split(".")[:2]) >= (8, 2)
        cursor.execute("SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS")
        name, offset = cursor.fetchone()[:2]
        cursor.execute("SELECT @@log_bin_basename")
        return LogPosition(Path(cursor.fetchone()[0]).parent / name, int(offset), version)


def events_since(position: LogPosition) -> Iterator[TableMap | str]:
    """TABLE_MAPs, and texts of queries, written since."""
    return (event.sql if isinstance(event, QueryEvent) else event for event in parsed_since(position))


def parsed_since(position: LogPosition) -> Iterator[TableMap | QueryEvent]:
    """TABLE_MAPs and query events written since; events carry a checksum."""
    with position.path.open("rb") as file:
        file.seek(position.offset)
        log = file.read()
    offset = 0
    while offset < len(log):
        _, kind, _, size, _, _ = _HEADER.unpack_from(log, offset)
        end = offset + size - _CHECKSUM
        if kind == _TABLE_MAP:
            yield parse_table_map(log, offset, end, position.version)
        elif kind == _QUERY:
            yield parse_query(log, offset, end)
        offset += size


def table_maps_since(position: LogPosition) -> list[TableMap]:
    """Only the TABLE_MAPs."""
    return [event for event in events_since(position) if isinstance(event, TableMap)]
