"""What a sink makes of schema changes: the settings and two writer schemas enter, actions and changes leave. Pure (DESIGN §9.4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.errors import SchemaChangeError
from schemas.settings.schema_change_section import Behaviour, SchemaChangeSettings, applied_kinds
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.sinks.contract import Columns

ADD, RETYPE, DROP = "add.column", "alter.column.type", "drop.column"
TRUNCATE_TABLE, DROP_TABLE = "truncate.table", "drop.table"
_CAUSES: Final = {TRUNCATE_TABLE: ("truncate",), DROP_TABLE: ("drop", "rename", "create")}
"""Causes of floor markers by kind. A table that is made had no rows: one of that name was dropped, if there are rows of it."""
_TAKES_ROWS: Final = {"truncate": TRUNCATE_TABLE, "drop": DROP_TABLE, "rename": DROP_TABLE}


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A difference of two writer schemas, or a statement that empties a table: its kind, and what is said of it."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """What a sink makes of schema changes: its behaviour, and the kinds of changes that are applied."""

    behaviour: Behaviour = "lenient"
    applied: frozenset[str] = applied_kinds(SchemaChangeSettings())

    @staticmethod
    def of(settings: SchemaChangeSettings) -> SchemaRule:
        """Return the rule of a configured sink."""
        return SchemaRule(settings.behaviour, applied_kinds(settings))

    @property
    def adds(self) -> bool:
        """Whether a column that the source adds comes into a target that is there."""
        return self.behaviour != "ignore" and ADD in self.applied

    @property
    def retypes(self) -> bool:
        """Whether a column of a target takes another type; else values that do not fit go to quarantine."""
        return self.behaviour != "ignore" and RETYPE in self.applied

    @property
    def drops(self) -> bool:
        """Whether a column that the source drops goes from its target."""
        return self.behaviour in ("evolve", "try_evolve") and DROP in self.applied

    @property
    def narrows(self) -> bool:
        """Whether a column gets a narrower type as soon as every value fits, and not only once the table was read again."""
        return self.behaviour in ("evolve", "try_evolve") and RETYPE in self.applied

    @property
    def insists(self) -> bool:
        """Whether the sink ends at a change that cannot be made."""
        return self.behaviour == "evolve"

    @property
    def keeps(self) -> frozenset[str]:
        """The causes of floor markers whose rows stay (`schemas.markers.FloorMarker.cause`)."""
        return frozenset(cause for kind, causes in _CAUSES.items() if kind not in self.applied for cause in causes)

    def refused(self, changes: Sequence[LayoutChange]) -> list[LayoutChange]:
        """Return the changes before which the sink ends."""
        return [one for one in changes if one.kind in self.applied] if self.behaviour == "exception" else []

    def require_allowed(self, table: str, changes: Sequence[LayoutChange]) -> None:
        """Raise `SchemaChangeError` for changes of a table before which the sink ends."""
        found = self.refused(changes)
        if found:
            kinds = ", ".join(dict.fromkeys(one.kind for one in found))
            message = (
                f"{table} has changed at the source: {'; '.join(one.text for one in found)}. The sink ends before that, since its "
                f"schema_changes.behaviour is exception. Choose another behaviour to continue, or exclude {kinds}"
            )
            raise SchemaChangeError(message)


def differences(before: WriterSchema, after: WriterSchema) -> list[LayoutChange]:
    """Return the changes that lead from the columns of one writer schema to those of another."""
    found: list[LayoutChange] = []
    for name, item in after.by_name.items():
        known = before.by_name.get(name)
        if known is None:
            found.append(LayoutChange(ADD, f"column {item.name} {item.type.simpleString()} was added"))
        elif known.type != item.type:
            kinds = f"{known.type.simpleString()} to {item.type.simpleString()}"
            found.append(LayoutChange(RETYPE, f"column {item.name} changed its type from {kinds}"))
    gone = [item for name, item in before.by_name.items() if name not in after.by_name]
    return found + [LayoutChange(DROP, f"column {item.name} was dropped") for item in gone]


def emptied(causes: Collection[str]) -> list[LayoutChange]:
    """Return the changes that floor markers with these causes report. A table that is made is none."""
    kinds = dict.fromkeys(_TAKES_ROWS[cause] for cause in causes if cause in _TAKES_ROWS)
    return [LayoutChange(kind, f"the table was {'truncated' if kind == TRUNCATE_TABLE else 'dropped'}") for kind in kinds]


def dropped_columns(existing: Columns, current: Sequence[WriterSchema], known: Sequence[WriterSchema]) -> tuple[str, ...]:
    """Return the columns of a target that its source does not have any more.

    `current` are the writers of values and keys that count. A column that none of the `known` writers ever had is somebody else's,
    and stays.
    """
    now = {name for writer in current for name in writer.by_name}
    ever = {name for writer in known for name in writer.by_name}
    return tuple(name for name, _ in existing if name.lower() in ever and name.lower() not in now)


def require_key(table: str, existing: Columns, keys: Sequence[str]) -> None:
    """Raise `SchemaChangeError` if a target, whose columns stay, lacks a column of the key that its rows are known by."""
    names = {name.lower() for name, _ in existing}
    missing = [name for name in keys if name.lower() not in names]
    if missing:
        message = (
            f"{table} has another key now, with {', '.join(missing)}, which its target does not have, and schema_changes keeps new "
            "columns out of it: include add.column, or choose another behaviour"
        )
        raise SchemaChangeError(message)


def require_none_left_out(target: str, added: Sequence[str], left_out: Collection[str]) -> None:
    """Raise `SchemaChangeError` if columns that come into a target were left out of it before: its rows lack their values.

    `left_out` has names in small letters.
    """
    found = [name for name in added if name.lower() in left_out]
    if found:
        message = (
            f"{target} has rows without {', '.join(found)}, which schema_changes left out when they were merged: leave add.column "
            f"out again, or have the rows read again: tidemark rebuild {target}"
        )
        raise SchemaChangeError(message)
