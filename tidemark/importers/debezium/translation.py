"""A translation of a connector's properties: the settings so far, the properties that are left, and what a person has to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_type_hints

SECRETS: Final = re.compile(r"passw|secret|token|jaas|credential|user\.info|(api|access|private)[._-]?key|salt", re.IGNORECASE)
"""Names of properties whose values are not shown, whatever they are for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A property that has no equivalent, or one that a person should look at; `what` says what to do."""

    name: str
    value: str
    what: str


@dataclass(frozen=True, slots=True)
class Translation:
    """Our settings as a mapping in YAML's order, and what they do not say."""

    settings: dict[str, Any]
    findings: tuple[Finding, ...]
    not_needed: tuple[str, ...]


@dataclass(slots=True)
class Draft:
    """A translation in progress. `left` are the properties that are not translated yet."""

    left: dict[str, str]
    out: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def put(self, path: str, value: object) -> None:
        """Set a key of our settings."""
        section, _, key = path.rpartition(".")
        target = self.out
        for part in section.split(".") if section else ():
            target = target.setdefault(part, {})
        target[key] = value

    def consume(self, name: str, default: str = "") -> str:
        """Return a property and remove it from those left."""
        return self.left.pop(name, default).strip()

    def number(self, name: str, path: str) -> int | None:
        """Consume a property that is a number, for `path`; None where it is not given, or names a secret instead."""
        text = self.consume(name)
        if not text:
            return None
        if not re.fullmatch(r"\d+", text):
            self.report(name, text, f"is no number here: set {path}")
            return None
        return int(text)

    def report(self, name: str, value: str, what: str) -> None:
        """Note what a person has to do."""
        self.findings.append(Finding(name, value, what))


def choices(kind: type, name: str) -> tuple[str, ...]:
    """Return the values that a setting can have."""
    return get_args(get_type_hints(kind)[name])


def split_patterns(text: str) -> list[str]:
    r"""Return a list of regular expressions: commas outside of brackets separate, `\,` does not."""
    parts, depth, current = [], 0, ""
    pieces = re.split(r"(\\.|[()\[\]{},])", text)
    for piece in pieces:
        if piece == "," and not depth:
            parts.append(current.strip())
            current = ""
            continue
        depth += (piece in ("(", "[", "{")) - (piece in (")", "]", "}") and depth > 0)
        current += piece
    parts.append(current.strip())
    return [part for part in parts if part]
