"""A mechanism that is switched off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old` occurs once in the module's text and becomes `new`; one of `tests` (pytest's ids) must fail then."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
