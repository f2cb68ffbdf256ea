"""Conflict components of a batch (pure): ops that share an entry, directly or through others, stay in order among themselves.

Ops of different components commute: any number of workers may apply them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The conflict components of a batch that workers applied: how many, and the rows of the largest one."""

    groups: int
    largest: int


def components(entries: Sequence[Collection[int]]) -> list[int]:
    """Return for each op, of which `entries` has the entries of its key set, the index of the first op of its component."""
    firsts = list(range(len(entries)))
    owners: dict[int, int] = {}
    for op, own in enumerate(entries):
        for entry in own:
            other = owners.setdefault(entry, op)
            if other != op:
                one, other = _first(firsts, op), _first(firsts, other)
                if one < other:
                    firsts[other] = one
                else:
                    firsts[one] = other
    return [_first(firsts, op) for op in range(len(firsts))]


def _first(firsts: list[int], op: int) -> int:
    """Return the first op of a component; the way to it is halved."""
    while firsts[op] != op:
        firsts[op] = firsts[firsts[op]]
        op = firsts[op]
    return op
