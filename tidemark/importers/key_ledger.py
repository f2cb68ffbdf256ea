"""The keys of a configuration and what became of each: translated, reported, or not needed. Any other key stays open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, Final, get_args, get_type_hints

SECRETS: Final = re.compile(r"passw|secret|token|jaas|credential|user\.info|(api|access|private)[._-]?key|salt", re.IGNORECASE)
"""Names of keys whose values are not shown, whatever they are for."""
_MOST_SHOWN: Final = 120
_PASSWORD: Final = re.compile(r"(://[^/@\s:]*):[^/@\s]*@")
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|sec|second|seconds|m|min|minute|minutes|h|hour|hours)?")
_SECONDS: Final = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}


@dataclass(frozen=True, slots=True)
class ImportFinding:
    """A key that has no equivalent, or one that a person should look at; `what` says what to do."""

    name: str
    value: str
    what: str


@dataclass(frozen=True, slots=True)
class Translation:
    """Our settings as a mapping in YAML's order, and what they do not say."""

    settings: dict[str, Any]
    findings: tuple[ImportFinding, ...]
    not_needed: tuple[str, ...]


@dataclass(slots=True)
class Ledger:
    """The keys that are open, and the settings, findings and keys that are not needed so far.

    Whatever closes a key notes it in one of these; nothing else does.
    """

    open: dict[str, Any]
    out: dict[str, Any] = field(default_factory=dict)
    findings: list[ImportFinding] = field(default_factory=list)
    translated: dict[str, str] = field(default_factory=dict)
    not_needed: list[str] = field(default_factory=list)

    def value(self, key: str) -> Any:
        """Return the value of an open key, None without one; the key stays open."""
        return self.open.get(key)

    def text(self, key: str) -> str:
        """Return the same as text, "" without one."""
        return shown(self.open.get(key))

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the open keys below a prefix."""
        yield from [key for key in self.open if key.startswith(f"{prefix}.")]

    def translate(self, key: str, path: str, value: object) -> None:
        """Close a key that becomes a setting."""
        self.put(path, value)
        self.close(key, path)

    def close(self, key: str, path: str) -> None:
        """Close a key that is part of a setting that was put, or that is its default."""
        if self.open.pop(key, _NONE) is not _NONE:
            self.translated[key] = path

    def report(self, key: str, what: str) -> None:
        """Close a key with what a person has to do about it."""
        value = shown(self.open.pop(key, None))
        hidden = "" if SECRETS.search(key) else value
        self.note(key, what, hidden)

    def report_given(self, key: str, what: str) -> None:
        """Close a key with what a person has to do about it, if it is open."""
        if key in self.open:
            self.report(key, what)

    def note(self, name: str, what: str, value: str = "") -> None:
        """Note what a person has to do, without closing a key. A password in a URL is not shown."""
        value = _PASSWORD.sub(r"\1:***@", value)
        self.findings.append(ImportFinding(name, value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…", what))

    def skip(self, key: str) -> None:
        """Close a key that has nothing to do here: what it is for is done otherwise, or not at all."""
        if self.open.pop(key, _NONE) is not _NONE:
            self.not_needed.append(key)

    def put(self, path: str, value: object) -> None:
        """Set a key of our settings; a part that is a number is an index of a list."""
        *sections, last = path.split(".")
        target: Any = self.out
        for part, following in pairwise([*sections, last]):
            target = _member(target, part, [] if following.isdigit() else {})
        target[last] = value

    def translation(self) -> Translation:
        """Return the settings, the findings and the keys that are not needed."""
        return Translation(self.out, tuple(self.findings), tuple(self.not_needed))

    def number(self, key: str) -> int | None:
        """Return a value that is a whole number; None for any other, and without one."""
        text = self.text(key).strip()
        return int(text) if text.isdigit() else None

    def seconds(self, key: str) -> int | None:
        """Return a duration in whole seconds, at least one; None for what is none."""
        found = _DURATION.fullmatch(self.text(key).strip().lower())
        if found is None:
            return None
        return max(1, round(int(found[1]) * _SECONDS.get(found[2] or "ms", 3600)))


_NONE: Final = object()


def _member(target: Any, part: str, empty: Any) -> Any:
    if not isinstance(target, list):
        return target.setdefault(part, empty)
    while len(target) <= int(part):
        target.append({})
    return target[int(part)]


def shown(value: Any) -> str:
    """Return a value as the file has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)


def has_setting(kind: Any, name: str) -> bool:
    """Return whether a section of our settings has a key: later versions have more."""
    return any(one.name == name for one in fields(kind))


def choices(kind: type, name: str) -> tuple[str, ...]:
    """Return the values that a setting can have."""
    return get_args(get_type_hints(kind)[name])
