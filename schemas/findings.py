"""A finding: one thing that is wrong with the set-up of a system, what was seen, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Nothing runs, or rows would be lost."""
    WARNING = "warning"
    """It runs, and is less than it could be, or will not run for ever."""


class Remedy(StrEnum):
    """Where a fix is pasted."""

    SOURCE_SQL = "source"
    """SQL for an administrator of the source."""
    SINK_SQL = "sink"
    """SQL for an administrator of the sink's database."""
    SHELL = "shell"
    """A command for a shell."""
    SETTING = "setting"
    """A variable of the environment of Tidemark's commands; the same key in the YAML file does the same."""
    NONE = "none"
    """There is nothing to paste: `advice` says what to do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `code` is stable, `section.what` in small letters: alerts and scripts may name it.

    `evidence` is what was seen, `what` is what it means. `fix` is a statement or a command that can be pasted as it is, where
    `remedy` says; `advice` is a sentence for a person.
    """

    code: str
    severity: Severity
    evidence: str
    what: str
    fix: str = ""
    remedy: Remedy = Remedy.NONE
    advice: str = ""

    @property
    def text(self) -> str:
        """The finding as one line."""
        fix = "; ".join(part for part in (self.fix, self.advice) if part)
        return f"{self.evidence}: {self.what}{f'. {fix}' if fix else ''}"

    @property
    def is_error(self) -> bool:
        """Whether nothing runs as long as this is so."""
        return self.severity is Severity.ERROR


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are errors."""
    return [found for found in findings if found.is_error]
