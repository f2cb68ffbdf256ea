"""The tree of one sink: `Status` with the log, the jobs and the tables. `tidemark.status.reckoning` builds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from schemas.delay_histogram import RecentDelays
from schemas.documents import (
    SnapshotState,
)
from schemas.identity import SourceId
from schemas.json_codec import Form, json_field
from schemas.liveness import Sign
from schemas.position import Position
from tidemark.status.delay_status import DelayStatus, delay_status
from tidemark.status.job_standing import JobState, Standing, producer_state

RELEASED: Final = "it is not captured any more (source.tables, source.exclude_tables): the sink keeps it as it was then"
NOT_FOLLOWED: Final = "foreign keys change its rows without logging them, and are not followed"
FOLLOWING: Final = "parents changed; their children are being read"
_NOT_DONE: Final = 0.99
ASIDE: Final = "it is set aside"
"""What `TableStatus.awaited` begins with then: nobody knows when that ends."""
_UNKNOWN: Final = Standing(JobState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The log offset committed last: everything before it is in Kafka.

    A restart continues to read from `needed_file` and `needed_pos`, before that while XA transactions are prepared. `read_ms` is
    when the source committed the last transaction before it, or when we did where that is not known; `last_ms` is the first of
    these, None where it is not known. `server` is whose log it is.
    """

    file: str
    pos: int
    gtid_set: str
    position: Position
    committed_ms: int
    needed_file: str = json_field(absent=True)
    needed_pos: int = json_field(absent=True)
    read_ms: int = json_field(absent=True)
    server: str = json_field("", absent=True)
    last_ms: int | None = json_field(None, absent=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table, on its way through the snapshot and in the sink.

    `snapshot` is the state of the table's newest snapshot request, None when there was none; `rows_read` of
    about `rows_estimated` have been read by it, which are not all that there are where it is `partial`: it has a
    condition. `consistent_at` is the position from which on the sink's
    table is a state the source was in, None before that. `inexact` says why the sink may differ from the source
    although it holds every change of the log, None where it does not; `skipped` why there is no mirror of it; `set_aside` why
    it is not published or not merged at the moment. `waits` says why no chunk of its snapshot is read now, None where that is
    not so. `behind` counts its records in Kafka that are not merged; None: unknown. They begin at `unmerged` (topic, partition,
    offset), and the oldest was written at `oldest_ms`: 0 where consumers see none of them, a text that says why it is not known,
    None where nobody has looked. `gone`: the source has it no longer, so that its snapshot failed. `kafka_delays` and
    `lake_delays` are how long changes took from their commit, as the jobs noted it at some time (`Status.to_kafka`,
    `Status.to_lake` say what holds now).
    `released`: it is not captured any more, so the sink stays as it is. `keyless`: it has no key, so its snapshot failed,
    and it has no mirror.
    `via` is the way of its snapshot's rows, "kafka" or "spark", None without a snapshot, and `via_reason` why it is not the one
    that was wanted. `rows_per_s` is the pace of its snapshot between two looks (`Status.with_rates`).
    """

    JSON: ClassVar = Form(head=lambda table: {"rows_per_s": round(table.rows_per_s, 1), "eta_s": table.eta_s})

    table: str = json_field(absent=True)
    snapshot: str | None = None
    rows_read: int = 0
    rows_estimated: int | None = None
    rows_per_s: float = json_field(0.0, absent=True)
    error: str | None = None
    sink_rows: int | None = json_field(None, name="rows_merged")
    applied: Position | None = json_field(None, name="applied_position")
    consistent_at: Position | None = None
    quarantined: int = 0
    inexact: str | None = None
    partial: bool = False
    skipped: str | None = None
    set_aside: str | None = None
    waits: str | None = json_field(None, name="waiting")
    behind: int | None = json_field(None, name="behind_records")
    unmerged: tuple[tuple[str, int, int], ...] = json_field((), absent=True)
    oldest_ms: int | str | None = json_field(None, absent=True)
    gone: bool = json_field(default=False, absent=True)
    keyless: bool = json_field(default=False, absent=True)
    kafka_delays: RecentDelays | None = json_field(None, absent=True)
    lake_delays: RecentDelays | None = json_field(None, absent=True)
    via: str | None = None
    via_reason: str | None = None
    released: bool = False

    @property
    def is_consistent(self) -> bool:
        """Whether the sink's table is a state the source was in, and nothing says that it is not exact."""
        return self.consistent_at is not None and not (self.inexact or self.skipped or self.set_aside)

    @property
    def is_snapshotting(self) -> bool:
        """Whether its snapshot is queued, being read or paused."""
        return self.snapshot is not None and not SnapshotState(self.snapshot).final

    @property
    def awaited(self) -> str:
        """Which rows of it are still on their way, though the sink has all changes of the log; "" for none."""
        if self.released:
            return ""
        if self.set_aside is not None:
            return f"{ASIDE}: {self.set_aside}"
        if self.is_snapshotting:
            return f"its snapshot is {self.snapshot}" + (f", waiting: {self.waits}" if self.waits else "")
        if self.inexact == FOLLOWING or (self.inexact is not None and self.snapshot == "done" and self.inexact != NOT_FOLLOWED):
            return self.inexact
        return ""

    @property
    def share(self) -> float | None:
        """The part of the snapshot that has been read, as `share_of` has it."""
        return share_of(self.snapshot == "done", self.rows_read, self.rows_estimated)

    @property
    def eta_s(self) -> float | None:
        """The seconds until its snapshot is read; None if nobody knows."""
        return seconds_left(self.rows_read, self.rows_estimated, self.rows_per_s) if self.snapshot == "running" else None


def share_of(is_done: bool, rows: int, estimate: int | None) -> float | None:  # noqa: FBT001 - a fact
    """Return the part of a table that has been read, 0 to 1, and 1 when it is done only; None if the estimate says nothing.

    More rows than the estimate prove that it is wrong.
    """
    if is_done:
        return 1.0
    return min(_NOT_DONE, rows / estimate) if estimate and rows <= estimate else None


def seconds_left(rows: int, estimate: int | None, rate: float | None) -> float | None:
    """Return the seconds until a table is read; None without a rate or an estimate, and if more rows are read than that."""
    return round((estimate - rows) / rate, 1) if rate and estimate is not None and rows < estimate else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Log, tables and sink at one moment. `sign` is the producer's last liveness record, `merge` the state of the merge job.

    `merge_sign` is the last liveness record of that.
    """

    source: SourceId
    read_ms: int
    log: LogStatus | None
    paused: bool
    tables: tuple[TableStatus, ...]
    sink_updated_ms: int | None
    sign: Sign | None = None
    sign_is_moving: bool = False
    merge: Standing = _UNKNOWN
    merge_sign: Sign | None = None
    notes: tuple[str, ...] = ()
    last_batch_s: float | None = None
    has_sink: bool = True

    @property
    def snapshot_running(self) -> bool:
        """Whether a table is queued or being read."""
        return any(table.is_snapshotting for table in self.tables)

    @property
    def applied(self) -> Position | None:
        """The sink holds every change of every table up to here; None while a table has none applied."""
        positions = [table.applied for table in self.tables if not table.released]
        if not positions or None in positions:
            return None
        return min(position for position in positions if position is not None)

    @property
    def behind(self) -> int | None:
        """Records in Kafka that are not merged; None where that is not known of a table, or of none."""
        counts = [table.behind for table in self.tables]
        if not counts or None in counts:
            return None
        return sum(count for count in counts if count is not None)

    def with_rates(self, before: Status) -> Status:
        """Return the same with the rows per second that snapshots have read of each table since an earlier look."""
        seconds, earlier = (self.read_ms - before.read_ms) / 1000, {table.table: table.rows_read for table in before.tables}
        paces = (max(0, table.rows_read - earlier.get(table.table, 0)) / seconds if seconds > 0 else 0.0 for table in self.tables)
        return replace(self, tables=tuple(replace(table, rows_per_s=pace) for table, pace in zip(self.tables, paces, strict=True)))

    def producer(self, behind_bytes: int | None = None) -> Standing:
        """Return the producer's state, given how much of the source's log is not in Kafka (None: unknown)."""
        started, is_moving = self.log is not None, self.sign_is_moving
        return producer_state(self.read_ms, self.sign, started=started, is_moving=is_moving, behind_bytes=behind_bytes)

    def to_kafka(self, table: TableStatus) -> DelayStatus | None:
        """Return how long changes of a table take from their commit to Kafka; None where none was counted."""
        return delay_status(table.kafka_delays, "producer", self.producer(), self.sign, self.read_ms)

    def to_lake(self, table: TableStatus) -> DelayStatus | None:
        """Return how long changes of a table take from their commit to the sink; None where none was counted."""
        in_seconds = table.kafka_delays is not None and table.kafka_delays.in_seconds
        return delay_status(table.lake_delays, "merge job", self.merge, self.merge_sign, self.read_ms, in_seconds=in_seconds)
