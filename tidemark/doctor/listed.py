"""The first findings of a kind, and the number of the others: a set-up of thousands of tables gives a list that is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from schemas.findings import Finding, Severity

MOST: Final = 20


def listed(code: str, noun: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings; the others as one that has their number, and is an error if one of them is."""
    others = []
    for number, found in enumerate(findings):
        if number < MOST:
            yield found
        else:
            others.append(found)
    if others:
        severity = Severity.ERROR if any(one.is_error for one in others) else Severity.WARNING
        yield Finding(code, severity, f"{len(others)} further {noun}", "are not listed: mend the first ones and ask again")
