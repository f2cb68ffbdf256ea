"""Items of `select` as text: what a name, a `*` and a list of names look like. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

KEY_PREFIX: Final = "_tm_key_"
"""Begins the name of a key column of the source that `select` leaves out: the identity needs it."""

STAR: Final = re.compile(r"\*(?:\s+EXCEPT\s*\((?P<names>.*)\))?", re.IGNORECASE | re.DOTALL)
_IDENTIFIER: Final = r"`(?:[^`]|``)+`|\w+"
_LISTED: Final = re.compile(rf"\s*({_IDENTIFIER})\s*(?:,|\Z)")
_RENAMED: Final = re.compile(rf"({_IDENTIFIER})(?:\s+AS\s+({_IDENTIFIER}))?", re.IGNORECASE)


def listed_names(text: str) -> list[str] | None:
    """Return the names of a list with commas; None if it is no such list."""
    found: list[str] = []
    end = 0
    while end < len(text):
        match = _LISTED.match(text, end)
        if match is None:
            return None
        found.append(unquoted(match[1]))
        end = match.end()
    return found


def unquoted(name: str) -> str:
    """Return an identifier without its back quotes."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def computes(select: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether some item is more than columns of the source table, whose `names` are given, as they are."""
    known = {name.lower() for name in names}
    for item in select:
        renamed = _RENAMED.fullmatch(item.strip())
        is_column = renamed is not None and unquoted(renamed[1]).lower() in known
        if not is_column and STAR.fullmatch(item.strip()) is None:
            return True
    return False


def columns_as_they_are(select: Sequence[str], names: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the name in the target of each source column that is there as it is, the key's always among them.

    `names` and `keys` are the columns and the key of the source table. Computed columns are not in it.
    """
    known = {name.lower(): name for name in names}
    found: dict[str, str] = {}
    for item in select or ("*",):
        star = STAR.fullmatch(item.strip())
        if star is not None:
            left_out = {name.lower() for name in listed_names(star["names"] or "") or ()}
            found |= {name: name for name in names if name.lower() not in left_out and name not in found}
            continue
        renamed = _RENAMED.fullmatch(item.strip())
        source = None if renamed is None else known.get(unquoted(renamed[1]).lower())
        if renamed is not None and source is not None:
            found.setdefault(source, unquoted(renamed[2] or source))
    return {key: KEY_PREFIX + key for key in keys if key not in found} | found
