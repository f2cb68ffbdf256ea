"""An action of a group of verbs: `tidemark <group> <action>`. A group is a module with `HELP` and `ACTIONS`."""

from __future__ import annotations

import argparse
import getpass
import json
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.process import config

if TYPE_CHECKING:
    from schemas.settings import Settings, TaskSettings


@dataclass(frozen=True, slots=True)
class Action:
    """What a module of `tidemark.commands` is for a verb: a help, its arguments, and what it does, which returns the exit code."""

    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    has_settings: bool = True
    """Whether it reads the file of settings, and so has `--config`."""


def add_output(parser: argparse.ArgumentParser, text: str = "form of what is printed") -> None:
    """Add `--output`, which every verb has that prints facts."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help=text)


def add_sink(parser: argparse.ArgumentParser, text: str = "only this sink (default: each)") -> None:
    """Add `--sink`."""
    parser.add_argument("--sink", metavar="NAME", help=text)


def add_tables(parser: argparse.ArgumentParser) -> None:
    """Add `TABLE ...`, the tables that are meant, all by default."""
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="only these: regular expressions on database.table")


def add_tasks(parser: argparse.ArgumentParser) -> None:
    """Add `--task`, which may be given several times."""
    text = "YAML file of a task that is shown, too; may be given several times"
    parser.add_argument("--task", dest="tasks", action="append", default=[], metavar="FILE", help=text)


def tasks_of(arguments: argparse.Namespace) -> list[TaskSettings]:
    """Return the settings of the tasks that are asked for."""
    return [config.load_task(file) for file in arguments.tasks]


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings of the file, with the sink alone that is asked for."""
    settings = config.load(arguments.config)
    return settings if arguments.sink is None else settings.of_sink(arguments.sink)


def json_text(document: object, indent: int | None = None, default: Callable[[Any], str] | None = None) -> str:
    """Return a document as JSON for standard output: if that cannot have its characters, those beyond ASCII are escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=indent, default=default)
    encoding = (sys.stdout.encoding or "").lower()
    try:
        is_printable = encoding.replace("-", "") == "utf8" and bool(text.encode(encoding))
    except UnicodeEncodeError:  # half of a pair of surrogates, as in a file's name that is no UTF-8
        is_printable = False
    return text if is_printable else json.dumps(document, indent=indent, default=default)


def emit(arguments: argparse.Namespace, document: object, text: str, indent: int | None = None) -> None:
    """Print the document as JSON, on one line without `indent`, or the text."""
    print(json_text(document, indent) if arguments.output == "json" else text)


def operator_name() -> str:
    """Return who gives the command, for records of it."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def nothing_more(_parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of all parsers below it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield action
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from actions_of(below)
