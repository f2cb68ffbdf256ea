"""Progress for people and tools: the content of `progress.json` and of the stamps in commits of targets, and times of batches."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from schemas.batch_stages import KEPT, STAGES, BatchStages
from schemas.delay_histogram import DelayCounter, DelayHistogram
from schemas.identity import SourceTable
from schemas.json_codec import encode
from schemas.merge_progress import MergeProgress, TableProgress
from schemas.merge_rule import NOTHING, TableState
from schemas.position import Position
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.store.files import LocalFiles
from spark_jobs.store.sink_layout import PROGRESS

NO_DELAYS: Final[Mapping[SourceTable, DelayCounter]] = MappingProxyType({})
LEFT_OUT: Final = (
    "records of it could not be merged: it lacks them until they are (tidemark quarantine retry), or until a snapshot that "
    "begins after them is merged whole (tidemark signal execute-snapshot)"
)
GIVEN_UP: Final = (
    "records of it were not merged and are not kept: it lacks them until it is read again (tidemark signal execute-snapshot)"
)


def publish_progress(
    files: LocalFiles, state: MergeState, delays: Mapping[SourceTable, DelayCounter] = NO_DELAYS, *, caught_up: bool
) -> None:
    """Write progress.json. The job itself reads of it only the query and the batch."""
    tables = {
        table.name.plain: replace(
            table_progress(record),
            delays=delays[table].total if table in delays else None,
            recent_delays=delays[table].recent if table in delays else None,
        )
        for table, record in state.sources.items()
    }
    progress = MergeProgress(
        query_id=state.query_id,
        batch_id=state.batch_id,
        updated_ms=time.time_ns() // 1_000_000,
        last_batch_full=not caught_up,
        rows_total=sum(record.merged for record in state.sources.values()),
        tables=tables,
    )
    files.write(PROGRESS, json.dumps(encode(progress), indent=1))


def publish_again(files: LocalFiles, state: MergeState) -> None:
    """Write progress.json with a state that was changed between two batches."""
    publish_progress(files, state, caught_up=not json.loads(files.read(PROGRESS)).get("last_batch_full", True))


def table_progress(record: SourceRecord) -> TableProgress:
    """Return how far one table is, as progress.json and the stamps have it."""
    state = record.state
    return TableProgress(
        rows=record.merged,
        applied_position=_position(state.applied_position),
        consistent_at=_position(state.consistent_at if state.is_consistent else NOTHING),
        horizon=_position(state.safe_horizon),
        horizons={partition: Position.parse(horizon) for partition, horizon in state.guard.items()},
        floor=_position(state.floor),
        kept=_position(state.kept),
        change_offsets=record.change_offsets,
        snapshot_offsets=record.snapshot_offsets,
        quarantined=record.quarantined,
        tombstones=sum(item.count for item in record.tombstones),
        skipped=record.skipped,
        lacks=record.lost or left_out_text(state),
        set_aside=record.set_aside,
        incomplete=record.incomplete,
    )


def _position(text: str) -> Position | None:
    return Position.parse(text) if text else None


def left_out_text(state: TableState) -> str | None:
    """Return what to say of records that were not merged; None where all were."""
    if state.gap is None:
        return None
    return GIVEN_UP if state.gap.given_up else LEFT_OUT


# ── times ────────────────────


_DIGITS: Final = 3


class StageClock:
    """Notes the seconds between the ends of stages, for one batch at a time, and keeps the newest batches."""

    def __init__(self) -> None:
        self._at = 0.0
        self._seconds: dict[str, float] = {}
        self._ended: deque[BatchStages] = deque(maxlen=KEPT)

    @property
    def recent(self) -> tuple[BatchStages, ...]:
        """The batches that ended last, oldest first."""
        return tuple(self._ended)

    def begin(self) -> None:
        """Begin with a batch."""
        self._at, self._seconds = time.monotonic(), dict.fromkeys(STAGES, 0.0)

    def passed(self, stage: str) -> None:
        """Note that this stage (one of `STAGES`) is over, and that the next one begins."""
        now = time.monotonic()
        self._seconds[stage] += now - self._at
        self._at = now

    def end(self, number: int, records: int, ended_ms: int) -> None:
        """Keep the batch."""
        seconds = {stage: round(value, _DIGITS) for stage, value in self._seconds.items()}
        self._ended.append(BatchStages(number=number, ended_ms=ended_ms, records=records, **seconds))


class TableDelays:
    """The delays of some of the changes of each table since the job began. A table is noted by one thread at a time."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._tables: dict[SourceTable, DelayCounter] = {}

    def note(self, table: SourceTable, delays: DelayHistogram | None) -> None:
        """Add those of a batch that is committed."""
        if delays is not None and delays.count:
            self._tables.setdefault(table, DelayCounter()).add(delays, self._now_s())

    @property
    def tables(self) -> dict[SourceTable, DelayCounter]:
        """The tables of which some delay is known."""
        return self._tables.copy()
