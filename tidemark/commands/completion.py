"""`tidemark completion`: the script with which a shell completes verbs, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

HELP: Final = "print the script with which a shell completes this command: bash, zsh or tcsh"
_HOW: Final = {
    "bash": "tidemark completion bash > ~/.local/share/bash-completion/completions/tidemark",
    "zsh": "tidemark completion zsh > ~/.zfunc/_tidemark, with fpath+=~/.zfunc before compinit",
    "tcsh": "tidemark completion tcsh > ~/.tidemark.tcsh, and source it",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=tuple(_HOW), help="; ".join(_HOW.values()))


def execute(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    root: argparse.ArgumentParser = arguments.root
    for action in _actions(root):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(root, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of all parsers below it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield action
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from _actions(below)
