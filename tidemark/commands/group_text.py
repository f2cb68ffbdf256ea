"""The members of a group, and tasks, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from schemas.readable import ago, aligned, count, duration, moment, skew
from tidemark.status.task_status import TaskPhase

if TYPE_CHECKING:
    from tidemark.status.group_status import GroupStatus, ReaderStatus, SourceStatus
    from tidemark.status.replication_status import ReplicationStatus
    from tidemark.status.task_status import TaskStatus

_HEADS: Final = {
    "source": ("source", "state", "since", "number", "end", "promise", "producer", "clock", "waits for", "offline"),
    "reader": ("reader", "state", "since", "sources", "frontier", "blocks", "offline"),
}
_NAMED: Final = 3


def replication_text(status: ReplicationStatus) -> str:
    """Return the text of each group and task, with an empty line between two."""
    return "\n\n".join([*map(group_text, status.groups), *map(task_text, status.tasks)])


def group_text(status: GroupStatus) -> str:
    """Return a line and two tables."""
    if status.problem is not None:
        return f"group {status.group}: unknown: {status.problem}"
    sources, readers = members_text(status, "source", status.sources), members_text(status, "reader", status.readers)
    return f"group {status.group}\n{sources}\n\n{readers}"


def members_text(status: GroupStatus, kind: str, members: Sequence[Any]) -> str:
    """Return the table of the members of a kind."""
    line = _source_line if kind == "source" else _reader_line
    rows = [(*line(one, status.read_ms), "" if one.by is None else f"by {one.by}: {one.reason}") for one in members]
    return "\n".join(aligned([_HEADS[kind], *rows])) if rows else f"group {status.group} has no {kind}"


def _source_line(one: SourceStatus, now_ms: int) -> tuple[str, ...]:
    end = "-" if one.end is None else str(one.end)
    state, producer, waits = one.state.value, one.producer.value.replace("_", " "), ", ".join(one.waits_for) or "-"
    promise, since = _age(one.promise_us, now_ms), moment(one.since_ms)
    return one.name, state, since, str(one.number), end, promise, producer, skew(one.skew_us), waits


def _reader_line(one: ReaderStatus, now_ms: int) -> tuple[str, ...]:
    blocks = ", ".join(one.blocks) or "-"
    return one.name, one.state.value, moment(one.since_ms), ", ".join(one.sources), _age(one.frontier_us, now_ms), blocks


def _age(us: int | None, now_ms: int) -> str:
    return "unknown" if us is None else ago(now_ms - us / 1000)


def task_text(status: TaskStatus) -> str:
    """Return a line, notes, and a table of the sources."""
    if status.problem is not None:
        return f"task {status.task}: unknown: {status.problem}"
    lines = [f"task {status.task}: {_standing(status)}, target {status.target}"]
    if status.pause is not None:
        since = ago(status.read_ms - status.pause.at_ms)
        lines.append(f"paused {since}, {status.pause.text}; `tidemark ctl task resume` ends that")
    if status.statement is not None:
        lines.append(f"a statement of DDL runs, or was interrupted: {status.statement}")
    if status.released_us is not None:
        waits = "unknown" if status.blocked_by is None else status.blocked_by
        lines.append(f"order: global, applied up to {_age(status.released_us, status.read_ms)}; waits next for: {waits}")
    if status.plan is not None:
        plan = status.plan
        lines.append(f"{plan.workers} workers apply a batch: {plan.done:,} of {plan.rows:,} rows are applied")
    if status.kafka_problem is not None:
        lines.append(f"Kafka: {status.kafka_problem}")
    rows = [("source", "position", "behind", "commit records", "kept for", "loading")]
    for one in status.sources:
        named = ", ".join(one.loading[:_NAMED]) + (f" and {len(one.loading) - _NAMED} more" if len(one.loading) > _NAMED else "")
        behind = duration(one.behind_s)
        kept = "unlimited" if one.is_kept else duration(one.head_room_s, 0)
        rows.append((one.name, one.position or "not begun", behind, count(one.behind_commits, "unknown"), kept, named or "-"))
    return "\n".join([*lines, *aligned(rows)])


def _standing(status: TaskStatus) -> str:
    """Return the state, and the process for which it was noted."""
    phase, seen = status.phase, "" if status.seen_s is None else f"seen {ago(status.seen_s * 1000)}"
    if phase is TaskPhase.UNKNOWN:
        return "whether a process runs is unknown"
    if phase is TaskPhase.STOPPED:
        return f"stopped {ago((status.seen_s or 0.0) * 1000)}"
    if phase is TaskPhase.SILENT:
        return f"silent: {status.process}, {seen}: it was killed, hangs, or applies something that takes long"
    return f"{phase.value}: {status.process}, {seen}" if status.process else phase.value
