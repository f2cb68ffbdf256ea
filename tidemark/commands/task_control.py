"""`tidemark ctl task`: the state of a task, kept at its target, is shown, and the task is paused and resumed there."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from schemas.errors import ConfigError
from schemas.json_codec import encode
from schemas.readable import ago
from tidemark.commands.action import add_output, emit, operator_name
from tidemark.commands.group_text import replication_text
from tidemark.process import config
from tidemark.status.replication_status import ReplicationStatus

if TYPE_CHECKING:
    import argparse

    from schemas.paused_task import TaskPause

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
        from tidemark.api.replication_reader import read_replication

        return show(arguments, ReplicationStatus((), read_replication([settings]).tasks))
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


def show(arguments: argparse.Namespace, status: ReplicationStatus) -> int:
    """Print the status of groups and tasks; 1 if something does not answer: it is shown as unknown."""
    emit(arguments, encode(status), replication_text(status))
    return 0 if status.is_known else 1


def _text(before: TaskPause | None, after: TaskPause | None) -> str:
    if after is not None:
        state = "is paused" if after.is_effective else "is to pause behind its present batch"
        return f"{state}, since {ago(time.time() * 1000 - after.at_ms)}, {after.text}"
    return "is not paused" if before is None else f"is resumed; it was paused {before.text}"
