"""`tidemark task`: the changes of a source, applied to the tables of another server."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from schemas.json_codec import encode
from tidemark.api.health import HealthServer
from tidemark.api.merge_metrics import handler_of
from tidemark.api.status_watch import StatusWatch
from tidemark.api.task_metrics import task_metrics
from tidemark.commands.action import Action, add_output, emit
from tidemark.commands.doctor import as_text
from tidemark.process import config
from tidemark.process.shutdown import stop_on_signals
from tidemark.runtime import java_home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.settings.task_section import TaskSettings
    from spark_jobs.jobs.runner import Runner
    from tidemark.status.task_status import TaskStatus

HELP: Final = "apply the changes of a source to the tables of another server"
_OBJECTS: Final = 100_000
_COLLECTIONS: Final = 50
"""Rows that wait are many objects without cycles. To look for cycles after each 700 took a quarter of the CPU of a task."""
_WATCH_S: Final = 30.0
_WAITS: Final = "it is starting, or waits to take over from another process of the task"


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="FILE", help="YAML file of the task; TIDEMARK_* variables win over it")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="be one of several processes of this task, all started so: one runs, the others take over when it ends or dies",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--until-caught-up", action="store_true", help="end when the changes that Kafka holds now are applied")
    end.add_argument(
        "--finish",
        action="store_true",
        help="the sources are lost: apply the changes that Kafka holds, up to the last whole transaction of each source, and end",
    )


def _endpoint(settings: TaskSettings, runners: Sequence[Runner[Any]], watch: StatusWatch[TaskStatus]) -> HealthServer:
    """Return the endpoint; `runners` has the one of the task while it leads."""

    def not_ready() -> str | None:
        return runners[0].not_ready if runners else _WAITS

    def metrics() -> str:
        attempt = runners[0].attempt if runners else None
        if attempt is None:
            return task_metrics(None, not_ready(), watch.latest)
        return task_metrics(attempt.figures, not_ready(), watch.latest, is_paused=attempt.pause is not None)

    return HealthServer("service.port", settings.service.host, settings.service.port, not_ready, handler_of(metrics))


def _status(settings: TaskSettings) -> TaskStatus:
    from tidemark.api.task_reader import (
        read_task,  # takes seconds, which the start of the endpoint does not wait for
    )

    return read_task(settings)


def _run(arguments: argparse.Namespace) -> int:
    """Apply changes until SIGTERM or SIGINT, or until caught up or finished; exit code 0. With 1 it is not finished."""
    settings = config.load_task(arguments.task)
    stop = threading.Event()
    runners: list[Runner[Any]] = []
    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(stop))
        if settings.service.port:
            watch = StatusWatch(partial(_status, settings), _WATCH_S, 3 * _WATCH_S, first_s=_WATCH_S)
            stack.enter_context(watch)
            stack.enter_context(_endpoint(settings, runners, watch))
        from spark_jobs.replicate.task import (
            run_task,  # takes seconds, in which a signal is an orderly end, too
        )

        gc.set_threshold(_OBJECTS, _COLLECTIONS, _COLLECTIONS)
        if settings.apply.executor_rows:
            config.forget_secrets()  # the JVM inherits the environment
            os.environ.setdefault("JAVA_HOME", str(java_home(17)))

        def lead(term: threading.Event) -> None:
            try:
                finish = lines.append if arguments.finish else None
                run_task(settings, term, until_caught_up=arguments.until_caught_up, finish=finish, watch=runners.append)
            finally:
                runners.clear()

        if arguments.standby:
            from tidemark.process.leadership import Leadership, run_when_leading

            run_when_leading(Leadership.of_task(settings, stop), lead)
        else:
            lead(stop)
    if arguments.finish and not lines:
        print("not finished: the task was stopped before", file=sys.stderr)
        return 1
    for line in lines:
        print(line)
    return 0


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="FILE", help="YAML file of the task")
    add_output(parser)


def _check(arguments: argparse.Namespace) -> int:
    """Print the findings about a task; 1 if one is an error."""
    settings = config.load_task(arguments.task)
    from tidemark.doctor.task_checks import examine_task

    examination = examine_task(settings)
    emit(arguments, encode(examination), as_text(examination), indent=2)
    return 1 if examination.has_errors else 0


ACTIONS: Final[dict[str, Action]] = {
    "check": Action("list the errors in the set-up of a task, each with a fix", _configure_check, _check, has_settings=False),
    "run": Action("apply the changes of the task's source until stopped", _configure_run, _run, has_settings=False),
}
