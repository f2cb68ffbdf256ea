"""Numbers on the command line: each function takes a text, and refuses one that no option of its kind can have."""

from __future__ import annotations

import argparse
from typing import Final

_LARGEST_PORT: Final = 65_535


def port(text: str) -> int:
    """Return the number of a TCP port."""
    if not text.isdecimal() or int(text) > _LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a TCP port: a number from 0 to {_LARGEST_PORT}")
    return int(text)


def count(text: str) -> int:
    """Return a whole number of 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    number = _number(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def seconds_above_0(text: str) -> float:
    """Return a number of seconds above 0."""
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
