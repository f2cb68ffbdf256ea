"""The key `schema_changes` of a sink: what it makes of changes of the source's tables (DESIGN §9.4)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from schemas.settings.declaration import checking, problem, setting

Behaviour = Literal["lenient", "evolve", "try_evolve", "ignore", "exception"]
KINDS: Final = (
    "create.table",
    "add.column",
    "alter.column.type",
    "drop.column",
    "rename.column",
    "truncate.table",
    "drop.table",
)
"""The names of Flink CDC, so that its YAML can be taken over."""
_CREATE: Final = "create.table"
_RENAME: Final = "rename.column"
_LISTED: Final = ", ".join(f"`{kind}`" for kind in KINDS if kind != _RENAME)
_NO_RENAME: Final = (
    "schemas show a renamed column as one that is dropped and one that is added, and the producer has the table read again: "
    "name drop.column and add.column"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChangeSettings:
    """What a sink makes of changes of tables."""

    behaviour: Behaviour = setting(
        "lenient",
        help="`lenient`: columns are added and widened, and stay when they are dropped. `evolve`: as the source, columns are also "
        "dropped, and get a narrower type where every value fits; what the sink cannot do ends it. `try_evolve`: the same, and "
        "what the sink cannot do is done as in `lenient`. `ignore`: columns stay as they are, and rows with values that no longer "
        "fit go to quarantine. `exception`: the sink ends before it writes the first row of the new schema",
    )
    include: tuple[str, ...] = setting(
        (),
        help=f"kinds of changes that are applied, others are not: {_LISTED}. The beginning of a name means all "
        "that begin so (`drop`). Empty: all. `create.table` is always applied",
    )
    exclude: tuple[str, ...] = setting(
        (),
        help="kinds that are not applied, also where `include` names them: columns stay as they are, and the rows of a table that "
        "is truncated or dropped stay in the sink",
    )


def matching(names: Sequence[str]) -> frozenset[str]:
    """Return the kinds that some names or beginnings of names mean."""
    return frozenset(kind for kind in KINDS if any(kind == name or kind.startswith(f"{name}.") for name in names))


def applied_kinds(settings: SchemaChangeSettings) -> frozenset[str]:
    """Return the kinds of changes that are applied: those of `include`, without those of `exclude`, and `create.table`."""
    included = matching(settings.include) if settings.include else frozenset(KINDS)
    return (included - matching(settings.exclude)) | {_CREATE}


def is_plain(settings: SchemaChangeSettings) -> bool:
    """Return whether events keep the columns that their table had: what a changelog can do at changes of tables."""
    applied = applied_kinds(settings)
    keeps_columns = "add.column" in applied and "alter.column.type" in applied
    return settings.behaviour == "exception" or (settings.behaviour == "lenient" and keeps_columns)


@checking
def check_schema_changes(path: str, settings: SchemaChangeSettings) -> Iterator[str]:
    """Raise `ConfigError` for a name that means no kind, for renames, and where nothing is left of `create.table`."""
    for key, names in (("include", settings.include), ("exclude", settings.exclude)):
        for number, name in enumerate(names):
            where, found = f"{path}.{key}.{number}", matching([name])
            if found == {_RENAME}:
                yield problem(where, f"{name!r}: {_NO_RENAME}")
            if not found:
                close = difflib.get_close_matches(name.lower(), KINDS, n=1, cutoff=0.5)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(k for k in KINDS if k != _RENAME)}"
                yield problem(where, f"{name!r} is no kind of schema change; {hint}")
            if key == "exclude" and found == {_CREATE}:
                reason = "tables that come are always made; leave tables out by source.exclude_tables or a route"
                yield problem(where, f"{name!r}: {reason}")
