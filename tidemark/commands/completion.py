"""`tidemark completion`: the script with which a shell completes verbs, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from tidemark.commands.action import actions_of

HELP: Final = "print the script with which a shell completes this command: bash, zsh, fish or tcsh"
_HOW: Final = {
    "bash": "tidemark completion bash > ~/.local/share/bash-completion/completions/tidemark",
    "zsh": "tidemark completion zsh > ~/.zfunc/_tidemark, with fpath+=~/.zfunc before compinit",
    "fish": "tidemark completion fish > ~/.config/fish/completions/tidemark.fish",
    "tcsh": "tidemark completion tcsh > ~/.tidemark.tcsh, and source it",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=tuple(_HOW), help="; ".join(_HOW.values()))


def execute(arguments: argparse.Namespace) -> int:
    """Print the script."""
    root: argparse.ArgumentParser = arguments.root
    if arguments.shell == "fish":
        print("\n".join(fish_lines(root)))
        return 0
    import shtab

    for action in actions_of(root):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(root, arguments.shell))
    return 0


def fish_lines(root: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the commands that give fish the verbs, their actions, options and values."""
    yield f"complete -c {root.prog} -f"
    yield from _fish_parser(root, root.prog, ())


def _fish_parser(parser: argparse.ArgumentParser, prog: str, words: tuple[str, ...]) -> Iterator[str]:
    """Yield what can follow these words."""
    below = [action for action in parser._actions if isinstance(action.choices, dict)]  # noqa: SLF001 - no public list
    seen = [f"__fish_seen_subcommand_from {word}" for word in words]
    names = [name for action in below for name in action.choices or ()]
    without = "__fish_use_subcommand" if not words else f"not __fish_seen_subcommand_from {' '.join(names)}"
    for action in parser._actions:  # noqa: SLF001 - as above
        if isinstance(action.choices, dict):
            helps = {one.dest: one.help or "" for one in action._choices_actions}  # type: ignore[attr-defined]  # noqa: SLF001
            for name, parser_below in action.choices.items():
                yield _fish(prog, [*seen, without], f"-a {name}", helps.get(name, ""))
                yield from _fish_parser(parser_below, prog, (*words, name))
            continue
        flags = "".join(f" -l {one[2:]}" if one.startswith("--") else f" -s {one[1:]}" for one in action.option_strings)
        value = ""
        if action.choices:
            value = f"{' -x' if flags else ''} -a '{' '.join(map(str, action.choices))}'"
        elif action.nargs != 0 and flags:
            value = " -r -F" if action.metavar in ("FILE", "DIR") else " -x"
        if flags or value:
            yield _fish(prog, seen, f"{flags}{value}".strip(), action.help or "")


def _fish(prog: str, conditions: list[str], what: str, text: str) -> str:
    condition = f" -n '{'; and '.join(conditions)}'" if conditions else ""
    shown = text.replace("%(default)s", "").replace("\\", "").replace("'", "\\'").replace("%%", "%")
    return f"complete -c {prog}{condition} {what}" + (f" -d '{shown}'" if shown else "")
