"""`tidemark ctl`: the sources and readers of a group are listed, paused, resumed, closed, or put offline; tasks are paused, too."""

from __future__ import annotations

import argparse
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError
from schemas.members import ReaderPhase, SourcePhase
from schemas.readable import ago, aligned
from schemas.signals import CLOSE_SOURCE, PAUSE_SOURCE, RESUME_SOURCE
from tidemark.api import sending
from tidemark.commands import numbers, signal, task_control
from tidemark.commands.action import Action, add_output, emit, operator_name
from tidemark.process import config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.commit_records import CommitRecord
    from schemas.members import MemberReader, Members, MemberSource
    from schemas.settings import Settings
    from tidemark.api.group_members import GroupMembers, Operator

HELP: Final = "list, pause, resume and close the sources of a group (order.group), put members offline, pause and resume tasks"
_SIGNALS: Final = {"pause": PAUSE_SOURCE, "resume": RESUME_SOURCE, "close": CLOSE_SOURCE}
_HEADS: Final = {
    "source": ("source", "state", "number", "end", "promise", "waits for", "offline"),
    "reader": ("reader", "state", "sources", "frontier", "blocks", "offline"),
}


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

    group, name = GroupMembers(settings), arguments.name or settings.name
    if do == "list":
        return _list(arguments, group, "source", _sources(group))
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

    group = GroupMembers(settings)
    if arguments.do == "list":
        return _list(arguments, group, "reader", _readers(group.read()))
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


# ---- lists


def _sources(group: GroupMembers) -> list[dict[str, Any]]:
    members = group.read()
    return [_source_document(members, one, group.last_record(one.name)) for _, one in sorted(members.sources.items())]


def _source_document(members: Members, one: MemberSource, last: CommitRecord | None) -> dict[str, Any]:
    is_joining = one.state is SourcePhase.JOINING
    readers = members.missing(one) if is_joining else members.undrained(one) if one.is_closed else ()
    return {
        "source": one.name,
        "state": one.state.value,
        "number": one.number,
        "join": one.join,
        "first": one.record.first,
        "end": one.record.end,
        "promise_us": None if last is None else last.promise_us,
        "waits_for": list(readers),
        "by": one.record.by or None,
        "reason": one.record.reason or None,
    }


def _readers(members: Members) -> list[dict[str, Any]]:
    return [_reader_document(members, one) for _, one in sorted(members.readers.items())]


def _reader_document(members: Members, one: MemberReader) -> dict[str, Any]:
    joining = [source for source in members.sources.values() if source.state is SourcePhase.JOINING and not source.is_void]
    is_stopped = one.record.state is ReaderPhase.STOPPED
    return {
        "reader": one.name,
        "state": one.record.state.value,
        "epoch": one.epoch,
        "sources": sorted(one.record.sources),
        "frontier_us": one.record.frontier.us if is_stopped else None,
        "blocks": sorted(source.name for source in joining if one.name in members.missing(source)),
        "by": one.record.by or None,
        "reason": one.record.reason or None,
    }


def _list(arguments: argparse.Namespace, group: GroupMembers, kind: str, members: list[dict[str, Any]]) -> int:
    """Print the members; 0, also for an empty list."""
    now_ms = time.time_ns() // 1_000_000
    line = _source_line if kind == "source" else _reader_line
    rows = [(*line(one, now_ms), "" if one["by"] is None else f"by {one['by']}: {one['reason']}") for one in members]
    text = "\n".join(aligned([_HEADS[kind], *rows])) if rows else f"group {group.group} has no {kind}"
    emit(arguments, {"read_ms": now_ms, "group": group.group, f"{kind}s": members}, text)
    return 0


def _source_line(one: Mapping[str, Any], now_ms: int) -> tuple[str, ...]:
    end = "-" if one["end"] is None else str(one["end"])
    waits_for = ", ".join(one["waits_for"]) or "-"
    return one["source"], one["state"], str(one["number"]), end, _age(one["promise_us"], now_ms), waits_for


def _reader_line(one: Mapping[str, Any], now_ms: int) -> tuple[str, ...]:
    blocks = ", ".join(one["blocks"]) or "-"
    return one["reader"], one["state"], ", ".join(one["sources"]), _age(one["frontier_us"], now_ms), blocks


def _age(us: int | None, now_ms: int) -> str:
    return "unknown" if us is None else ago(now_ms - us / 1000)


ACTIONS: Final[dict[str, Action]] = {
    "source": Action("list the sources of the group; pause, resume or close one, or put it offline", _configure_source, _source),
    "reader": Action("list the readers of the group, or put one offline", _configure_reader, _reader),
    "task": Action("show, pause or resume a task", task_control.configure, task_control.execute, has_settings=False),
}
