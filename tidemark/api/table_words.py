"""What a status says of a table, as a few words and figures: `tidemark status` and the page use the same (pure)."""

from __future__ import annotations

from schemas.position import Position
from tidemark.api.overview import Status, TableStatus


def consistency(table: TableStatus, status: Status) -> str:
    """Return whether a table in the sink is a state that the source was in."""
    if table.released:
        return "released"
    if table.set_aside is not None:
        return "set aside"
    if table.skipped is not None:
        return "not mirrored"
    if table.inexact is not None:
        return "inexact"
    if table.consistent_at is None:
        return "partial: read with a condition" if table.partial and table.snapshot == "done" else "not consistent yet"
    if table.applied is None:
        return f"consistent since {position_text(table.consistent_at, status)}"
    if status.log is not None and table.applied >= status.log.position:
        return "consistent, all applied that is in Kafka"
    return f"consistent, applied to {position_text(table.applied, status)}"


def position_text(position: Position, status: Status) -> str:
    """Return the file and the offset of a position in the source's log, as the server's own commands show them."""
    if not position.file:
        return "the beginning"
    base, dot, number = ("" if status.log is None else status.log.file).rpartition(".")
    file = f"{base}.{position.file:0{len(number)}}" if dot else f"file {position.file}"
    return f"{file}:{position.offset}"


def rates_of(status: Status, before: Status) -> dict[str, float]:
    """Return the rows per second that snapshots read of each table between two looks."""
    seconds = (status.read_ms - before.read_ms) / 1000
    earlier = {table.table: table.rows_read for table in before.tables}
    return {
        table.table: max(0, table.rows_read - earlier.get(table.table, 0)) / seconds if seconds > 0 else 0.0
        for table in status.tables
    }


def eta_s(table: TableStatus, rate: float) -> float | None:
    """Return the seconds until a snapshot has read a table at that rate; None where nobody knows."""
    if table.snapshot != "running" or not rate or table.rows_estimated is None or table.rows_read >= table.rows_estimated:
        return None  # read more than was estimated: nobody knows how much is left
    return round((table.rows_estimated - table.rows_read) / rate, 1)
