"""Groups and tasks at one moment, as one tree: text, JSON and page are made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.status.group_status import ALARMING_SKEW_US, GroupStatus
from tidemark.status.job_standing import JobState
from tidemark.status.task_status import TaskPhase, TaskStatus

_ASK: Final = "`tidemark ctl status` asks again, and `tidemark task check` names errors in the set-up"


class Concern(NamedTuple):
    """Something that needs attention, and what to do. `is_unknown`: it is not known whether all is well."""

    text: str
    advice: str
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The groups, and the tasks that read them or single sources."""

    groups: tuple[GroupStatus, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether each group and task was read."""
        return all(one.problem is None for one in self.groups) and all(one.problem is None for one in self.tasks)

    def concerns(self) -> Iterator[Concern]:
        """Yield everything that needs attention."""
        for group in self.groups:
            yield from _of_group(group)
        for task in self.tasks:
            yield from _of_task(task)


NOTHING_REPLICATED: Final = ReplicationStatus()


def _of_group(group: GroupStatus) -> Iterator[Concern]:
    if group.problem is not None:
        yield Concern(f"group {group.group}: unknown: {group.problem}", _ASK, is_unknown=True)
    for source in group.sources:
        name = f"group {group.group}: source {source.name}"
        if source.skew_us is not None and abs(source.skew_us) > ALARMING_SKEW_US:
            direction = "ahead of" if source.skew_us > 0 else "behind"
            seconds = abs(source.skew_us) / 1_000_000
            text = f"{name}: the clock of its server is {seconds:,.1f} s {direction} the clock of its producer"
            yield Concern(text, "Synchronise both clocks (NTP): `docs/alerts.md`, TidemarkClockSkew")
        if source.is_waited_for and source.producer in (JobState.SILENT, JobState.NOT_RUNNING):
            text = f"{name}: readers wait for it, and its producer is {source.producer.value.replace('_', ' ')}"
            yield Concern(text, "Start its producer: `tidemark run`. If the source is lost, put it offline: `docs/group.md`")
        if source.waits_for:
            advice = "Start these readers, or put them offline if they are lost: `docs/group.md`"
            yield Concern(f"{name}: it is {source.state.value}, and waits for {', '.join(source.waits_for)}", advice)


def _of_task(task: TaskStatus) -> Iterator[Concern]:
    name = f"task {task.task}"
    if task.problem is not None:
        yield Concern(f"{name}: unknown: {task.problem}", _ASK, is_unknown=True)
    if task.pause is not None:
        mend = "Mend the cause, then" if task.pause.cause else "To continue:"
        yield Concern(f"{name}: paused {task.pause.text}", f"{mend} `tidemark ctl task resume`")
    if task.phase in (TaskPhase.STOPPED, TaskPhase.SILENT):
        advice = "Start the task: `tidemark task run`. It continues at its state in the target"
        yield Concern(f"{name}: its process is {task.phase.value}", advice)
    if task.kafka_problem is not None:
        yield Concern(f"{name}: how far it is behind is unknown: {task.kafka_problem}", _ASK, is_unknown=True)
