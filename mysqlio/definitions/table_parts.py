"""The parts of a table besides its columns, and the rules by which a server reads definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.loop_marks import META

SYSTEM_DATABASES: Final = ("information_schema", "mysql", "performance_schema", "sys", META)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of an index, and how many of its first characters; "" = an expression, 0 = the whole column."""

    column: str
    prefix: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """An index; the primary key is the one called PRIMARY."""

    name: str
    unique: bool
    parts: tuple[KeyPart, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The meaning of texts on one server: `collations` maps a character set to its default collation.

    `explicit_timestamps` is `explicit_defaults_for_timestamp`: off, a TIMESTAMP is NOT NULL and has a default.
    """

    flavour: str
    collations: Mapping[str, str]
    explicit_timestamps: bool = True
