"""Topics whose first records Kafka no longer had when this sink first read them.

Retention may have removed the first records of either topic by then: rows of a snapshot, or changes that came after its rows. The
marker that says the snapshot is complete is still there, and is not true for this sink, which never saw those records. Such a
snapshot is not counted. The next one is, whose first bound is behind a marker after which everything was read.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, Marker
from schemas.merge_rule import NOTHING
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.table_set_aside import new_topics_read

log = structlog.get_logger()


def without_conclusions(record: SourceRecord, table_input: TableInput) -> SourceRecord:
    """Return the record of a table some of whose records are gone: what waits for them is dropped, nothing is consistent."""
    if table_input.lost is None:
        return record
    log.error("merge.records_lost", table=table_input.full_name, reason=table_input.lost)
    state = replace(record.state, completions={}, consistent_at=NOTHING, emptied=NOTHING)
    return replace(record, state=state, incomplete=table_input.lost)


def noted(before: SourceRecord, table_input: TableInput) -> tuple[SourceRecord, tuple[Marker, ...]]:
    """Return the record with where the topics began, and the batch's markers as they are true for this sink."""
    record = before
    if table_input.is_recreated:  # written before the topic was deleted, perhaps
        record = replace(record, trimmed=dict(record.trimmed or {}) | dict(table_input.change_starts), known_from={})
        return new_topics_read(record), tuple(_believed(marker, None) for marker in table_input.markers)
    if table_input.trimmed or table_input.lost is not None:
        record = replace(record, trimmed=dict(record.trimmed or {}) | dict(table_input.change_starts), known_from={})
        advice = "have the table read again: what came before is no longer in Kafka"
        log.warning("merge.begins_behind_trimmed_records", table=table_input.full_name, advice=advice)
    if record.trimmed is None:
        return record, table_input.markers
    known = dict(record.known_from)
    for marker in table_input.markers:
        if isinstance(marker, FloorMarker):  # its position is before that of its offsets
            continue
        if all(marker.change_offsets.get(number, 0) >= start for number, start in record.trimmed.items()):
            known.setdefault(marker.partition, marker.position.text)
    expected = max((record.state.partitions, *(marker.partitions for marker in table_input.markers)))
    since = max(known.values()) if known and len(known) >= expected else None
    return replace(record, known_from=known), tuple(_believed(marker, since) for marker in table_input.markers)


def _believed(marker: Marker, since: str | None) -> Marker:
    """Return the marker, or only its promises about the log if it is of a snapshot that this sink has not seen whole."""
    if isinstance(marker, FloorMarker) and marker.empty:  # of what was changed since, all must be at hand
        return replace(marker, empty=since is not None and marker.position.text > since)
    if not isinstance(marker, CompleteMarker) or marker.sweep is not None:
        return marker
    if since is not None and marker.first_bound.text > since:
        return marker
    return HeartbeatMarker(
        source=marker.source,
        table=marker.table,
        position=marker.position,
        horizon=marker.horizon,
        partitions=marker.partitions,
        partition=marker.partition,
        change_offsets=marker.change_offsets,
    )
