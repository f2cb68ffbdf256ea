"""`tidemark ctl task`: the state of a task, kept at its target, is shown, and the task is paused and resumed there."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from schemas.json_codec import encode
from schemas.readable import ago
from tidemark.commands.action import add_output, emit, operator_name
from tidemark.commands.group_text import group_text, task_text
from tidemark.process import config

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from schemas.paused_task import TaskPause
    from schemas.settings.task_section import TaskSettings
    from tidemark.status.group_status import GroupStatus

_ACTIONS: Final = ("show", "pause", "resume")


def configure(parser: argparse.ArgumentParser) -> None:
    """Which task, and the action."""
    parser.add_argument("do", choices=_ACTIONS, help="the action")
    parser.add_argument("task", metavar="FILE", help="YAML file of the task")
    parser.add_argument("--reason", metavar="TEXT", default="", help="pause: why, for those who ask later")
    add_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Show a task, pause it, or resume it, by the record at its target; the process of the task follows within a second."""
    settings = config.load_task(arguments.task)
    if arguments.reason and arguments.do != "pause":
        raise ConfigError(f"--reason: goes with pause only, not with {arguments.do}")
    if arguments.do == "show":
        return show(arguments, [settings])
    from spark_jobs.replicate.destination import target_of
    from spark_jobs.replicate.task_pause import asked_by

    with closing(target_of(settings)) as target:
        target.attach()
        before = target.pause()
        if arguments.do == "pause":
            target.change_pause(asked_by(operator_name(), arguments.reason))
        else:
            target.change_pause(lambda _: None)
        after = target.pause()
    document = {"task": settings.task, "pause": encode(after)}
    emit(arguments, document, f"{settings.task}: {_text(before, after)}")
    return 0


def show(arguments: argparse.Namespace, tasks: Sequence[TaskSettings], groups: Sequence[GroupStatus] = ()) -> int:
    """Print the status of groups and tasks; 1 if something does not answer: it is shown as unknown."""
    from tidemark.api.task_reader import read_task

    statuses = [read_task(one) for one in tasks]
    document = {"groups": [encode(one) for one in groups], "tasks": [encode(one) for one in statuses]}
    emit(arguments, document, "\n\n".join([*map(group_text, groups), *map(task_text, statuses)]))
    problems = [*(one.problem for one in groups), *(one.problem for one in statuses)]
    return 0 if all(one is None for one in problems) else 1


def _text(before: TaskPause | None, after: TaskPause | None) -> str:
    if after is not None:
        state = "is paused" if after.is_effective else "is to pause behind its present batch"
        return f"{state}, since {ago(time.time() * 1000 - after.at_ms)}, {after.text}"
    return "is not paused" if before is None else f"is resumed; it was paused {before.text}"
