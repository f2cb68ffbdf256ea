"""Progress for people and tools: the content of `progress.json`, and of the stamps in the targets' own commits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from schemas.delay_histogram import DelayCounter
from schemas.identity import SourceTable
from schemas.json_codec import encode
from schemas.merge_rule import TableState
from spark_jobs.merge.job_state import JobState, SourceRecord, offsets_document

NO_DELAYS: Final[Mapping[SourceTable, DelayCounter]] = MappingProxyType({})
LEFT_OUT: Final = (
    "records of it could not be merged: it lacks them until they are (tidemark quarantine retry), or until a snapshot that "
    "begins after them is merged whole (tidemark signal execute-snapshot)"
)
GIVEN_UP: Final = (
    "records of it were not merged and are not kept: it lacks them until it is read again (tidemark signal execute-snapshot)"
)


def progress_document(
    state: JobState, now_ms: int, delays: Mapping[SourceTable, DelayCounter] = NO_DELAYS, *, caught_up: bool
) -> dict[str, Any]:
    """Return the content of progress.json. The job itself reads of it only the query and the batch."""
    return {
        "query_id": state.query_id,
        "batch_id": state.batch_id,
        "updated_ms": now_ms,
        "last_batch_full": not caught_up,
        "rows_total": sum(record.merged for record in state.sources.values()),
        "tables": {
            table.name.plain: table_progress(record) | (_delays(delays[table]) if table in delays else {})
            for table, record in state.sources.items()
        },
    }


def _delays(counter: DelayCounter) -> dict[str, Any]:
    return {"delays": encode(counter.total), "recent_delays": encode(counter.recent)}


def table_progress(record: SourceRecord) -> dict[str, Any]:
    """Return how far one table is, as progress.json and the stamps have it."""
    state = record.state
    return {
        "rows": record.merged,
        "applied_position": state.applied_position or None,
        "consistent_at": state.consistent_at if state.is_consistent else None,
        "horizon": state.safe_horizon or None,
        "horizons": {str(partition): horizon for partition, horizon in state.guard.items()},
        "floor": state.floor or None,
        "change_offsets": offsets_document(record.change_offsets),
        "snapshot_offsets": offsets_document(record.snapshot_offsets),
        "quarantined": record.quarantined,
        "tombstones": sum(item.count for item in record.tombstones),
        "skipped": record.skipped,
        "lacks": record.lost or left_out_text(state),
        "set_aside": None if record.set_aside is None else record.set_aside.to_json(),
        "incomplete": record.incomplete,
    } | ({"kept": state.kept} if state.kept else {})


def left_out_text(state: TableState) -> str | None:
    """Return what to say of records that were not merged; None where all were."""
    if state.gap is None:
        return None
    return GIVEN_UP if state.gap.given_up else LEFT_OUT
