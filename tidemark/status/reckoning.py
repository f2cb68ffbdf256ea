"""Documents of the state topic, the progress file and facts enter, the status of one sink leaves (pure).

`tidemark.status.job_standing` decides which words follow from the facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from schemas.identity import TableName
from schemas.liveness import Sign
from schemas.merge_progress import MergeProgress, SetAside, TableProgress
from schemas.position import Position
from schemas.readable import moment
from schemas.state import State
from tidemark.status.job_standing import SinkFacts, merge_state
from tidemark.status.status_tree import FOLLOWING, NOT_FOLLOWED, LogStatus, Status, TableStatus

_REREAD_PREFIX: Final = "anew-"
_GONE: Final = "UNKNOWN_SCHEMA"
KEYLESS: Final = "NO_PRIMARY_KEY"
_NO_OFFSET: Final = "the state topic of this name is missing or empty, so the tables in Kafka are not known"
READ_AGAIN: Final = "it is being read again"
UNMATCHED: Final = "source.tables"
"""What a note begins with that names a pattern without a table."""
RECREATED: Final = "topics end before what was read of them: they were deleted and created again"


def status_of(state: State, progress: MergeProgress, now_ms: int, facts: SinkFacts | None = None) -> Status:
    """Return what state topic, progress file and facts say together; `StateError` for a document that is not understood."""
    facts = facts or SinkFacts()
    tables = _tables(state, progress, facts, now_ms)
    behind, unknown = _all_behind(state, facts, tables)
    aside = tuple(table.table for table in tables if table.set_aside is not None)
    merged = progress != MergeProgress()
    merge = merge_state(now_ms, facts, merged=merged, behind=behind, behind_unknown=unknown, set_aside=aside)
    return Status(
        source=state.source,
        read_ms=now_ms,
        log=log_status(state.one(OffsetDocument)),
        paused=any(request.state is SnapshotState.PAUSED for request in state.all(RequestDocument).values()),
        tables=tables,
        sink_updated_ms=progress.updated_ms,
        sign=state.one(Sign),
        merge=merge,
        merge_sign=facts.sign,
        notes=_notes(state),
        last_batch_s=None if facts.sign is None else facts.sign.batch.get("last_s"),
        has_sink=facts.has_sink,
    )


def _tables(state: State, progress: MergeProgress, facts: SinkFacts, now_ms: int) -> tuple[TableStatus, ...]:
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
    delays, nothing, (waits, waiting) = state.all(RecentDelays), TableProgress(), _waiting(state, now_ms)
    return tuple(
        replace(
            _with_sink(snapshots.get(name, TableStatus(table=name)), sink.get(name, nothing)),
            inexact=inexact.get(name),
            set_aside=aside.get(name) or _set_aside(sink.get(name, nothing).set_aside),
            behind=_behind(facts, name, sink.get(name, nothing)),
            unmerged=_unmerged(facts, name, sink.get(name, nothing)),
            kafka_delays=delays.get(f"{RecentDelays.PREFIX}{name}"),
            released=name in released,
            waits=waits if name in waiting else None,
        )
        for name in sorted(set(tables_with_topics(state)) | set(snapshots) | set(sink) | set(aside))
    )


def _aside_name(one: AsideDocument, known: Mapping[str, tuple[str, str]]) -> str:
    """Return `database.table`; with backticks if another table, which has topics, is called so."""
    table = (one.database, one.table)
    return one.name if known.get(one.name, table) == table else TableName(*table).text


def _waiting(state: State, now_ms: int) -> tuple[str, frozenset[str]]:
    """Return why no chunk is read, which only a producer that is alive knows, and the tables that wait; "" and none otherwise."""
    sign = state.one(Sign)
    if sign is None or not sign.snapshot_waits or sign.state != "reading" or sign.silent_ms(now_ms):
        return "", frozenset()
    unread = {SnapshotState.QUEUED, SnapshotState.RUNNING}
    pairs = ((task, request) for task, request in _tasks(state) if request is not None and not request.blocking)
    return sign.snapshot_waits, frozenset(task.table for task, request in pairs if {request.state, task.state} <= unread)


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
    start = "" if position is None else f" from position {position.text}"
    return f"{reason} (by the {job} since {moment(since_ms)}{start})"
