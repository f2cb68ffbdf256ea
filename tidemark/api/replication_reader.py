"""Groups and tasks as Kafka and the targets report them: read once, or again and again in threads."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from tidemark.api.group_members import GroupMembers
from tidemark.api.status_watch import StatusWatch
from tidemark.status.group_status import GroupStatus
from tidemark.status.replication_status import ReplicationStatus
from tidemark.status.task_status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.settings import KafkaSettings, Settings
    from schemas.settings.task_section import TaskSettings

EVERY_S: Final = 5.0
BELIEVED_S: Final = 15.0
"""Statuses that are older say nothing of now."""
_SILENT: Final = f"no answer in the last {BELIEVED_S:.0f} s"


def groups_of(tasks: Sequence[TaskSettings], settings: Settings | None = None) -> dict[str, KafkaSettings]:
    """Return the groups of a source and of tasks, with the settings of their Kafka."""
    groups = {one.group: one.kafka for one in tasks if one.group is not None}
    if settings is not None and settings.order.group is not None:
        groups[settings.order.group] = settings.kafka
    return groups


def read_replication(tasks: Sequence[TaskSettings], settings: Settings | None = None) -> ReplicationStatus:
    """Return the status of tasks, of their groups and of the group of a source, if it has one."""
    groups = {name: GroupMembers.read_status(kafka, name) for name, kafka in groups_of(tasks, settings).items()}
    return ReplicationStatus(tuple(groups.values()), tuple(_read_task(one, groups.get(one.group or "")) for one in tasks))


def _read_task(settings: TaskSettings, group: GroupStatus | None) -> TaskStatus:
    from tidemark.api.task_reader import read_task  # takes seconds, and needs the client of the target

    return read_task(settings, group)


class ReplicationWatch:
    """The status of groups and tasks as of some seconds ago, while entered. What does not answer keeps nobody from the rest."""

    def __init__(self, tasks: Sequence[TaskSettings], settings: Settings | None = None) -> None:
        self._groups: Mapping[str, StatusWatch[GroupStatus]] = {
            name: StatusWatch(partial(GroupMembers.read_status, kafka, name), EVERY_S, BELIEVED_S)
            for name, kafka in groups_of(tasks, settings).items()
        }
        self._tasks = [(one, StatusWatch(partial(self._read, one), EVERY_S, BELIEVED_S)) for one in tasks]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for group in self._groups.values():
            self._stack.enter_context(group)
        for _, task in self._tasks:
            self._stack.enter_context(task)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def latest(self) -> ReplicationStatus:
        """The status; a group or a task that was not read lately is unknown."""
        now_ms = time.time_ns() // 1_000_000
        groups = [
            watch.latest or GroupStatus(read_ms=now_ms, group=name, problem=watch.trouble or _SILENT)
            for name, watch in self._groups.items()
        ]
        tasks = [watch.latest or TaskStatus.unknown(one, now_ms, watch.trouble or _SILENT) for one, watch in self._tasks]
        return ReplicationStatus(tuple(groups), tuple(tasks))

    def _read(self, settings: TaskSettings) -> TaskStatus:
        watch = self._groups.get(settings.group or "")
        return _read_task(settings, None if watch is None else watch.latest)
