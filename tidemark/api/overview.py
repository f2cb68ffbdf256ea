"""How far everything has come, as a value: documents of the state topic, the progress file and facts enter, `Status` leaves (pure).

`tidemark.api.observe` reads what enters. Which words follow from the facts is decided in `schemas.liveness`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from schemas.delay_histogram import RecentDelays
from schemas.documents import (
    AsideDocument,
    CoverageDocument,
    InexactDocument,
    OffsetDocument,
    Origin,
    RequestDocument,
    SnapshotState,
    TaskDocument,
    TopicsDocument,
    UnseenStatementsDocument,
)
from schemas.identity import SourceId, TableName
from schemas.liveness import JobState, MergeFacts, ProducerFacts, Sign, Standing, merge_state, producer_state
from schemas.merge_progress import MergeProgress, SetAside, TableProgress
from schemas.position import Position
from schemas.state import State
from tidemark.api.delay_status import DelayStatus, delay_status

RELEASED: Final = "it is not captured any more (source.tables, source.exclude_tables): the sink keeps it as it was then"
NOT_FOLLOWED: Final = "foreign keys change its rows without logging them, and are not followed"
FOLLOWING: Final = "parents changed; their children are being read"
_REREAD_PREFIX: Final = "anew-"
_GONE: Final = "UNKNOWN_SCHEMA"
KEYLESS: Final = "NO_PRIMARY_KEY"
_NOT_DONE: Final = 0.99
_NO_OFFSET: Final = "the state topic of this name is missing or empty, so the tables in Kafka are not known"
_NOT_ASKED: Final = "Kafka was not asked"
ASIDE: Final = "it is set aside"
"""What `TableStatus.awaited` begins with then: nobody knows when that ends."""
READ_AGAIN: Final = "it is being read again"
UNMATCHED: Final = "source.tables"
"""What a note begins with that names a pattern without a table."""
RECREATED: Final = "topics end before what was read of them: they were deleted and created again"
_UNKNOWN: Final = Standing(JobState.UNKNOWN)

Ends = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset, exclusive."""


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
    needed_file: str
    needed_pos: int
    read_ms: int
    server: str = ""
    last_ms: int | None = None


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
    that was wanted.
    """

    table: str
    snapshot: str | None = None
    rows_read: int = 0
    rows_estimated: int | None = None
    error: str | None = None
    sink_rows: int | None = None
    applied: Position | None = None
    consistent_at: Position | None = None
    quarantined: int = 0
    inexact: str | None = None
    partial: bool = False
    skipped: str | None = None
    set_aside: str | None = None
    waits: str | None = None
    behind: int | None = None
    unmerged: tuple[tuple[str, int, int], ...] = ()
    oldest_ms: int | str | None = None
    gone: bool = False
    keyless: bool = False
    kafka_delays: RecentDelays | None = None
    lake_delays: RecentDelays | None = None
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
        """The part of the snapshot that has been read, 0 to 1, and 1 when it is done only; None where the estimate says nothing.

        More rows than the estimate prove that it is wrong.
        """
        if self.snapshot == "done":
            return 1.0
        if not self.rows_estimated or self.rows_read > self.rows_estimated:
            return None
        return min(_NOT_DONE, self.rows_read / self.rows_estimated)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """What was found out about the merge job besides its progress, as `schemas.liveness.MergeFacts` has it.

    `ends` are those of the tables' topics, `topics` the change and the snapshot topic of each table.
    `disk` says that the disk of the sink's folder is full, "" if it is not, or is of another machine.
    """

    sign: Sign | None = None
    locked: bool | None = None
    is_moving: bool = False
    unreadable: str = ""
    topics: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ends: Ends | None = None
    ends_unknown: str = _NOT_ASKED
    has_sink: bool = True
    disk: str = ""


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

    def producer(self, behind_bytes: int | None = None) -> Standing:
        """Return the producer's state, given how much of the source's log is not in Kafka (None: unknown)."""
        facts = ProducerFacts(
            now_ms=self.read_ms,
            started=self.log is not None,
            sign=self.sign,
            is_moving=self.sign_is_moving,
            behind_bytes=behind_bytes,
        )
        return producer_state(facts)

    def to_kafka(self, table: TableStatus) -> DelayStatus | None:
        """Return how long changes of a table take from their commit to Kafka; None where none was counted."""
        return delay_status(table.kafka_delays, "producer", self.producer(), self.sign, self.read_ms)

    def to_lake(self, table: TableStatus) -> DelayStatus | None:
        """Return how long changes of a table take from their commit to the sink; None where none was counted."""
        in_seconds = table.kafka_delays is not None and table.kafka_delays.in_seconds
        return delay_status(table.lake_delays, "merge job", self.merge, self.merge_sign, self.read_ms, in_seconds=in_seconds)


def status_of(state: State, progress: MergeProgress, now_ms: int, facts: SinkFacts | None = None) -> Status:
    """Return what state topic, progress file and facts say together; `StateError` for a document that is not understood."""
    facts = facts or SinkFacts()
    tables = _with_waits(_tables(state, progress, facts), state, now_ms)
    behind, unknown = _all_behind(state, facts, tables)
    merge = MergeFacts(
        now_ms=now_ms,
        merged=progress != MergeProgress(),
        unreadable=facts.unreadable,
        sign=facts.sign,
        locked=facts.locked,
        is_moving=facts.is_moving,
        behind=behind,
        behind_unknown=unknown,
        set_aside=tuple(table.table for table in tables if table.set_aside is not None),
        disk=facts.disk,
    )
    return Status(
        source=state.source,
        read_ms=now_ms,
        log=log_status(state.one(OffsetDocument)),
        paused=any(request.state is SnapshotState.PAUSED for request in state.all(RequestDocument).values()),
        tables=tables,
        sink_updated_ms=progress.updated_ms,
        sign=state.one(Sign),
        merge=merge_state(merge),
        merge_sign=facts.sign,
        notes=_notes(state),
        last_batch_s=None if facts.sign is None else facts.sign.batch.get("last_s"),
        has_sink=facts.has_sink,
    )


def _tables(state: State, progress: MergeProgress, facts: SinkFacts) -> tuple[TableStatus, ...]:
    """Return every table with topics, a snapshot, a part in the sink, or one that is set aside."""
    tasks = _tasks(state)
    released = {f"{one.database}.{one.table}" for one in state.all(TopicsDocument).values() if one.released}
    snapshots = {task.table: _snapshot(task) for task, _ in tasks}
    sink = progress.tables
    inexact = _inexact(state, tasks, sink)
    aside = {
        _aside_name(one, tables_with_topics(state)): _aside_text(one.reason, "producer", one.since_ms, one.position)
        for one in state.all(AsideDocument).values()
    }
    delays, nothing = state.all(RecentDelays), TableProgress()
    return tuple(
        replace(
            _with_sink(snapshots.get(name, TableStatus(table=name)), sink.get(name, nothing)),
            inexact=inexact.get(name),
            set_aside=aside.get(name) or _set_aside(sink.get(name, nothing).set_aside),
            behind=_behind(facts, name, sink.get(name, nothing)),
            unmerged=_unmerged(facts, name, sink.get(name, nothing)),
            kafka_delays=delays.get(f"{RecentDelays.PREFIX}{name}"),
            released=name in released,
        )
        for name in sorted(set(tables_with_topics(state)) | set(snapshots) | set(sink) | set(aside))
    )


def _aside_name(one: AsideDocument, known: Mapping[str, tuple[str, str]]) -> str:
    """Return `database.table`; with backticks if another table, which has topics, is called so."""
    table = (one.database, one.table)
    return one.name if known.get(one.name, table) == table else TableName(*table).text


def _with_waits(tables: tuple[TableStatus, ...], state: State, now_ms: int) -> tuple[TableStatus, ...]:
    """Return the tables with the reason why no chunk is read, which only a producer that is alive knows."""
    sign = state.one(Sign)
    if sign is None or not sign.snapshot_waits or sign.state != "reading" or sign.silent_ms(now_ms):
        return tables
    unread = {SnapshotState.QUEUED, SnapshotState.RUNNING}
    waiting = {
        task.table
        for task, request in _tasks(state)
        if request is not None and not request.blocking and request.state in unread and task.state in unread
    }
    return tuple(replace(table, waits=sign.snapshot_waits) if table.table in waiting else table for table in tables)


def tables_with_topics(state: State) -> dict[str, tuple[str, str]]:
    """Return database and name of every table that has topics, by `database.table`."""
    return {f"{one.database}.{one.table}": (one.database, one.table) for one in state.all(TopicsDocument).values()}


def _notes(state: State) -> tuple[str, ...]:
    """Return what the source does not show: tables that the settings name, and what statements of the log changed."""
    known, coverage = tables_with_topics(state), state.one(CoverageDocument)
    if coverage is None:
        return ()
    notes = [
        f"{UNMATCHED}: {pattern!r}: {reason}"
        for pattern, reason in coverage.unmatched.items()
        if not any(re.fullmatch(pattern, name, re.IGNORECASE) for name in known)
    ]
    notes += [f"{table}: may not be read: GRANT SELECT ON {table}" for table in coverage.unreadable]
    if coverage.captured == 0 and len(notes) == len(coverage.unmatched):  # and none came since
        notes.append("no table is captured: nothing is published or merged")
    unseen = state.one(UnseenStatementsDocument)
    return (*notes, *(() if unseen is None else (unseen.note,)))


def _all_behind(
    state: State, facts: SinkFacts, tables: tuple[TableStatus, ...]
) -> tuple[dict[str, int] | None, str]:
    """Return the records per table that are not merged; None with the reason if that is not known of one."""
    if facts.ends is None:
        return None, facts.ends_unknown
    if OffsetDocument.KEY not in state:
        return None, _NO_OFFSET
    known = tables_with_topics(state)  # topics of released tables may be deleted
    unknown = [table.table for table in tables if table.behind is None and table.table in known and not table.released]
    if unknown:
        named = f"{', '.join(unknown[:3])}{', ...' if unknown[3:] else ''}"
        are_there = all(topic in facts.ends for name in unknown for topic in facts.topics.get(name, ("",)))
        return None, f"{RECREATED}: {named}" if are_there else f"Kafka has no topics of {named}"
    return {table.table: table.behind for table in tables if table.behind}, ""


def _behind(facts: SinkFacts, table: str, progress: TableProgress) -> int | None:
    """Return the records of a table in Kafka that are not merged; None if its topics' ends are unknown, or before what was read."""
    both = facts.topics.get(table)
    if facts.unreadable or facts.ends is None or both is None or any(topic not in facts.ends for topic in both):
        return None
    spans = list(_spans(facts, table, progress))
    if any(done > end for _, _, done, end in spans):
        return None
    return sum(end - done for _, _, done, end in spans)


def is_ahead(progress: MergeProgress, facts: SinkFacts) -> bool:
    """Return whether more is merged than the topics had when they were asked. They grow meanwhile: the answer is too old."""
    known = facts.ends is not None
    return known and any(
        done > end
        for name, one in progress.tables.items()
        if name in facts.topics and all(topic in (facts.ends or {}) for topic in facts.topics[name])
        for _, _, done, end in _spans(facts, name, one)
    )


def _unmerged(facts: SinkFacts, table: str, progress: TableProgress) -> tuple[tuple[str, int, int], ...]:
    """Return where the records of a table begin that are not merged: topic, partition, offset."""
    if not _behind(facts, table, progress):
        return ()
    return tuple((topic, partition, done) for topic, partition, done, end in _spans(facts, table, progress) if done < end)


def _spans(facts: SinkFacts, table: str, progress: TableProgress) -> Iterator[tuple[str, int, int, int]]:
    """Yield topic, partition, the offset up to which it is merged, and its end."""
    assert facts.ends is not None
    for topic, done in zip(facts.topics[table], (progress.change_offsets, progress.snapshot_offsets), strict=True):
        for partition, end in facts.ends[topic].items():
            yield topic, partition, done.get(partition, 0), end


def log_status(offset: OffsetDocument | None) -> LogStatus | None:
    """Return what a log offset says; None if there is none."""
    if offset is None:
        return None
    needed = offset.resume or offset
    ts_us = None if offset.last is None else offset.last.ts_us
    return LogStatus(
        file=offset.file,
        pos=offset.pos,
        gtid_set=offset.gtid_set,
        position=offset.boundary,
        committed_ms=offset.committed_ms,
        needed_file=needed.file,
        needed_pos=needed.pos,
        read_ms=offset.committed_ms if ts_us is None else ts_us // 1000,
        server=offset.server,
        last_ms=None if ts_us is None else ts_us // 1000,
    )


def _inexact(
    state: State, tasks: list[tuple[TaskDocument, RequestDocument | None]], sink: Mapping[str, TableProgress]
) -> dict[str, str]:
    """Return why tables in the sink may differ from the source although they have every change of the log."""
    incomplete = {name: one.incomplete for name, one in sink.items() if one.incomplete}
    following = state.all(TaskDocument, TaskDocument.CHILDREN).values()
    silent = state.one(InexactDocument)
    lacking = {name: one.lacks for name, one in sink.items() if one.lacks}
    return {
        **incomplete,
        **_unread(tasks, sink),
        **{task.table: FOLLOWING for task in following},
        **dict.fromkeys(() if silent is None else silent.tables, NOT_FOLLOWED),
        **lacking,
    }


def _unread(
    tasks: list[tuple[TaskDocument, RequestDocument | None]], sink: Mapping[str, TableProgress]
) -> dict[str, str]:
    """Return why tables that were consistent once are to be read again, until what was read is in the sink."""
    unread: dict[str, str] = {}
    for task, request in tasks:
        consistent_at = sink.get(task.table, TableProgress()).consistent_at
        is_needed = request is not None and (request.origin is Origin.AUTOMATIC or request.id.startswith(_REREAD_PREFIX))
        if is_needed and consistent_at is not None:
            unread[task.table] = _why_unread(task.state, "" if request is None else request.reason)
        is_whole = task.state is SnapshotState.DONE and task.condition is None
        has_arrived = is_whole and consistent_at is not None and (task.last_close is None or task.last_close <= consistent_at)
        if has_arrived or task.status == _GONE:
            unread.pop(task.table, None)
    return unread


def _why_unread(state: SnapshotState, reason: str) -> str:
    if state is SnapshotState.FAILED:
        return f"it had to be read again, which failed; ask for it: {reason}"
    if state is SnapshotState.CANCELLED:
        return f"it had to be read again, which was stopped; ask for it: {reason}"
    return f"{READ_AGAIN}: {reason}"


def _tasks(state: State) -> list[tuple[TaskDocument, RequestDocument | None]]:
    """Return every table of every request, and the request, in the order in which requests came."""
    requests = {request.id: request for request in state.all(RequestDocument).values()}
    found = [(task, requests.get(task.request)) for task in state.all(TaskDocument).values()]
    return sorted(found, key=lambda one: 0 if one[1] is None else one[1].number)


def _snapshot(task: TaskDocument) -> TableStatus:
    return TableStatus(
        table=task.table,
        snapshot=task.state.value,
        rows_read=task.rows,
        rows_estimated=task.estimate,
        error=task.error or None,
        gone=task.status == _GONE,
        keyless=task.status == KEYLESS,
        partial=task.condition is not None,
        via=task.via,
        via_reason=task.via_reason or None,
    )


def _with_sink(table: TableStatus, progress: TableProgress) -> TableStatus:
    return replace(
        table,
        sink_rows=progress.rows,
        applied=progress.applied_position,
        consistent_at=progress.consistent_at,
        quarantined=progress.quarantined,
        lake_delays=progress.recent_delays,
        skipped=progress.skipped,
    )


def _set_aside(one: SetAside | None) -> str | None:
    return None if one is None else _aside_text(one.reason, "merge job", one.since_ms)


def _aside_text(reason: str, job: str, since_ms: int, position: Position | None = None) -> str:
    """Return why a job has set a table aside, and since when or from which position on."""
    since = f"{datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    start = "" if position is None else f" from position {position.text}"
    return f"{reason} (by the {job} since {since}{start})"
