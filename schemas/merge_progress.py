"""What a merge job says of itself in `<sink>/_tidemark/progress.json`: for the command, for verify, and for people.

The merge job writes it after each batch and reads of it only which query it belongs to. Each table's part is also in the table's
own commits. Older versions wrote fewer fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.delay_histogram import DelayHistogram, RecentDelays
from schemas.json_codec import json_field
from schemas.position import Position

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Why a table is not merged for now: since when, after how many attempts, and when it is retried at the latest.

    `is_recreated` is set if a topic of it was deleted and created again: the promises of its markers about changes that were not
    read do not count.
    """

    reason: str
    since_ms: int
    attempts: int = 0
    retry_ms: int = 0
    is_recreated: bool = json_field(default=False, name="begins_again")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """How far one table is in the sink.

    `rows` counts merged records. `horizons` is the applied horizon per partition of the snapshot topic. Rows below `kept` stay
    although the table was emptied (`sinks[].schema_changes.exclude`). `skipped`, `lacks`, `set_aside` and `incomplete` are reasons,
    None where there is none. `delays` are from the commit at the source to the commit of the sink, of some changes of each batch
    since the merge job began, `recent_delays` those of the recent past; None if none is known.
    """

    rows: int | None = None
    applied_position: Position | None = None
    consistent_at: Position | None = None
    horizon: Position | None = None
    horizons: Mapping[int, Position] = field(default_factory=dict)
    floor: Position | None = None
    kept: Position | None = json_field(None, omits_default=True)
    change_offsets: Offsets = field(default_factory=dict)
    snapshot_offsets: Offsets = field(default_factory=dict)
    quarantined: int = 0
    tombstones: int = 0
    skipped: str | None = None
    lacks: str | None = None
    set_aside: SetAside | None = None
    incomplete: str | None = None
    delays: DelayHistogram | None = json_field(None, omits_default=True)
    recent_delays: RecentDelays | None = json_field(None, omits_default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeProgress:
    """The whole file, after batch `batch_id` of the query `query_id`."""

    query_id: str | None = None
    batch_id: int = -1
    updated_ms: int | None = None
    last_batch_full: bool = False
    rows_total: int = 0
    tables: Mapping[str, TableProgress] = json_field(factory=dict)
