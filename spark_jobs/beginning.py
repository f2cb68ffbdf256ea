"""Where what Kafka still had of a table began when this sink first read of it.

Retention may have taken the beginning of either topic by then: rows of a snapshot, or changes that came after its rows. The
marker that says it is complete is still there, and does not hold for this sink: it never saw them. Such a snapshot is
not counted; the next one is, whose first bound is behind a marker with everything after it at hand.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, Marker
from schemas.merge_rule import NOTHING
from spark_jobs.progress import TableRecord
from spark_jobs.work import TableWork

log = structlog.get_logger()


def cut(record: TableRecord, work: TableWork) -> TableRecord:
    """The record of a table before records of it that are gone: nothing that waits is carried out, nothing is consistent."""
    if work.lost is None:
        return record
    log.error("merge.records_lost", table=work.full_name, reason=work.lost)
    state = replace(record.state, completions={}, consistent_at=NOTHING, emptied=NOTHING)
    return replace(record, state=state, incomplete=work.lost)


def noted(before: TableRecord, work: TableWork) -> tuple[TableRecord, tuple[Marker, ...]]:
    """The record with what is known of the table's beginning, and the batch's markers as they hold for this sink."""
    record = before
    if work.begins_again:  # written before the topic was deleted, perhaps
        record = replace(record, trimmed=dict(record.trimmed or {}) | dict(work.change_starts), known_from={})
        return record, tuple(_held(marker, None) for marker in work.markers)
    if work.trimmed or work.lost is not None:
        record = replace(record, trimmed=dict(record.trimmed or {}) | dict(work.change_starts), known_from={})
        advice = "have the table read again: what came before is no longer in Kafka"
        log.warning("merge.begins_behind_trimmed_records", table=work.full_name, advice=advice)
    if record.trimmed is None:
        return record, work.markers
    known = dict(record.known_from)
    for marker in work.markers:
        if isinstance(marker, FloorMarker):  # its position is before the place that its offsets are of
            continue
        if all(marker.change_offsets.get(number, 0) >= start for number, start in record.trimmed.items()):
            known.setdefault(marker.partition, marker.position.text)
    expected = max((record.state.partitions, *(marker.partitions for marker in work.markers)))
    since = max(known.values()) if known and len(known) >= expected else None
    return replace(record, known_from=known), tuple(_held(marker, since) for marker in work.markers)


def _held(marker: Marker, since: str | None) -> Marker:
    """The marker, or only its promises about the log where it speaks of a snapshot that this sink has not seen whole."""
    if isinstance(marker, FloorMarker) and marker.empty:  # of what was changed since, all must be at hand
        return replace(marker, empty=since is not None and marker.position.text > since)
    if not isinstance(marker, CompleteMarker) or marker.sweep is not None:
        return marker
    if since is not None and marker.first_bound.text > since:
        return marker
    return HeartbeatMarker(
        table=marker.table,
        source=marker.source,
        position=marker.position,
        horizon=marker.horizon,
        partitions=marker.partitions,
        partition=marker.partition,
        change_offsets=marker.change_offsets,
    )
