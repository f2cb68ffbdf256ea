"""`tidemark config`: check the file of settings, look a setting up, print the JSON Schema of the file."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Final

from schemas.settings import Described, Settings, TaskSettings, describe, json_schema
from tidemark.commands.action import Action, add_output, emit, json_text
from tidemark.process import config

HELP: Final = "check the file of settings, look up what a setting means, print the JSON Schema of the file"


def _validate(arguments: argparse.Namespace) -> int:
    """Name everything that is wrong with the file and the environment: 2 where something is. No server is asked."""
    problems = config.problems_of_file(arguments.config) or _refused_options(config.load(arguments.config))
    text = "\n".join(problems) or f"{arguments.config}: valid; `tidemark doctor` asks the servers"
    emit(arguments, {"file": arguments.config, "valid": not problems, "problems": list(problems)}, text)
    return 2 if problems else 0


def _refused_options(settings: Settings) -> tuple[str, ...]:
    """Return what librdkafka says of `kafka.options`, where it is installed; nothing is connected to."""
    if not settings.kafka.options:
        return ()
    try:
        from kafkaio.client import refused_options
    except ModuleNotFoundError:
        return ()
    return tuple(f"kafka.options.{name}: {reason}" for name, reason in refused_options(settings.kafka.options))


def _configure_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task", dest="tree", action="store_const", const=TaskSettings, default=Settings, help="of a file for `tidemark task run`"
    )


def _configure_reference(parser: argparse.ArgumentParser) -> None:
    _configure_schema(parser)
    parser.add_argument("keys", nargs="*", metavar="KEY", help="only keys that contain this text, for example source.tables")
    add_output(parser)


def _reference(arguments: argparse.Namespace) -> int:
    """Print the settings; 1 where a text is in no key."""
    texts = [key.lower() for key in arguments.keys] or [""]
    described = [one for one in describe(arguments.tree) if any(text in one.path for text in texts)]
    none = f"no key contains {' or '.join(map(repr, arguments.keys))}; `tidemark config reference` prints all"
    emit(arguments, [asdict(one) for one in described], "\n\n".join(map(_text, described)) or none)
    return 0 if described else 1


def _text(one: Described) -> str:
    default = "required" if one.default == "required" else f"default {one.default.strip('`')}"
    kind = one.type.replace("\\|", "|").replace("`", "")
    variable = f"TIDEMARK_{one.path.replace('[]', '.0').replace('.', '__').upper()}"
    return f"{one.path}  ({kind}, {default})\n    {one.help}\n    {variable}"


def _schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema, for an editor."""
    print(json_text(json_schema(arguments.tree), indent=2))
    return 0


ACTIONS: Final[dict[str, Action]] = {
    "validate": Action("name everything that is wrong with the file and the environment; asks no server", add_output, _validate),
    "reference": Action(
        "print what each setting is, with its default and its variable", _configure_reference, _reference, has_settings=False
    ),
    "schema": Action("print the JSON Schema of the file, for an editor", _configure_schema, _schema, has_settings=False),
}
