"""A row's change as the log has it: records enter, events leave (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from spark_jobs.replicate.rows.record_heads import RecordHead
    from spark_jobs.replicate.rows.row_values import RowRecord


class RowEvent(NamedTuple):
    """A change of one row of `table` (database, table); `op` is Debezium's letter. `request` asked for a row of a snapshot.

    `before` and `after` are the records that have the old row and the new one: of an update of a key two, else one. `source` is
    the one that it is of. `is_skipped`: its transaction is not applied.
    """

    position: str
    op: str
    table: tuple[str, str]
    schema_id: int
    before: RowRecord | None
    after: RowRecord | None
    checks_keys: bool
    request: str = ""
    source: str = ""
    is_skipped: bool = False


def row_event(head: RecordHead, record: RowRecord, position: str, request: str = "", source: str = "") -> RowEvent:
    """Return the event of a record."""
    op = head.op
    before, after = record if op in "du" else None, record if op in "cru" else None
    return RowEvent(position, op, head.table, head.schema_id, before, after, record.checks_keys, request, source)
