"""Comparisons of Flink CDC, which are false with NULL where those of SQL are NULL. Pieces of an expression enter and leave. Pure.

Flink CDC 3.5 compiles `a <> b` to `!valueEquals(a, b)`: true if one side is NULL. If that matters, a comparison is written as
`coalesce(a = b, FALSE)`: under NOT, for `<>`, NOT IN, NOT LIKE and NOT BETWEEN, and if its value is a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

Unit = str | list["Unit"]
"""A piece, or the pieces of a bracket or of CASE … END, with both ends."""

_OPEN: Final = {"(": ")", "[": "]", "CASE": "END"}
_COMPARES: Final = frozenset({"=", "<", ">", "<=", ">=", "<>", "!=", "IN", "LIKE", "BETWEEN"})
_BOUNDS: Final = frozenset({",", "OR", "WHEN", "THEN", "ELSE", "AS", "(", ")", "[", "]", "CASE", "END"})
_TRUTH: Final = frozenset({"TRUE", "FALSE", "UNKNOWN"})


def two_valued(pieces: Sequence[str], *, is_value: bool) -> list[str]:
    """Return the pieces with comparisons that are never NULL, where this counts; `is_value`: the expression is a column."""
    words = [piece.upper() for piece in pieces if not piece.isspace()]
    negates = any(
        (word == "NOT" and (number == 0 or words[number - 1] in ("AND", "NOT", *_BOUNDS)))
        or (word == "IS" and _TRUTH & set(words[number + 1 : number + 3]))
        for number, word in enumerate(words)
    )
    units, _ = _nested(list(pieces), 0, "")
    return list(_flat(_written(units, everywhere=negates, is_value=is_value)))


def _nested(pieces: Sequence[str], at: int, end: str) -> tuple[list[Unit], int]:
    found: list[Unit] = []
    while at < len(pieces):
        word = pieces[at].upper()
        if word == end:
            return [*found, pieces[at]], at + 1
        if word in _OPEN:
            inner, at = _nested(pieces, at + 1, _OPEN[word])
            found.append([word, *inner])
        else:
            found.append(pieces[at])
            at += 1
    return found, at


def _flat(units: Sequence[Unit]) -> Iterator[str]:
    for unit in units:
        yield from [unit] if isinstance(unit, str) else _flat(unit)


def _written(units: Sequence[Unit], *, everywhere: bool, is_value: bool) -> list[Unit]:
    """Return the units of one bracket: each condition between AND, OR, NOT and commas by itself."""
    out: list[Unit] = []
    run: list[Unit] = []
    between = False
    for unit in [*units, ","]:
        word = unit.upper() if isinstance(unit, str) else ""
        is_prefix = word == "NOT" and not _words(run)
        ends = word in _BOUNDS or is_prefix or (word == "AND" and not between)
        between = (between or word == "BETWEEN") and word not in ("AND", *_BOUNDS)
        if ends:
            out += _condition(run, everywhere=everywhere or (is_value and word != "THEN"))
            out.append(unit)
            run = []
        else:
            run.append(unit if isinstance(unit, str) else _bracket(unit, _words(run), everywhere=everywhere, is_value=is_value))
    return out[:-1]


def _bracket(unit: list[Unit], before: list[str], *, everywhere: bool, is_value: bool) -> list[Unit]:
    """Return a bracket. Arguments of functions and conditions of CASE are not the value of the whole."""
    if before and before[-1] == "POSITION":  # POSITION(a IN b) compares nothing
        return unit
    is_argument = bool(before) and (before[-1][0].isalpha() or before[-1][0] == "_") and before[-1] not in ("NOT", "AND", "OR")
    return _written(unit, everywhere=everywhere, is_value=is_value and unit[0] == "(" and not is_argument)


def _words(units: Sequence[Unit]) -> list[str]:
    return [unit.upper() if isinstance(unit, str) else "()" for unit in units if not (isinstance(unit, str) and unit.isspace())]


def _condition(run: list[Unit], *, everywhere: bool) -> list[Unit]:
    """Return one condition, which is false or true if it is to be."""
    words = _words(run)
    at = next((number for number, unit in enumerate(run) if isinstance(unit, str) and unit.upper() in _COMPARES), None)
    if at is None or "IS" in words or not _words(run[:at]):
        return run
    operator = str(run[at]).upper()
    left, right = run[:at], run[at + 1 :]
    is_negated = bool(_words(left)) and _words(left)[-1] == "NOT"
    if is_negated:
        last = max(number for number, unit in enumerate(left) if isinstance(unit, str) and unit.upper() == "NOT")
        left = left[:last]
    differs = operator in ("<>", "!=")
    if not (everywhere or is_negated or differs):
        return run
    head, tail = _edges(run)
    middle: list[Unit] = [*_stripped(left), " ", "=" if differs else str(run[at]), " ", *_stripped(right)]
    call: list[Unit] = ["coalesce", ["(", *middle, ",", " ", "FALSE", ")"]]
    return [*head, *(["NOT", " "] if is_negated or differs else []), *call, *tail]


def _stripped(units: Sequence[Unit]) -> list[Unit]:
    head, tail = _edges(units)
    return list(units[len(head) : len(units) - len(tail)])


def _edges(units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Return the spaces at both ends."""
    first = next((number for number, unit in enumerate(units) if not _is_space(unit)), len(units))
    last = next((number for number, unit in enumerate(reversed(units)) if not _is_space(unit)), 0)
    return list(units[:first]), list(units[len(units) - last :])


def _is_space(unit: Unit) -> bool:
    return isinstance(unit, str) and unit.isspace()
