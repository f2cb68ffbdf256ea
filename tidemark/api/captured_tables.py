"""Every captured table on one line of facts: the status of each sink enters, `CapturedTable` leaves (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.pipeline_lag import Lag
from tidemark.api.lags import lag_document, table_lag
from tidemark.api.overview import Status, TableStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInSink:
    """A table in one sink.

    `inconsistent` says why the sink's table is not a state that the source was in, "" where it is one. `rows` are the rows that the
    sink has, by the table of the sink, or why they could not be counted; None where nobody counted. `merged` are the records that
    were merged since the merge job began with this table, None where none were.
    """

    inconsistent: str
    lag: Lag
    merged: int | None
    applied: str | None
    rows: Mapping[str, int | str] | None = None


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
    version: int | None
    sinks: Mapping[str, TableInSink] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "rows_read": self.rows_read,
            "rows_estimated": self.rows_estimated,
            "released": self.released,
            "last_record_ms": self.last_record_ms,
            "schema_version": self.version,
            "sinks": {
                name: {
                    "consistent": not sink.inconsistent,
                    "why_not": sink.inconsistent or None,
                    "lag": lag_document(sink.lag, "records"),
                    "rows": None if sink.rows is None else dict(sink.rows),
                    "records_merged": sink.merged,
                    "applied_position": sink.applied,
                }
                for name, sink in self.sinks.items()
            },
        }


def captured_tables(
    statuses: Mapping[str, Status],
    last_record_ms: Mapping[str, int],
    versions: Mapping[str, int | None],
    rows: Mapping[str, Mapping[str, Mapping[str, int | str]]] | None = None,
) -> tuple[CapturedTable, ...]:
    """Return the tables by name. `statuses` are by sink, the others by table; `rows` by sink and table, None where not counted."""
    found: dict[str, CapturedTable] = {}
    for name, status in statuses.items():
        for table in status.tables:
            known = found.get(table.table) or _captured(table, last_record_ms, versions)
            if status.has_sink:
                counted = None if rows is None else rows.get(name, {}).get(table.table)
                known = _with_sink(known, name or "sink", _in_sink(status, table, counted))
            found[table.table] = known
    return tuple(found[name] for name in sorted(found))


def why_inconsistent(table: TableStatus) -> str:
    """Return why the sink's table is not a state that the source was in, "" where it is one; at the latest applied position."""
    if table.released:
        return "it is not captured any more: it stays as it was"
    if table.set_aside is not None:
        return f"it is set aside: {table.set_aside}"
    if table.skipped is not None:
        return f"it does not go into this sink: {table.skipped}"
    if table.inexact is not None:
        return table.inexact
    if table.consistent_at is not None:
        return ""
    return _why_unread(table)


def _why_unread(table: TableStatus) -> str:
    """Return why not all rows of a table are in the sink, by its newest snapshot."""
    if table.is_snapshotting:
        return f"its snapshot is {table.snapshot}" + (f", waiting: {table.waits}" if table.waits else "")
    if table.snapshot == "done":
        partial = "it was read with a condition: the other rows are missing"
        return partial if table.partial else "its snapshot is not merged to its end yet"
    if table.snapshot is None:
        return "it was never read: ask for a snapshot, unless it was made while the log was read"
    return f"its snapshot is {table.snapshot}" + (f": {table.error}" if table.error else "")


def _captured(table: TableStatus, last_record_ms: Mapping[str, int], versions: Mapping[str, int | None]) -> CapturedTable:
    return CapturedTable(
        table=table.table,
        snapshot=table.snapshot,
        rows_read=table.rows_read,
        rows_estimated=table.rows_estimated,
        released=table.released,
        last_record_ms=last_record_ms.get(table.table),
        version=versions.get(table.table),
    )


def _with_sink(table: CapturedTable, name: str, sink: TableInSink) -> CapturedTable:
    return replace(table, sinks={**table.sinks, name: sink})


def _in_sink(status: Status, table: TableStatus, rows: Mapping[str, int | str] | None) -> TableInSink:
    return TableInSink(
        inconsistent=why_inconsistent(table),
        lag=table_lag(status, table),
        merged=table.sink_rows,
        applied=None if table.applied is None else table.applied.text,
        rows=rows,
    )
