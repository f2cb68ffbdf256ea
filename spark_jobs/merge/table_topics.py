"""Topics of a table that lack records: Kafka no longer had the first ones when this sink first read them, or they were made again.

Retention may have removed the first records of either topic by then: rows of a snapshot, or changes that came after its rows. The
marker that says the snapshot is complete is still there, and is not true for this sink, which never saw those records. Such a
snapshot is not counted. The next one is, whose first bound is behind a marker after which everything was read.

A topic that was deleted and created again is read from its first record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import structlog

from kafkaio.slices import EARLIEST, Offsets, Slice
from schemas.markers import CompleteMarker, FloorMarker, HeartbeatMarker, Marker
from schemas.merge_progress import SetAside
from schemas.merge_rule import NOTHING
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.merge.table_input import TableInput

log = structlog.get_logger()

_NOT_YET: Final = ". The new ones are read from their first record; snapshot this table when this reason asks for it"


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


def reading_again(record: SourceRecord, topics: tuple[str, str], replaced: Collection[str], now_ms: int) -> SourceRecord:
    """Return the record of a table whose topics were deleted and created again: the next batch reads them from their first record.

    What waits for offsets of the former ones is dropped. The table is not consistent before it was read again. A snapshot in that
    batch does not count, since what its markers say may be about the former topics: it is asked for behind it (`new_topics_read`).
    """
    changes, snapshots = topics
    reason = (
        f"topic {', '.join(sorted(replaced))} was deleted and created again since it was read, records that were not merged may be "
        f"lost{_NOT_YET}"
    )
    state = replace(record.state, marks=(), completions={}, consistent_at=NOTHING, emptied=NOTHING)
    return replace(
        record,
        state=state,
        change_offsets={} if changes in replaced else record.change_offsets,
        snapshot_offsets={} if snapshots in replaced else record.snapshot_offsets,
        set_aside=SetAside(reason, now_ms, 1, now_ms, is_recreated=True),
        incomplete=reason,
        trimmed={} if changes in replaced else dict(record.trimmed or {}),
        known_from={},
        is_recreated=record.is_recreated or changes in replaced,
    )


def new_topics_read(record: SourceRecord) -> SourceRecord:
    """Return the record of a table whose new topics were read from their first record: from now on a snapshot counts."""
    incomplete = record.incomplete
    if incomplete is None or not incomplete.endswith(_NOT_YET):
        return record
    return replace(record, incomplete=f"{incomplete.removesuffix(_NOT_YET)}: snapshot this table again")


def ended_early(record: SourceRecord, topics: tuple[str, str], ends: Offsets) -> str | None:
    """Return why a table cannot be read further: a topic of it ends before what was read of it, or is not visible; else None."""
    for topic, known in zip(topics, (record.change_offsets, record.snapshot_offsets), strict=True):
        for partition, start in known.items():
            if ends.get(topic, {}).get(partition, 0) < start:
                return (
                    f"topic {topic} partition {partition} was read up to {start} and ends before that: it was deleted, or this "
                    "Kafka user cannot see it. The table continues when it is back; if it was deleted, let the producer create it "
                    "again and snapshot this table"
                )
    return None


def unread(record: SourceRecord, topics: tuple[str, str], ends: Offsets) -> Iterator[Slice]:
    """Yield what of a table's change topic and snapshot topic is not merged up to the ends of a batch."""
    for topic, known in zip(topics, (record.change_offsets, record.snapshot_offsets), strict=True):
        for partition, end in ends.get(topic, {}).items():
            start = known.get(partition, EARLIEST)
            if end > 0 and start < end:
                yield Slice(topic, partition, start, end)
