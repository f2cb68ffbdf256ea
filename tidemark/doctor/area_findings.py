"""The findings of one area: their end before all was asked, and lists that a person reads to the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from schemas.errors import TidemarkError
from schemas.findings import Finding, Severity

MOST: Final = 20
"""So many findings of a kind are listed: a set-up may have thousands of tables."""


class UncheckedError(TidemarkError):
    """An area is not examined further: the reason, and the findings until then."""

    def __init__(self, reason: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(reason)
        self.findings = tuple(findings)


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
