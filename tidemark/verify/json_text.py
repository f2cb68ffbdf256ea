"""JSON as text and as value: a fast form that two equal documents usually share, and the exact comparison."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_SPACE_OUTSIDE_STRINGS: Final = r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+'


def compact(array: pa.Array) -> pa.Array:
    """Return the documents without space between tokens, as binary.

    Documents that agree here are equal; documents that do not may still be (`1.0` and `1`, other order of
    keys): those are compared by `same`.
    """
    stripped = pc.replace_substring_regex(
        array.cast(pa.large_string()), pattern=_SPACE_OUTSIDE_STRINGS, replacement=r"\1"
    )
    return stripped.cast(pa.large_binary())


def same(left: bytes, right: bytes) -> bool:
    """Return whether two documents hold the same value, numbers compared exactly; False where one is not JSON."""
    if left == right:
        return True
    try:
        return bool(_parsed(left) == _parsed(right))
    except ValueError:
        return False


def _parsed(text: bytes) -> Any:
    return json.loads(text, parse_float=_number, parse_int=_number, object_pairs_hook=_members)


class _Members(dict[str, Any]):
    """An object of JSON, never equal to anything but another object."""


def _members(pairs: list[tuple[str, Any]]) -> _Members:
    return _Members(pairs)


def _number(text: str) -> tuple[str, Decimal]:
    """Return a number that is equal to no boolean: in Python, `True == 1`."""
    return ("number", Decimal(text))
