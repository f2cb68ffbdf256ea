"""`tidemark ctl`: the sources and readers of a group are listed, paused, resumed, closed, or put offline; tasks are paused, too."""

from __future__ import annotations

import argparse
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError
from schemas.json_codec import encode
from schemas.signals import CLOSE_SOURCE, PAUSE_SOURCE, RESUME_SOURCE
from tidemark.api import sending
from tidemark.commands import numbers, signal, task_control
from tidemark.commands.action import Action, add_output, emit, operator_name
from tidemark.commands.group_text import members_text
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.settings import Settings
    from tidemark.api.group_members import Operator
    from tidemark.status.group_status import GroupStatus

HELP: Final = "list, pause, resume and close the sources of a group (order.group), put members offline, pause and resume tasks"
_SIGNALS: Final = {"pause": PAUSE_SOURCE, "resume": RESUME_SOURCE, "close": CLOSE_SOURCE}


def _configure_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("do", choices=("list", *_SIGNALS, "offline"), help="the action")
    parser.add_argument("name", nargs="?", metavar="SOURCE", help="name of the source (default: the one of the settings)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="offline: needed, since the producer of the source may run: it publishes nothing more, and ends",
    )
    _add_reason(parser)
    parser.add_argument(
        "--wait",
        type=numbers.seconds,
        default=signal.ANSWER_S,
        metavar="SECONDS",
        help="pause, resume, close: how long to wait for the answer of the producer (default: %(default)g)",
    )
    add_output(parser)


def _configure_reader(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("do", choices=("list", "offline"), help="the action")
    parser.add_argument("name", nargs="?", metavar="READER", help="offline: name of the reader, which is the one of its task")
    _add_reason(parser)
    add_output(parser)


def _add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="offline: why, for those who ask later; needed")


def _source(arguments: argparse.Namespace) -> int:
    """List the sources, or change one; 1 if its producer refuses, or does not answer."""
    settings, do = config.load(arguments.config), arguments.do
    _require_fitting(arguments, forced=arguments.force)
    if do == "offline" and not arguments.force:
        raise ConfigError(
            "--force: is missing. A source whose producer runs leaves in order by `tidemark ctl source close`; offline --force "
            "--reason TEXT ends its producer where it is"
        )
    from tidemark.api.group_members import GroupMembers

    group, name = GroupMembers.of(settings), arguments.name or settings.name
    if do == "list":
        status = group.status()
        return _list(arguments, status, "source", status.sources)
    if do == "offline":
        end = group.put_source_offline(name, _operator(arguments))
        emit(arguments, {"source": name, "end": end}, f"{name}: offline; its commit records end at {end}")
        return 0
    group.source(name)
    return _ask(arguments, replace(settings, name=name))


def _reader(arguments: argparse.Namespace) -> int:
    """List the readers, or put one offline."""
    settings = config.load(arguments.config)
    _require_fitting(arguments, forced=False)
    if arguments.do == "offline" and arguments.name is None:
        raise ConfigError("READER: is missing; `tidemark ctl reader list` names the readers of the group")
    from tidemark.api.group_members import GroupMembers

    group = GroupMembers.of(settings)
    if arguments.do == "list":
        status = group.status()
        return _list(arguments, status, "reader", status.readers)
    group.put_reader_offline(arguments.name, _operator(arguments))
    emit(arguments, {"reader": arguments.name}, f"{arguments.name}: offline; sources that join do not wait for it")
    return 0


def _require_fitting(arguments: argparse.Namespace, *, forced: bool) -> None:
    """Refuse arguments that the action would leave unused, and an `offline` without a reason."""
    if arguments.do == "list" and arguments.name is not None:
        raise ConfigError(f"{arguments.name}: does not go with list, which has all members of the group")
    if arguments.do != "offline" and (forced or arguments.reason is not None):
        raise ConfigError(f"--{'force' if forced else 'reason'}: goes with offline only, not with {arguments.do}")
    if arguments.do == "offline" and not (arguments.reason or "").strip():
        raise ConfigError("--reason: is missing; say why, for those who ask later")


def _operator(arguments: argparse.Namespace) -> Operator:
    from tidemark.api.group_members import Operator

    return Operator(operator_name(), arguments.reason)


def _ask(arguments: argparse.Namespace, settings: Settings) -> int:
    """Send the signal by Kafka, which a paused producer reads, and print the answer."""
    from tidemark.api.notification_reader import NotificationReader

    signal_id = f"cli-{secrets.token_hex(6)}"
    with NotificationReader(settings) as reader:
        sending.produce(settings, signal_id, _SIGNALS[arguments.do], None)
        answer = reader.answer(signal_id, time.monotonic() + arguments.wait)
    return signal.report_answer(arguments, signal_id, answer, arguments.wait)


def _configure_status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tasks", nargs="*", metavar="FILE", help="YAML files of tasks; their groups are shown (default: the group of --config)"
    )
    add_output(parser)


def _status(arguments: argparse.Namespace) -> int:
    """Show the members of groups, and tasks; 1 if something does not answer: it is shown as unknown."""
    from tidemark.api.group_members import GroupMembers
    from tidemark.api.replication_reader import read_replication

    if arguments.tasks:
        return task_control.show(arguments, read_replication([config.load_task(file) for file in arguments.tasks]))
    settings = config.load(arguments.config)
    GroupMembers.group_of(settings)
    return task_control.show(arguments, read_replication((), settings))


def _list(arguments: argparse.Namespace, status: GroupStatus, kind: str, members: Sequence[Any]) -> int:
    """Print the members of a kind; 0, also for an empty list."""
    document = {"read_ms": status.read_ms, "group": status.group, f"{kind}s": [encode(one) for one in members]}
    emit(arguments, document, members_text(status, kind, members))
    return 0


ACTIONS: Final[dict[str, Action]] = {
    "source": Action("list the sources of the group; pause, resume or close one, or put it offline", _configure_source, _source),
    "reader": Action("list the readers of the group, or put one offline", _configure_reader, _reader),
    "status": Action("show the members of a group, and tasks", _configure_status, _status),
    "task": Action("show, pause or resume a task", task_control.configure, task_control.execute, has_settings=False),
}
