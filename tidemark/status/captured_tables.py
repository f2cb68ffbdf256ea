"""Each captured table on one line of facts, and whether it is consistent: statuses by sink enter, `CapturedTable` leaves (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from schemas.json_codec import Form, json_field
from schemas.position import Position
from tidemark.status.lags import Lag, table_lag
from tidemark.status.status_tree import Status, TableStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInSink:
    """A table in one sink.

    `why_not` says why the sink's table is not a state that the source was in, "" if it is one. `rows` are the rows that the sink
    has, by the table of the sink, or why they could not be counted; None if nobody counted. `merged` are the records that were
    merged since the merge job began with this table, None if it merged none.
    """

    JSON: ClassVar = Form(head=lambda table: {"consistent": not table.why_not})

    why_not: str = json_field(empty_as_null=True)
    lag: Lag
    merged: int | None = json_field(name="records_merged")
    applied: Position | None = json_field(name="applied_position")
    rows: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTable:
    """One table. `last_record_ms` is when the last transaction with changes of it ended in Kafka (Unix, the broker's clock).

    `version` is that of its columns, as `tidemark schema history` counts them. None is unknown, or that there is none.
    """

    table: str
    snapshot: str | None
    rows_read: int
    rows_estimated: int | None
    released: bool
    last_record_ms: int | None
    version: int | None = json_field(name="schema_version")
    sinks: Mapping[str, TableInSink] = field(default_factory=dict)


def captured_tables(
    statuses: Mapping[str, Status],
    last_record_ms: Mapping[str, int],
    versions: Mapping[str, int | None],
    rows: Mapping[str, Mapping[str, Mapping[str, int | str]]] | None = None,
) -> tuple[CapturedTable, ...]:
    """Return the tables by name. `statuses` are by sink, the others by table; `rows` by sink and table, None where not counted."""
    captured: dict[str, CapturedTable] = {}
    for name, status in statuses.items():
        for table in status.tables:
            one = captured.get(table.table) or CapturedTable(
                table=table.table,
                snapshot=table.snapshot,
                rows_read=table.rows_read,
                rows_estimated=table.rows_estimated,
                released=table.released,
                last_record_ms=last_record_ms.get(table.table),
                version=versions.get(table.table),
            )
            if status.has_sink:
                in_sink = TableInSink(
                    why_not=inconsistency(table)[1],
                    lag=table_lag(status, table),
                    merged=table.sink_rows,
                    applied=table.applied,
                    rows=None if rows is None else rows.get(name, {}).get(table.table),
                )
                one = replace(one, sinks={**one.sinks, name or "sink": in_sink})
            captured[table.table] = one
    return tuple(captured[name] for name in sorted(captured))


def inconsistency(table: TableStatus) -> tuple[str, str]:
    """Return why the sink's table is not a state that the source was in, at the latest applied position: words, and the reason.

    Both are "" if it is one.
    """
    if table.released:
        return "released", "it is not captured any more: it stays as it was"
    if table.set_aside is not None:
        return "set aside", f"it is set aside: {table.set_aside}"
    if table.skipped is not None:
        return "not mirrored", f"it does not go into this sink: {table.skipped}"
    if table.inexact is not None:
        return "inexact", table.inexact
    if table.consistent_at is not None:
        return "", ""
    if table.partial and table.snapshot == "done":
        return "partial: read with a condition", "it was read with a condition: the other rows are missing"
    return "not consistent yet", _why_unread(table)


def _why_unread(table: TableStatus) -> str:
    """Return why not all rows of a table are in the sink, by its newest snapshot."""
    if table.snapshot is None:
        return "it was never read: ask for a snapshot, unless it was made while the log was read"
    if table.snapshot == "done":
        return "its snapshot is not merged to its end yet"
    note = f", waiting: {table.waits}" if table.waits else ""
    return f"its snapshot is {table.snapshot}" + (note if table.is_snapshotting else f": {table.error}" if table.error else "")


def consistency(table: TableStatus, status: Status) -> str:
    """Return in a few words whether a table in the sink is a state that the source was in."""
    words, _ = inconsistency(table)
    if words:
        return words
    if table.applied is None:
        return f"consistent since {_position_text(table.consistent_at, status)}"
    if status.log is not None and table.applied >= status.log.position:
        return "consistent, all applied that is in Kafka"
    return f"consistent, applied to {_position_text(table.applied, status)}"


def _position_text(position: Position | None, status: Status) -> str:
    """Return the file and the offset of a position in the source's log, as the server's own commands show them."""
    if position is None or not position.file:
        return "the beginning"
    base, dot, number = ("" if status.log is None else status.log.file).rpartition(".")
    file = f"{base}.{position.file:0{len(number)}}" if dot else f"file {position.file}"
    return f"{file}:{position.offset}"
