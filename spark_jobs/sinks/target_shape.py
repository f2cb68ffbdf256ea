"""How a target is made and kept, beside its columns. Pure: also what needs no Spark asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

CHANGELOG_OF: Final = "__changelog"
"""The end of the name of a target with the changelog of another one, whose name is before it (`mode: both`)."""


@dataclass(frozen=True, slots=True)
class TargetShape:
    """How a target is made and kept, beside its columns; `SHAPES` of the settings says which types of sinks have which fields.

    `partition_by` and `options` are those of the table that is made. `soft_delete` is a boolean column: `delete_between` and
    `sweep` set it in the rows that they would take, which stay. `key` is the primary key if it has the identity, to which `SOURCE`
    is added in a target of several tables; else columns of an index, if the sink has indexes. Rows are never found by it.
    """

    soft_delete: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the fields that are given."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name))


PLAIN_SHAPE: Final = TargetShape()
