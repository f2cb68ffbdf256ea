"""An action of a group of verbs: `tidemark <group> <action>`. A group is a module with `HELP` and `ACTIONS`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """What a module of `tidemark.commands` is for a verb: a help, its arguments, and what it does, which returns the exit code."""

    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    has_settings: bool = True
    """Whether it reads the file of settings, and so has `--config`."""


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--output`, which everything has that prints facts."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help="form of what is printed")


def nothing_more(_parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""
