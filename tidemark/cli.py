"""The command line: one verb, its arguments, one exit code.

Exit codes: 0 done · 1 failed, or a difference was found · 2 wrong usage or configuration · 130 interrupted.
What a command has to say goes to standard output, as text or JSON; logs and errors go to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import faulthandler
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Final, NoReturn

from schemas.errors import ConfigError, TidemarkError
from schemas.overriding import override
from tidemark.commands.action import Action, actions_of
from tidemark.process import config, logs, shutdown
from tidemark.process.versions import DISTRIBUTION, version_of

_INVALID_CHOICE: Final = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
_UNKNOWN_OPTION: Final = re.compile(r"unrecognized arguments: (--[\w-]+)(?:[= ].*)?")
OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2


VERBS: Final = (
    "run", "merge", "plan", "signal", "reload", "verify", "status", "page", "lag", "tail", "quarantine", "rebuild", "repair",
    "doctor", "demo", "import-debezium", "import-flink-cdc", "tables", "init", "version", "completion", "up", "replay",
)  # fmt: skip
GROUPS: Final = ("snapshot", "schema", "offsets", "config", "task", "ctl")
"""Verbs with actions of their own, each a module with `HELP` and `ACTIONS`."""
_MODULES: Final[Mapping[str, str]] = {
    "tables": "table_list", "version": "installed_parts", "snapshot": "snapshot_actions", "schema": "schema_versions",
    "offsets": "committed_offset", "config": "configuration", "task": "replication_task", "ctl": "group_control",
}  # fmt: skip
"""The modules that have another name than their verbs."""


def module_of(verb: str) -> ModuleType:
    """Return the module of a verb, imported now: all of them take longer than the work of most verbs."""
    return import_module(f"{__package__}.commands.{_MODULES.get(verb, verb.replace('-', '_'))}")


_OF_ALL_VERBS: Final = ("completion",)
"""Verbs that read the parser of the whole command."""
_WITHOUT_SETTINGS: Final = ("demo", "replay", "import-debezium", "import-flink-cdc", "init", "version", "completion")


class CommandParser(argparse.ArgumentParser):
    """A parser that names the nearest word for one that it does not know; the parsers of verbs are of this class, too."""

    @override
    def error(self, message: str) -> NoReturn:
        choice = _INVALID_CHOICE.search(message)
        if choice is not None:
            known = [one.strip().strip("'\"") for one in choice[2].split(",")]
            super().error(f"{message[: choice.start()]}there is no {choice[1]!r}; {_nearest(choice[1], known)}")
        unknown = _UNKNOWN_OPTION.fullmatch(message)
        if unknown is not None:
            options = {option for action in actions_of(self) for option in action.option_strings if option.startswith("--")}
            super().error(f"{message}; {_nearest(unknown[1], sorted(options))}")
        super().error(message)


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; errors of ours are one line on standard error.

    Without `argv` it is the process's command: then it ends within five seconds of SIGTERM and SIGINT (`shutdown`).
    """
    arguments = parser(_verb_of(sys.argv[1:] if argv is None else argv)).parse_args(argv)
    logs.configure(level=arguments.log_level, form=arguments.log_format)
    if argv is None and sys.stderr is not None:
        faulthandler.enable()  # a crash in native code leaves the stacks of Python in the log
    if argv is None and arguments.verb != "demo":  # a process of its own; the demo ends its servers itself
        shutdown.guard_process()
    return shutdown.leave(_executed(arguments))


def _executed(arguments: argparse.Namespace) -> int:
    """Return the exit code of the verb."""
    try:
        code = _command(arguments)(arguments)
    except ConfigError as error:
        return _failed(error, USAGE)
    except TidemarkError as error:
        return _failed(error, FAILED)
    except ModuleNotFoundError as error:
        return _not_installed(error, arguments.verb)
    except KeyboardInterrupt:
        return shutdown.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): no news to anyone, and no second error at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _command(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """Return what the verb, or the action of a group, does."""
    if arguments.verb in GROUPS:
        action: Action = module_of(arguments.verb).ACTIONS[arguments.action]
        return action.execute
    execute: Callable[[argparse.Namespace], int] = module_of(arguments.verb).execute
    return execute


def _verb_of(argv: Sequence[str]) -> str | None:
    """Return the verb of a command that begins with it and needs no other; None where the parser has to know all."""
    verb = argv[0] if argv else ""
    return verb if verb in {*VERBS, *GROUPS} and verb not in _OF_ALL_VERBS else None


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command, or of the command with one verb alone."""
    root = CommandParser(
        prog="tidemark",
        description="MySQL and MariaDB tables, and every later change, to Kafka and into Delta tables.",
        epilog="exit codes: 0 done; 1 failed, or a difference was found; 2 wrong usage or configuration",
    )
    root.add_argument("--version", action="version", version=f"tidemark {version_of(DISTRIBUTION) or '(not installed)'}")
    verbs = root.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in (one for one in VERBS if only in {None, one}):
        module = module_of(name)
        verb = verbs.add_parser(name, help=module.HELP, description=module.HELP, epilog=root.epilog)
        _add_common(verb, has_settings=name not in _WITHOUT_SETTINGS)
        module.configure(verb)
    for name in (one for one in GROUPS if only in {None, one}):
        module = module_of(name)
        group = verbs.add_parser(name, help=module.HELP, description=module.HELP, epilog=root.epilog)
        actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
        for title, action in module.ACTIONS.items():
            part = actions.add_parser(title, help=action.help, description=action.help, epilog=root.epilog)
            _add_common(part, has_settings=action.has_settings)
            action.configure(part)
    root.set_defaults(root=root)
    return root


def _add_common(verb: argparse.ArgumentParser, *, has_settings: bool) -> None:
    """Add the options that all verbs and actions have, first of all."""
    if has_settings:
        verb.add_argument(
            "--config",
            default=config.DEFAULT_PATH,
            metavar="FILE",
            help="YAML file with the settings (default: %(default)s); TIDEMARK_* variables win over it",
        )
    verb.add_argument(
        "--log-level",
        default="info",
        choices=logs.LEVELS,
        help="least level of the log (default: %(default)s)",
    )
    verb.add_argument(
        "--log-format",
        default="auto",
        choices=logs.FORMS,
        help="auto: text on a terminal, JSON elsewhere",
    )


def _failed(error: TidemarkError, code: int) -> int:
    print(f"tidemark: {error}", file=sys.stderr)
    return code


def _not_installed(error: ModuleNotFoundError, verb: str) -> int:
    extras = dict.fromkeys(("run", "repair", "snapshot", "schema", "offsets", "init"), "producer")
    extra = {**extras, "merge": "spark", "page": "producer,page,verify"}.get(verb, "producer,spark,verify")
    missing = (error.name or "").partition(".")[0]
    if missing in {"kafkaio", "mysqlio", "producer", "rowcodec", "spark_jobs", "schemas", "tidemark"}:
        raise error
    print(f"tidemark: {verb} needs {missing}: pip install 'tidemark-cdc[{extra}]'", file=sys.stderr)
    return USAGE
