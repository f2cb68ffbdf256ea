"""`tidemark completion`: the script with which a shell completes verbs, options and their values."""

from __future__ import annotations

import argparse
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
    import shtab

    root: argparse.ArgumentParser = arguments.root
    for action in actions_of(root):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(root, arguments.shell))
    return 0
