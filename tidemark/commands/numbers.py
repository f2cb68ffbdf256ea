"""Numbers on the command line: each function takes a text, and refuses one that no option of its kind can have."""

from __future__ import annotations

import argparse
from typing import Final

_LARGEST_PORT: Final = 65_535


def port(text: str) -> int:
    """Return the number of a TCP port."""
    if not text.isdecimal() or int(text) > _LARGEST_PORT:
        message = f"{text!r} is not a TCP port: a number from 0 to {_LARGEST_PORT}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def count(text: str) -> int:
    """Return a whole number of 1 or more."""
    if not text.isdecimal() or not int(text):
        message = f"{text!r} is not a number of 1 or more"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    found = _number(text)
    if not 0 <= found < float("inf"):
        message = f"{text!r} is not a number of seconds"
        raise argparse.ArgumentTypeError(message)
    return found


def seconds_above_0(text: str) -> float:
    """Return a number of seconds above 0."""
    found = _number(text)
    if not 0 < found < float("inf"):
        message = f"{text} is not a number of seconds above 0"
        raise argparse.ArgumentTypeError(message)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
