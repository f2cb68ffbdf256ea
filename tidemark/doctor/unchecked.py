"""Why an area could not be examined to its end."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.errors import TidemarkError
from schemas.findings import Finding


class UncheckedError(TidemarkError):
    """An area is not examined further: the reason, and what was found until then."""

    def __init__(self, reason: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(reason)
        self.findings = tuple(findings)
