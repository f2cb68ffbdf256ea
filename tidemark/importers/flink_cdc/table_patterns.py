r"""Patterns of tables: Flink CDC's enter, regular expressions on `database.table` leave. Pure.

In Flink CDC a dot divides database and table, and `\.` is the dot of regular expressions, any character. Here it is the other way
round, as everywhere else: `db.\.*` becomes `db\..*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_PIECE: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_WORDS: Final = re.compile(r"\[[\w$]+(?:\|[\w$]+)+\]")


def split_tables(text: str) -> list[str]:
    """Return the patterns of a list with commas: those in brackets do not divide."""
    return divided(_PIECE.findall(text), "({", ")}")


def divided(pieces: Iterable[str], opening: str, closing: str) -> list[str]:
    """Return the items of a list with commas, without those that are empty; a comma inside of brackets does not divide."""
    parts, depth = [""], 0
    for piece in pieces:
        if piece == "," and not depth:
            parts.append("")
            continue
        depth += (piece in opening) - (piece in closing and depth > 0) if len(piece) == 1 else 0
        parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]


def table_pattern(text: str) -> tuple[str, list[str]]:
    """Return a pattern as we have it, and what a person should know of it. A pattern that Python does not have becomes its text."""
    pieces = ["\\." if piece == "." else "." if piece == "\\." else piece for piece in _PIECE.findall(text.strip())]
    found, notes = "".join(pieces), []
    if found.endswith("\\.*") and not text.strip().endswith("\\.*"):
        found = f"{found.removesuffix('*')}.*"
        notes.append(r"a table * is no regular expression: taken as \.*")
    if _WORDS.search(text):
        words = _WORDS.findall(text)[0]
        notes.append(f"{words} is one character out of these; for one of the words write ({words[1:-1]})")
    try:
        re.compile(found)
    except re.error as error:
        return re.escape(text.strip()), [*notes, f"is no regular expression ({error}): written as the name"]
    return found, notes
